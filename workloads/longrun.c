// A run of any length over memory that does not grow: any growth meanwhile is the tracer's or the
// study's own.
//
//   longrun REFERENCES

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

// Big enough to miss at every small page size, and never more than this.
static volatile uint64_t memory[(16 << 20) / sizeof(uint64_t)];

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: longrun REFERENCES\n");
        return 2;
    }
    // A turn of the loop is twelve references: ten instructions, a load and a store.
    uint64_t turns = strtoull(argv[1], NULL, 0) / 12;
    uint32_t random = 1;
    for (uint64_t i = 0; i < turns; i++) {
        random = random * 1664525u + 1013904223u;
        memory[random >> 11] += i;
    }
    printf("%u\n", random);
    return 0;
}
