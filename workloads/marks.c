// A region of interest set by marks: the code outside it touches far more memory than the code
// inside, so that counting too much becomes visible.
//
//   marks STORES
//
// Between the marks it makes STORES stores to 16 pages, and passes a mark of its own, 16.

#include <stdio.h>
#include <stdlib.h>

#include "octavo.h"

enum { PAGE = 4096 };

static volatile char outside[8 << 20], inside[16 * PAGE] __attribute__((aligned(PAGE)));

static void everywhere(void) {
    for (size_t i = 0; i < sizeof outside; i += 64) outside[i] = 1;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: marks STORES\n");
        return 2;
    }
    size_t stores = strtoull(argv[1], NULL, 0);
    everywhere();
    OCTAVO_BEGIN();
    for (size_t i = 0; i < stores; i++) inside[i * 512 % sizeof inside] = 1;
    OCTAVO_MARK(16);
    OCTAVO_END();
    everywhere();
    puts("done");
    return 0;
}
