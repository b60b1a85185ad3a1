// The program of events.oct: small, and with every event that changes an address space.
//
//   gcc -O1 -g -static -no-pie -fno-pie -o events events.c -pthread
//   octavo record -o events.oct -- ./events    (in a directory that is gone, so that no names of functions depend on it)
//
// It touches private, shared and file mappings by pages and by lines, unmaps, protects, moves and
// discards parts of them, forks (both sides store to what they share then), executes itself, handles
// signals, and runs two threads. The trace is checked in: another compiler or C library would make
// another one.

#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, LINE = 64, KIB = 1 << 10, MIB = 1 << 20, HUGE = 2 * MIB };

static volatile sig_atomic_t handled;

static void handle(int number) { handled += number; }

static char *map(size_t bytes, int flags) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) abort();
    return p;
}

static void store_each(volatile char *from, size_t bytes, size_t step) {
    for (size_t at = 0; at < bytes; at += step) from[at] += 1;
}

static void update_at_random(volatile uint32_t *table, size_t slots, unsigned updates) {
    uint32_t state = 1;
    for (unsigned n = 0; n < updates; n++) {
        state = state * 1664525 + 1013904223;
        table[(uint64_t)state * slots >> 32] ^= state;
    }
}

static void *in_a_thread(void *argument) {
    char *own = map(256 * KIB, MAP_PRIVATE);
    store_each(own, 256 * KIB, PAGE);
    store_each(argument, 512 * KIB, 2 * PAGE);
    munmap(own, 256 * KIB);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc > 1) {
        update_at_random((void *)map(MIB, MAP_PRIVATE), MIB / 4, 500);
        return 0;
    }

    char *table = map(3 * HUGE, MAP_PRIVATE);
    char *shared = map(HUGE, MAP_SHARED);
    store_each(table, 3 * HUGE, PAGE);
    update_at_random((void *)table, 3 * HUGE / 4, 4000);
    store_each(shared, 256 * KIB, PAGE);

    char *heap[64];
    for (int n = 0; n < 64; n++) store_each(heap[n] = malloc(5000), 5000, LINE);
    for (int n = 0; n < 64; n += 2) free(heap[n]);

    char *moved = map(512 * KIB, MAP_PRIVATE);
    store_each(moved, 512 * KIB, PAGE);
    moved = mremap(moved, 512 * KIB, 3 * MIB, MREMAP_MAYMOVE);
    store_each(moved, 3 * MIB, 3 * PAGE);
    munmap(moved + MIB, 64 * KIB);
    madvise(moved, 128 * KIB, MADV_DONTNEED);
    store_each(moved, 128 * KIB, PAGE);
    madvise(table, HUGE, MADV_HUGEPAGE);
    mprotect(table + HUGE, 64 * KIB, PROT_READ);
    update_at_random((void *)(table + 2 * HUGE), HUGE / 4, 1000);
    mprotect(table + HUGE, 64 * KIB, PROT_READ | PROT_WRITE);
    store_each(table + HUGE, 128 * KIB, PAGE);

    signal(SIGUSR1, handle);
    for (int n = 0; n < 3; n++) raise(SIGUSR1);

    pid_t child = fork();
    if (child == 0) {
        store_each(table, HUGE, 4 * PAGE);
        store_each(shared, HUGE, 4 * PAGE);
        update_at_random((void *)moved, MIB / 4, 500);
        execl("/proc/self/exe", argv[0], "again", (char *)NULL);
        _exit(127);
    }
    waitpid(child, NULL, 0);
    store_each(table, HUGE, 2 * PAGE);
    store_each(shared, HUGE, 2 * PAGE);

    pthread_t threads[2];
    for (int t = 0; t < 2; t++) pthread_create(&threads[t], NULL, in_a_thread, table + t * MIB);
    for (int t = 0; t < 2; t++) pthread_join(threads[t], NULL);
    munmap(table, 3 * HUGE);
    return handled == 3 * SIGUSR1 ? 0 : 1;
}
