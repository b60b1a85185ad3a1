// Threads that each walk memory of their own and count the pages in one shared atomic counter.
//
//   threads THREADS MIB_EACH ROUNDS
//
// Prints the counter, which is THREADS × ROUNDS × pages in MIB_EACH.

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { PAGE = 4096 };

static size_t bytes_each;
static unsigned rounds;
static atomic_ulong pages_walked;

static void *walk(void *unused) {
    (void)unused;
    volatile char *memory = malloc(bytes_each);
    if (!memory) return "out of memory";
    for (unsigned r = 0; r < rounds; r++)
        for (size_t i = 0; i < bytes_each; i += PAGE) {
            memory[i] += 1;
            atomic_fetch_add(&pages_walked, 1);
        }
    free((void *)memory);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 4) {
        fprintf(stderr, "usage: threads THREADS MIB_EACH ROUNDS\n");
        return 2;
    }
    unsigned count = strtoul(argv[1], NULL, 0);
    bytes_each = strtoull(argv[2], NULL, 0) << 20;
    rounds = strtoul(argv[3], NULL, 0);
    pthread_t *threads = calloc(count, sizeof *threads);
    for (unsigned t = 0; t < count; t++)
        if (pthread_create(&threads[t], NULL, walk, NULL)) return 1;
    for (unsigned t = 0; t < count; t++) {
        void *error;
        pthread_join(threads[t], &error);
        if (error) return 1;
    }
    printf("%lu\n", atomic_load(&pages_walked));
    return 0;
}
