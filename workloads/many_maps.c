// Maps and unmaps over and over, with a thousand mappings alive at a time, for code that keeps
// track of an address space: its cost must not grow with the number of past mappings.
//
//   many_maps MAPPINGS

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { PAGE = 4096, ALIVE = 1000 };

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: many_maps MAPPINGS\n");
        return 2;
    }
    unsigned long mappings = strtoul(argv[1], NULL, 0);
    static char *alive[ALIVE];
    static size_t bytes[ALIVE];
    for (unsigned long i = 0; i < mappings; i++) {
        unsigned slot = i % ALIVE;
        if (alive[slot]) munmap(alive[slot], bytes[slot]);
        bytes[slot] = PAGE * (1 + i * 7 % 5);
        alive[slot] = mmap(NULL, bytes[slot], PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (alive[slot] == MAP_FAILED) {
            perror("mmap");
            return 1;
        }
        alive[slot][0] = 1;
    }
    printf("%lu\n", mappings);
    return 0;
}
