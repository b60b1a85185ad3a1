// Dependent random reads of one block from malloc: the access pattern that larger pages help most,
// in memory that malloc's own settings affect.
//
//   random_reads [--block SIZE] [--reads N] …     see --help
//
// Each word of the block is a number made of its place; the next place is drawn from the last
// number, so that no two reads overlap. The check draws all places again without the block.

#include "common.h"

static uint64_t block_bytes = 128 << 20, reads = 4000000;

static const struct option options[] = {
    {"block", SIZE, &block_bytes, 4096, UINT64_C(1) << 44, NULL, "bytes of the block"},
    {"reads", COUNT, &reads, 1, 1000000 * G, NULL, "how many reads"},
};

static uint64_t content(uint64_t start, uint64_t place) {
    return random_at(start, place);
}

int main(int argc, char **argv) {
    READ_OPTIONS("random_reads", "dependent random reads of a block of malloc",
                 "--block 1GiB --reads 20M\n--block 16MiB --reads 1M --huge always");
    uint64_t words = block_bytes / sizeof(uint64_t), start = random_start(0);
    uint64_t *block = malloc(block_bytes);
    if (!block) {
        fprintf(stderr, "random_reads: no memory for the block: %s.\n", strerror(errno));
        return 1;
    }
    // malloc's blocks begin behind a header; advice is for whole pages.
    if (huge != HUGE_DEFAULT) {
        uintptr_t first = ((uintptr_t)block + 4095) & ~(uintptr_t)4095;
        uintptr_t end = ((uintptr_t)block + block_bytes) & ~(uintptr_t)4095;
        int advice = huge == HUGE_ALWAYS ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
        if (first < end && madvise((void *)first, end - first, advice) && huge == HUGE_ALWAYS) {
            fprintf(stderr, "random_reads: --huge always: the kernel refuses huge pages: %s.\n",
                    strerror(errno));
            return 1;
        }
    }
    for (uint64_t i = 0; i < words; i++) block[i] = content(start, i);

    region_begins();
    uint64_t digest = 0, place = 0;
    for (uint64_t i = 0; i < reads; i++) {
        uint64_t number = block[place];
        digest = digest * 3 + number;
        place = below(mix(number + i), words);
    }
    region_ends();

    if (broken == 1) digest ^= 1;
    const char *problem = NULL;
    if (check == CHECK_YES) {
        uint64_t expected = 0;
        place = 0;
        for (uint64_t i = 0; i < reads; i++) {
            uint64_t number = content(start, place);
            expected = expected * 3 + number;
            place = below(mix(number + i), words);
        }
        if (expected != digest) problem = "the reads did not find what was written";
    }
    return report(reads, "reads", digest, problem);
}
