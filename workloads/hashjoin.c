// Joins two relations of 16-byte tuples by a hash table: build from the smaller, probe with the
// larger, each probe a random access to the table. With --partition-bits both are first split by
// their keys into parts whose tables fit in a cache (a radix join: Boncz, Manegold and Kersten,
// "Database architecture optimized for the new bottleneck: memory access", VLDB 1999); with more
// parts than a TLB has entries, the splitting itself misses.
//
//   hashjoin [--build N] [--probe N] [--hits N] [--partition-bits N] …      see --help

#include "common.h"

struct tuple {
    uint64_t key, payload;
};

static uint64_t build = 1000000, probe = 4000000, hits = 100, partition_bits = 0;

static const struct option options[] = {
    {"build", COUNT, &build, 1, 4 * G, NULL, "tuples of the relation that is hashed"},
    {"probe", COUNT, &probe, 1, 1000 * G, NULL, "tuples of the relation that looks"},
    {"hits", COUNT, &hits, 1, 100, NULL, "of a hundred tuples that look, how many find one"},
    {"partition-bits", COUNT, &partition_bits, 0, 20, NULL,
     "split both relations into 2^bits parts first; with 0 they stay whole"},
};

static uint64_t key_start, payload_start, probe_start;

// The tuples in closed form, which the check uses: keys differ, since mix is a bijection.
static struct tuple built(uint64_t index) {
    return (struct tuple){mix(key_start + index), mix(payload_start + index)};
}

// The index of the tuple that the other relation's `index`-th looks for; there is none from `build`
// on.
static uint64_t looked_for(uint64_t index) {
    return below(random_at(probe_start, index), build * 100 / hits);
}

static uint64_t hash(uint64_t key) {
    return key * 0x9e3779b97f4a7c15u;
}

// Splits tuples by the highest bits of their hashes; part p has those from first[p] to first[p +
// 1].
static void split(const struct tuple *tuples, uint64_t count, uint64_t *first, struct tuple *to) {
    uint64_t parts = UINT64_C(1) << partition_bits, shift = 64 - partition_bits, sum = 0;
    uint64_t *at = first + 1;  // after the last turn each lies at its part's end
    for (uint64_t t = 0; t < count; t++) at[hash(tuples[t].key) >> shift]++;
    for (uint64_t p = 0; p < parts; p++) {
        uint64_t here = at[p];
        at[p] = sum;
        sum += here;
    }
    for (uint64_t t = 0; t < count; t++) to[at[hash(tuples[t].key) >> shift]++] = tuples[t];
}

// Room for a relation's parts. It is touched before the region of interest, which is not to measure
// how fast the kernel clears pages.
static struct tuple *room(uint64_t count) {
    struct tuple *tuples = big("the parts", count, sizeof *tuples);
    return memset(tuples, 0xff, count * sizeof *tuples);
}

struct joined {
    uint64_t count, sum;
};

// Joins two parts by chains: heads[h] and next[t] name a tuple, counted from 1.
static void join(const struct tuple *inner, uint64_t inner_count, const struct tuple *outer,
                 uint64_t outer_count, uint32_t *heads, uint32_t *next, struct joined *joined) {
    unsigned bits = 1;
    while (UINT64_C(1) << bits < inner_count) bits++;
    memset(heads, 0, sizeof *heads << bits);
    // The highest bits are the same within a part.
    for (uint64_t t = 0; t < inner_count; t++) {
        uint64_t h = hash(inner[t].key) << partition_bits >> (64 - bits);
        next[t] = heads[h];
        heads[h] = (uint32_t)t + 1;
    }
    for (uint64_t t = 0; t < outer_count; t++) {
        uint64_t h = hash(outer[t].key) << partition_bits >> (64 - bits);
        for (uint32_t i = heads[h]; i; i = next[i - 1])
            if (inner[i - 1].key == outer[t].key) {
                joined->count++;
                joined->sum += inner[i - 1].payload ^ outer[t].payload;
            }
    }
}

int main(int argc, char **argv) {
    READ_OPTIONS("hashjoin", "joins two relations by a hash table",
                 "--build 4M --probe 16M --partition-bits 12 --huge always\n"
                 "--build 100k --probe 400k --hits 50 --seed 7");
    key_start = random_start(0);
    payload_start = random_start(1);
    probe_start = random_start(2);
    struct tuple *inner = big("the smaller relation", build, sizeof *inner);
    struct tuple *outer = big("the larger relation", probe, sizeof *outer);
    for (uint64_t t = 0; t < build; t++) inner[t] = built(t);
    for (uint64_t t = 0; t < probe; t++) outer[t] = (struct tuple){built(looked_for(t)).key, t};
    uint64_t parts = UINT64_C(1) << partition_bits, heads_count = 2;
    while (heads_count < build) heads_count *= 2;
    uint32_t *heads = big("the table", heads_count, sizeof *heads);
    uint32_t *next = big("the chains", build, sizeof *next);
    uint64_t *inner_first = big("the parts", parts + 1, sizeof *inner_first);
    uint64_t *outer_first = big("the parts", parts + 1, sizeof *outer_first);
    struct tuple *inner_parts = inner, *outer_parts = outer;
    if (partition_bits) {
        inner_parts = room(build);
        outer_parts = room(probe);
    } else {
        inner_first[1] = build;
        outer_first[1] = probe;
    }
    memset(heads, 0xff, heads_count * sizeof *heads);
    memset(next, 0xff, build * sizeof *next);
    struct joined joined = {0, 0};

    region_begins();
    if (partition_bits) {
        split(inner, build, inner_first, inner_parts);
        split(outer, probe, outer_first, outer_parts);
    }
    for (uint64_t p = 0; p < parts; p++)
        join(inner_parts + inner_first[p], inner_first[p + 1] - inner_first[p],
             outer_parts + outer_first[p], outer_first[p + 1] - outer_first[p], heads, next,
             &joined);
    region_ends();

    joined.count -= broken == 1;
    joined.sum -= broken == 2;
    const char *problem = NULL;
    if (check == CHECK_YES) {
        struct joined expected = {0, 0};
        for (uint64_t t = 0; t < probe; t++)
            if (looked_for(t) < build) {
                expected.count++;
                expected.sum += built(looked_for(t)).payload ^ t;
            }
        if (joined.count != expected.count) problem = "the join has not as many tuples as it should";
        else if (joined.sum != expected.sum) problem = "the join's tuples are not what they should be";
    }
    return report(build + probe, "tuples", joined.sum, problem);
}
