// Random updates of a table (the GUPS kernel): one load and one store at an unpredictable place
// each time, the worst that a program can ask of a TLB.
//
//   gups TABLE_MIB UPDATES

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: gups TABLE_MIB UPDATES\n");
        return 2;
    }
    size_t bytes = strtoull(argv[1], NULL, 0) << 20;
    uint64_t updates = strtoull(argv[2], NULL, 0);
    // mmap and not malloc: the table starts on a page and is a mapping of its own.
    uint64_t *table =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    size_t words = bytes / sizeof *table;
    uint64_t random = 88172645463325252u;
    for (uint64_t i = 0; i < updates; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        table[random % words] ^= random;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i += 512) sum ^= table[i];
    printf("%016lx\n", sum);
    return 0;
}
