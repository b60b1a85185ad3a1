/* SPDX-License-Identifier: Apache-2.0
 *
 * Blocks with known allocation sites, and a known number of references to them:
 *
 *     allocations [VISITS]
 *
 * - make_table: a table of 32 MiB by a wrapper (my_alloc), visited VISITS times at random places;
 * - make_small: 16 arrays of 256 bytes, hot;
 * - grow: a vector that is resized from 4 KiB to 8 MiB, and read through at each size;
 * - worker: a thread with a block of 16 MiB of its own, visited VISITS / 4 times;
 * - escape: a handler that leaves an allocation function by siglongjmp, and later blocks.
 *
 * A child process then visits the table VISITS / 4 times: it has the blocks of its parent.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define APART __attribute__((noinline, noclone))
#define TABLE_BYTES (32u << 20)
#define WORKER_BYTES (16u << 20)

static uint64_t sum;

APART static void* my_alloc(size_t bytes)
{
   void* block = malloc(bytes);
   if (!block)
      abort();
   return block;
}

APART static char* make_table(void)
{
   char* table = my_alloc(TABLE_BYTES);
   __asm__ volatile("" : : "r"(table) : "memory");
   return table;
}

APART static char* make_small(void)
{
   char* small = calloc(1, 256);
   __asm__ volatile("" : : "r"(small) : "memory");
   return small;
}

APART static void visit(char* block, size_t bytes, uint64_t visits, uint64_t seed)
{
   for (uint64_t i = 0; i < visits; i++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      block[(seed >> 20) % bytes]++;
   }
}

APART static void grow(void)
{
   char* vector = NULL;
   for (size_t bytes = 4096; bytes <= (8u << 20); bytes *= 2) {
      vector = realloc(vector, bytes);
      for (size_t i = 0; i < bytes; i += 4096)
         sum += (uint64_t)(unsigned char)(vector[i] = (char)i);
   }
   free(vector);
}

static void* worker(void* visits)
{
   char* own = NULL;
   if (posix_memalign((void**)&own, 4096, WORKER_BYTES))
      abort();
   visit(own, WORKER_BYTES, *(uint64_t*)visits / 4, 3);
   free(own);
   return NULL;
}

static sigjmp_buf back;

static void leave(int signal)
{
   siglongjmp(back, signal);
}

/* An allocation function of this program, under a name that the tracer knows. It is left midway. */
APART void* pvalloc(size_t bytes)
{
   raise(SIGUSR1);
   return (void*)bytes;
}

APART static char* escape(void)
{
   signal(SIGUSR1, leave);
   if (!sigsetjmp(back, 1))
      pvalloc(1);
   char* after = malloc(1u << 20);
   __asm__ volatile("" : : "r"(after) : "memory");
   return after;
}

int main(int argc, char** argv)
{
   uint64_t visits = argc > 1 ? strtoull(argv[1], NULL, 0) : 100000;
   char* table = make_table();
   visit(table, TABLE_BYTES, visits, 1);
   char* small[16];
   for (int i = 0; i < 16; i++)
      small[i] = make_small();
   for (uint64_t i = 0; i < visits; i++)
      small[i % 16][i % 256]++;
   grow();
   pthread_t thread;
   if (pthread_create(&thread, NULL, worker, &visits))
      abort();
   pthread_join(thread, NULL);
   char* after = escape();
   memset(after, 1, 1u << 20);
   pid_t child = fork();
   if (child == 0) {
      visit(table, TABLE_BYTES, visits / 4, 5);
      _exit(0);
   }
   waitpid(child, NULL, 0);
   for (int i = 0; i < 16; i++)
      free(small[i]);
   free(after);
   free(table);
   printf("%llu\n", (unsigned long long)sum);
   return 0;
}
