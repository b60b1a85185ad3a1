// Makes mappings of every kind whose place matters to a page-size study, then says where each one
// went ("name=0xADDRESS") and, after a line "maps:", prints /proc/self/maps.
//
//   layout
//
// A test runs it natively without address randomisation and under Octavo, and compares.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { KIB = 1 << 10, MIB = 1 << 20 };

static void say(const char *name, const void *address) {
    printf("%s=%p\n", name, address);
}

static char *map(const char *name, size_t bytes) {
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror(name);
        exit(1);
    }
    memset(p, 1, bytes);
    say(name, p);
    return p;
}

static void *in_thread(void *unused) {
    (void)unused;
    char on_stack = 0;
    char *p = malloc(1000);  // from the thread's own arena
    memset(p, 1, 1000);
    say("thread_stack", &on_stack);
    say("thread_arena", p);
    return NULL;
}

int main(void) {
    char on_stack = 0;
    setvbuf(stdout, NULL, _IONBF, 0);  // no buffer of stdio's among the mappings
    say("stack", &on_stack);
    say("program", (void *)main);
    say("libc", (void *)getpid);

    map("anon_64m", 64 * MIB);
    map("anon_3m4k", 3 * MIB + 4 * KIB);
    char *two = map("anon_2m", 2 * MIB);
    map("anon_1m", 1 * MIB);

    char *big = malloc(300000);  // past malloc's mmap threshold
    memset(big, 1, 300000);
    say("malloc_300000", big);

    char *small = NULL;
    for (int i = 0; i < 10000; i++) {  // the brk heap grows beyond 8 MiB
        small = malloc(1000);
        memset(small, 1, 1000);
    }
    say("last_small_malloc", small);
    say("brk", sbrk(0));

    pthread_t thread;
    if (pthread_create(&thread, NULL, in_thread, NULL)) return 1;
    pthread_join(thread, NULL);

    char *grown = mremap(two, 2 * MIB, 6 * MIB, MREMAP_MAYMOVE);
    if (grown == MAP_FAILED) return 1;
    memset(grown, 2, 6 * MIB);
    say("remapped_6m", grown);

    char *holed = map("holed_16m", 16 * MIB);
    munmap(holed + 6 * MIB, 3 * MIB);
    map("in_hole_1m", 1 * MIB);
    map("in_hole_64k", 64 * KIB);

    puts("maps:");
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    while (maps && fgets(line, sizeof line, maps)) fputs(line, stdout);
    return 0;
}
