// Common code of the measured workloads: options (options.h), random numbers, big arrays, the
// region of interest, and the result line. Include it before anything else.
//
// A workload draws everything from --seed, so that the same options give the same references; no
// branch depends on an address or on a time. Its start-up and its check lie outside the region of
// interest.
#ifndef WORKLOADS_COMMON_H
#define WORKLOADS_COMMON_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE  // madvise
#endif

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "octavo.h"
#include "options.h"

// --- random numbers ------------------------------------------------------------------------------

// The finaliser of SplitMix64: a bijection whose results look random.
static inline uint64_t mix(uint64_t x) {
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

// Where the random numbers for one purpose begin.
static inline uint64_t random_start(uint64_t purpose) {
    return mix(seed ^ mix(purpose + 1));
}

// The `index`-th number from a start, without those before it.
static inline uint64_t random_at(uint64_t start, uint64_t index) {
    return mix(start + (index + 1) * 0x9e3779b97f4a7c15u);
}

static inline uint64_t random_next(uint64_t *state) {
    return mix(*state += 0x9e3779b97f4a7c15u);
}

// Maps a random number to one from 0 to limit - 1.
static inline uint64_t below(uint64_t random, uint64_t limit) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)random * limit >> 64);
}

// Maps a random number to one from 0 to 1, 1 excluded.
static inline double unit(uint64_t random) {
    return (double)(random >> 11) * 0x1p-53;
}

// --- big arrays ----------------------------------------------------------------------------------

// An array of zeros in a mapping of its own, advised as --huge says.
static inline void *big(const char *what, uint64_t count, uint64_t each_bytes) {
    uint64_t bytes = count * each_bytes;
    void *array = MAP_FAILED;
    errno = ENOMEM;
    if (count <= SIZE_MAX / 2 / each_bytes)
        array = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
    if (array == MAP_FAILED) {
        fprintf(stderr, "%s: no memory for %s: %s.\n", program->name, what, strerror(errno));
        exit(1);
    }
    if (huge == HUGE_ALWAYS && madvise(array, bytes, MADV_HUGEPAGE)) {
        fprintf(stderr, "%s: --huge always: the kernel refuses huge pages: %s.\n", program->name,
                strerror(errno));
        exit(1);
    }
    // A kernel without transparent huge pages refuses this advice, but gives none anyway.
    if (huge == HUGE_NEVER) (void)!madvise(array, bytes, MADV_NOHUGEPAGE);
    return array;
}

// --- the region of interest, and the result ------------------------------------------------------

static uint64_t region_ns, region_began_ns;

// Processor time: all workloads have one thread and wait for nothing, and the time of other
// programs on a busy machine does not count.
static inline uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

// The region may begin and end several times.
static inline void region_begins(void) {
    region_began_ns = now_ns();
    OCTAVO_BEGIN();
}

static inline void region_ends(void) {
    OCTAVO_END();
    region_ns += now_ns() - region_began_ns;
}

// Writes a number right-aligned. Times differ between runs, but the references of a traced run must
// not. So the same instructions write every number, unlike in printf.
static inline void write_digits(char *at, unsigned places, unsigned least, uint64_t number) {
    for (unsigned i = 0; i < places; i++) {
        uint64_t shown = (number != 0) | (i < least);
        at[places - 1 - i] = (char)(' ' + ((0 - shown) & (16 + number % 10)));
        number /= 10;
    }
}

// A number of thousandths, in `places` digits, spaces and a point.
static inline void write_decimal(char *at, unsigned places, uint64_t thousandths) {
    write_digits(at, places - 4, 1, thousandths / 1000);
    at[places - 4] = '.';
    write_digits(at + places - 3, 3, 3, thousandths % 1000);
}

// Prints the result line; returns the exit status. `problem` is what the check found, or NULL.
static inline int report(uint64_t operations, const char *operation, uint64_t digest,
                         const char *problem) {
    char seconds[] = "         ", each[] = "            ";
    write_decimal(seconds, sizeof seconds - 1, region_ns / 1000000);
    write_decimal(each, sizeof each - 1, region_ns * 1000 / (operations ? operations : 1));
    const char *checked = check == CHECK_NO ? "no" : problem ? "failed" : "ok";
    printf("%s: checked: %s, %" PRIu64 " %s,%s s,%s ns per operation, digest %016" PRIx64 "\n",
           program->name, checked, operations, operation, seconds, each, digest);
    if (problem) fprintf(stderr, "%s: the check failed: %s.\n", program->name, problem);
    return problem != NULL;
}

#endif
