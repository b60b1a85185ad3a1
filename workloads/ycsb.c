// A store of records under a hash index, asked as YCSB asks (Cooper et al., "Benchmarking cloud
// serving systems with YCSB", SoCC 2010): some records are asked for far more often than others,
// and the popular ones lie anywhere. Workloads A (half reads, half updates), B (95% reads), C (reads
// only) and F (half reads, half read-modify-writes); range scans, as in E, are btree's.
//
//   ycsb [--workload A|B|C|F] [--records N] [--record-bytes SIZE] [--operations N] …   see --help
//
// Requests are drawn beforehand: the region of interest is the store's own work. Every word
// that a read returns goes into a digest, and the check makes the same digest without the store,
// from what was written last.

#include "common.h"

#include <math.h>

static uint64_t workload = 0, records = 100000, record_bytes = 1000, operations = 1000000,
                theta = 990;

static const struct option options[] = {
    {"workload", CHOICE, &workload, 0, 0, "A|B|C|F", "which mix of operations"},
    {"records", COUNT, &records, 2, 4 * G, NULL, "records in the store"},
    {"record-bytes", SIZE, &record_bytes, 16, 1 << 20, NULL,
     "bytes of a record, rounded up to a multiple of 8"},
    {"operations", COUNT, &operations, 1, 1000 * G, NULL, "reads and writes"},
    {"theta", THOUSANDTHS, &theta, 0, 999, NULL,
     "how unequal the records are (Zipf): with 0 all are alike"},
};

enum { READ, UPDATE, MODIFY };

// An operation as it is kept: the record's number, and the kind.
struct operation {
    uint64_t record : 62, kind : 2;
};

// The index: open addressing, at most half full; key 0 is a free slot.
struct slot {
    uint64_t key, record;
};

static struct slot *slots;
static uint64_t slot_mask, *store, record_words, key_start;

// A key of its own for each record: mix is a bijection, and gives 0 only for 0.
static uint64_t key_of(uint64_t record) {
    return mix(key_start + record);
}

// Word `word` of a record that was written `version` times after it was loaded.
static uint64_t content(uint64_t key, uint64_t version, uint64_t word) {
    return (key ^ version * 0x9e3779b97f4a7c15u) * (2 * word + 1);
}

static uint64_t *find(uint64_t key) {
    for (uint64_t s = mix(key) & slot_mask;; s = (s + 1) & slot_mask) {
        if (slots[s].key == key) return store + slots[s].record * record_words;
        if (slots[s].key == 0) return NULL;
    }
}

static void load(void) {
    uint64_t slot_count = 2;
    while (slot_count < records * 2) slot_count *= 2;
    slot_mask = slot_count - 1;
    slots = big("the index", slot_count, sizeof *slots);
    store = big("the records", records * record_words, sizeof *store);
    for (uint64_t r = 0; r < records; r++) {
        uint64_t key = key_of(r), s = mix(key) & slot_mask;
        while (slots[s].key) s = (s + 1) & slot_mask;
        slots[s] = (struct slot){key, r};
        for (uint64_t w = 0; w < record_words; w++) store[r * record_words + w] = content(key, 0, w);
    }
}

// Zipf's law by Gray et al., "Quickly generating billion-record synthetic databases" (SIGMOD 1994),
// as in YCSB; then, as in its scrambled generator, each rank is hashed to a record.
static struct operation *draw(void) {
    double exponent = (double)theta / 1000, n = (double)records, sum = 0;
    for (uint64_t r = 1; r <= records; r++) sum += pow(1 / (double)r, exponent);
    double two = 1 + pow(0.5, exponent), alpha = 1 / (1 - exponent);
    double eta = (1 - pow(2 / n, 1 - exponent)) / (1 - two / sum);
    // Reads among a hundred operations; the others are of one kind.
    static const unsigned reads[] = {50, 95, 100, 50}, others[] = {UPDATE, UPDATE, READ, MODIFY};
    uint64_t random = random_start(1), scramble = random_start(2);
    struct operation *drawn = big("the operations", operations, sizeof *drawn);
    for (uint64_t o = 0; o < operations; o++) {
        double u = unit(random_next(&random)), uz = u * sum;
        uint64_t rank = uz < 1 ? 0 : uz < two ? 1 : (uint64_t)(n * pow(eta * u - eta + 1, alpha));
        drawn[o].record = below(random_at(scramble, rank < records ? rank : records - 1), records);
        drawn[o].kind = below(random_next(&random), 100) < reads[workload] ? READ : others[workload];
    }
    return drawn;
}

static uint64_t digested(uint64_t digest, uint64_t word) {
    return digest * 3 + word;
}

// Runs the operations; returns the number of keys that were not found.
static uint64_t run(const struct operation *drawn, uint64_t *digest) {
    uint64_t lost = 0, version = 0;
    for (uint64_t o = 0; o < operations; o++) {
        uint64_t key = key_of(drawn[o].record), *record = find(key);
        if (!record) {
            lost++;
            continue;
        }
        if (drawn[o].kind != UPDATE)
            for (uint64_t w = 0; w < record_words; w++) *digest = digested(*digest, record[w]);
        if (drawn[o].kind == READ) continue;
        version++;
        for (uint64_t w = 0; w < record_words; w++) record[w] = content(key, version, w);
    }
    return lost;
}

// Repeats the operations on a list of versions, one for each record, and compares the store with it
// at the end.
static const char *verify(const struct operation *drawn, uint64_t expected) {
    uint64_t *versions = big("the check", records, sizeof *versions), digest = 0, version = 0;
    for (uint64_t o = 0; o < operations; o++) {
        uint64_t r = drawn[o].record, key = key_of(r);
        if (drawn[o].kind != UPDATE)
            for (uint64_t w = 0; w < record_words; w++)
                digest = digested(digest, content(key, versions[r], w));
        if (drawn[o].kind != READ) versions[r] = ++version;
    }
    if (digest != expected) return "a read did not return what was written last";
    for (uint64_t r = 0; r < records; r++) {
        uint64_t key = key_of(r), *record = find(key);
        if (!record) return "a key is not in the index any more";
        for (uint64_t w = 0; w < record_words; w++)
            if (record[w] != content(key, versions[r], w)) return "a record is not as last written";
    }
    return NULL;
}

int main(int argc, char **argv) {
    READ_OPTIONS("ycsb", "a store of records under a hash index, asked as YCSB asks",
                 "--workload C --records 1M --operations 5M --huge always\n"
                 "--workload B --records 10k --record-bytes 100 --theta 0.5");
    record_words = (record_bytes + 7) / 8;
    // Keys are made of the numbers from here on, of which none is 0.
    key_start = random_start(0) >> 1 | 1;
    load();
    struct operation *drawn = draw();
    uint64_t digest = 0;

    region_begins();
    uint64_t lost = run(drawn, &digest);
    region_ends();

    if (broken == 1) digest ^= 1;
    if (broken == 2) store[records / 2 * record_words] ^= 1;
    if (broken == 3) memset(slots, 0, (slot_mask + 1) * sizeof *slots);
    const char *problem = lost ? "a key was not found" : NULL;
    if (check == CHECK_YES && !problem) problem = verify(drawn, digest);
    return report(operations, "operations", digest, problem);
}
