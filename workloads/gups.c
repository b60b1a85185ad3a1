// Random updates of a table (the RandomAccess kernel of HPC Challenge, "GUPS"): a load and a store
// at an unpredictable place each time, the worst that a program can ask of a TLB.
//
//   gups [--table SIZE] [--updates N] …      HPCC's rule, checked; see --help
//   gups TABLE_MIB UPDATES                   the bare loop that the benches measure: numbers by
//                                            xorshift, no start-up and no check
//
// HPCC's rule: the table's word i is i at first; 128 streams of random numbers, each a part of one
// sequence a(k+1) = x · a(k) modulo x^64 + x^2 + x + 1 over GF(2), take turns; each number is
// exclusive-ored to the word that its low bits name. The same updates again undo all of it.

#include "common.h"

enum { STREAMS = 128 };

static uint64_t table_bytes = 128 << 20, updates = 8000000;

static const struct option options[] = {
    {"table", SIZE_POWER, &table_bytes, 4096, UINT64_C(1) << 44, NULL, "bytes of the table"},
    {"updates", COUNT, &updates, 1, 1000000 * G, NULL,
     "how many updates, rounded up to a multiple of 128; HPCC makes four for each word of the "
     "table"},
};

static uint64_t times_x(uint64_t a) {
    return a << 1 ^ ((0 - (a >> 63)) & 7);
}

static uint64_t times(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    for (; b; b >>= 1, a = times_x(a))
        if (b & 1) product ^= a;
    return product;
}

static uint64_t power(uint64_t a, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, a = times(a, a))
        if (exponent & 1) result = times(result, a);
    return result;
}

// Where each stream begins. HPCC begins at 1, as seed 0 does; but low powers of x have few bits, so
// that the first updates prefer some pages: of 50,000 in a table of 1 MiB, a TLB of 64 entries hits
// 38% instead of 25%. Other seeds begin anywhere.
static void start(uint64_t streams[STREAMS]) {
    uint64_t first = seed ? power(2, mix(seed)) : 1;
    for (uint64_t s = 0; s < STREAMS; s++)
        streams[s] = times(first, power(2, updates / STREAMS * s));
}

static void update(uint64_t *table, uint64_t mask, uint64_t streams[STREAMS]) {
    for (uint64_t round = 0; round < updates / STREAMS; round++)
        for (int s = 0; s < STREAMS; s++) {
            streams[s] = times_x(streams[s]);
            table[streams[s] & mask] ^= streams[s];
        }
}

static int bare(size_t bytes, uint64_t bare_updates) {
    // mmap and not malloc: the table starts on a page and is a mapping of its own.
    uint64_t *table =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    size_t words = bytes / sizeof *table;
    uint64_t random = 88172645463325252u;
    for (uint64_t i = 0; i < bare_updates; i++) {
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

int main(int argc, char **argv) {
    if (argc == 3 && isdigit((unsigned char)*argv[1]))
        return bare(strtoull(argv[1], NULL, 0) << 20, strtoull(argv[2], NULL, 0));
    READ_OPTIONS("gups", "random updates of a table (HPC Challenge's RandomAccess)",
                 "--table 1GiB --updates 20M --huge always\n--table 16MiB --updates 1M --seed 7");
    updates = (updates + STREAMS - 1) / STREAMS * STREAMS;
    uint64_t words = table_bytes / sizeof(uint64_t), streams[STREAMS];
    uint64_t *table = big("the table", words, sizeof *table);
    for (uint64_t i = 0; i < words; i++) table[i] = i;
    start(streams);

    region_begins();
    update(table, words - 1, streams);
    region_ends();

    uint64_t digest = 0;
    for (uint64_t i = 0; i < words; i++) digest = digest * 3 + table[i];
    const char *problem = NULL;
    if (broken == 1) table[words / 2] ^= 1;
    if (check == CHECK_YES) {
        start(streams);
        update(table, words - 1, streams);
        for (uint64_t i = 0; i < words; i++)
            if (table[i] != i) problem = "the same updates again do not undo the first";
    }
    return report(updates, "updates", digest, problem);
}
