// Code that is written, run, and written again in the same place, as a just-in-time compiler does:
// once in memory that may be written and executed, once with the access rights changed in between,
// and once through a second mapping of the same memory. For an odd number of rounds, the second
// mapping becomes executable only after it was made.
//
//   selfmod ROUNDS
//
// Prints the sum that the written functions returned, three times
// ROUNDS × (ROUNDS − 1) / 2.

#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096 };

static void write_function(unsigned char *at, uint32_t returns) {
    at[0] = 0xb8;  // mov eax, immediate
    memcpy(at + 1, &returns, sizeof returns);
    at[5] = 0xc3;  // ret
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: selfmod ROUNDS\n");
        return 2;
    }
    uint32_t rounds = strtoul(argv[1], NULL, 0);
    uint64_t sum = 0;

    unsigned char *open = mmap(NULL, PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
                               MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (open == MAP_FAILED) return 1;
    for (uint32_t i = 0; i < rounds; i++) {
        write_function(open, i);
        sum += ((uint32_t(*)(void))open)();
    }

    unsigned char *shut =
        mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (shut == MAP_FAILED) return 1;
    for (uint32_t i = 0; i < rounds; i++) {
        write_function(shut, i);
        if (mprotect(shut, PAGE, PROT_READ | PROT_EXEC)) return 1;
        sum += ((uint32_t(*)(void))shut)();
        if (mprotect(shut, PAGE, PROT_READ | PROT_WRITE)) return 1;
    }

    int file = memfd_create("code", 0);
    if (file < 0 || ftruncate(file, PAGE)) return 1;
    unsigned char *written = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    int at_first = rounds % 2 ? PROT_NONE : PROT_READ | PROT_EXEC;
    unsigned char *executed = mmap(NULL, PAGE, at_first, MAP_SHARED, file, 0);
    if (written == MAP_FAILED || executed == MAP_FAILED) return 1;
    if (rounds % 2 && mprotect(executed, PAGE, PROT_READ | PROT_EXEC)) return 1;
    for (uint32_t i = 0; i < rounds; i++) {
        write_function(written, i);
        sum += ((uint32_t(*)(void))executed)();
    }
    printf("%lu\n", sum);
    return 0;
}
