// A program that switches transparent huge pages off for itself (PR_SET_THP_DISABLE), as MariaDB does.
//
//   no_huge_pages MIB
//
// Stores to every page of an array that it has mapped before that, and of one mapped afterwards.

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { PAGE = 4096 };

static volatile char *mapped(size_t bytes) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: no_huge_pages MIB\n");
        return 2;
    }
    size_t bytes = strtoull(argv[1], NULL, 0) << 20;
    volatile char *before = mapped(bytes);
    if (prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)) return 1;
    volatile char *after = mapped(2 * bytes);
    if (!before || !after) return 1;
    for (size_t at = 0; at < bytes; at += PAGE) before[at] = 1;
    for (size_t at = 0; at < 2 * bytes; at += PAGE) after[at] = 1;
    return 0;
}
