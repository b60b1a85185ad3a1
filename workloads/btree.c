// A B+-tree of 8-byte keys and values: inserts, look-ups and range scans at random keys, each a
// walk from the root over nodes at random places, so that the upper ones are hot and a leaf is
// cold.
//
//   btree [--keys N] [--inserts N] [--lookups N] [--scans N] [--scan-length N] [--node SIZE] …
//
// The first --keys keys are loaded before the region of interest. The check visits all nodes, and
// repeats every look-up and scan on a sorted array.

#include "common.h"

static uint64_t keys = 1500000, inserts = 100000, lookups = 500000, scans = 10000,
                scan_length = 100, node_bytes = 512;

static const struct option options[] = {
    {"keys", COUNT, &keys, 1, 1000 * G, NULL, "keys in the tree at first"},
    {"inserts", COUNT, &inserts, 0, 1000 * G, NULL, "keys to insert then"},
    {"lookups", COUNT, &lookups, 0, 1000 * G, NULL, "keys to look up then"},
    {"scans", COUNT, &scans, 0, 1000 * G, NULL, "scans to make then"},
    {"scan-length", COUNT, &scan_length, 1, 1000000, NULL, "keys of a scan"},
    {"node", SIZE_POWER, &node_bytes, 128, 64 << 10, NULL, "bytes of a node"},
};

// A node of `node_bytes`. A leaf has `count` keys in ascending order, each with its value. An inner
// node has `count` keys and count + 1 children: below child i lie the keys from keys[i - 1] to
// keys[i], without the latter.
struct node {
    uint32_t count, is_leaf;
    struct node *next;  // of a leaf: the leaf to its right
    uint64_t words[];   // `capacity` keys, then the values or children
};

static uint64_t capacity, key_start;
static struct node *root;

static uint64_t *values(struct node *node) {
    return node->words + capacity;
}

static struct node **children(struct node *node) {
    return (struct node **)(node->words + capacity);
}

static uint64_t key_of(uint64_t index) {
    return mix(key_start + index);
}

static uint64_t value_of(uint64_t key) {
    return key * 0x9e3779b97f4a7c15u;
}

// Nodes come from mappings of 4 MiB, as a tree that grows would ask for them.
static struct node *new_node(uint32_t is_leaf) {
    enum { CHUNK_BYTES = 4 << 20 };
    static char *chunk, *end;
    if (chunk == end) {
        chunk = big("the nodes", CHUNK_BYTES, 1);
        end = chunk + CHUNK_BYTES;
    }
    struct node *node = (struct node *)chunk;
    chunk += node_bytes;
    node->is_leaf = is_leaf;
    return node;
}

// The number of a node's keys that are not above `key`.
static uint64_t rank(const struct node *node, uint64_t key) {
    uint64_t low = 0, high = node->count;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (node->words[middle] <= key) low = middle + 1;
        else high = middle;
    }
    return low;
}

// Splits the full child `at` of a node that is not full.
static void split(struct node *parent, uint64_t at) {
    struct node *left = children(parent)[at], *right = new_node(left->is_leaf);
    uint64_t stay = capacity / 2, up = left->words[stay];
    // The key between two leaves is also the first of the right one; the key between inner nodes
    // moves up.
    uint64_t from = left->is_leaf ? stay : stay + 1, move = capacity - from;
    memcpy(right->words, left->words + from, move * sizeof(uint64_t));
    memcpy(values(right), values(left) + from, (move + !left->is_leaf) * sizeof(uint64_t));
    right->count = (uint32_t)move;
    left->count = (uint32_t)stay;
    if (left->is_leaf) {
        right->next = left->next;
        left->next = right;
    }
    uint64_t behind = parent->count - at;
    memmove(parent->words + at + 1, parent->words + at, behind * sizeof(uint64_t));
    memmove(children(parent) + at + 2, children(parent) + at + 1, behind * sizeof(struct node *));
    parent->words[at] = up;
    children(parent)[at + 1] = right;
    parent->count++;
}

// Full nodes are split on the way down, so that there is always room above.
static void insert(uint64_t key) {
    if (root->count == capacity) {
        struct node *above = new_node(0);
        children(above)[0] = root;
        root = above;
        split(root, 0);
    }
    struct node *node = root;
    while (!node->is_leaf) {
        uint64_t at = rank(node, key);
        if (children(node)[at]->count == capacity) {
            split(node, at);
            at += node->words[at] <= key;
        }
        node = children(node)[at];
    }
    uint64_t at = rank(node, key), behind = node->count - at;
    memmove(node->words + at + 1, node->words + at, behind * sizeof(uint64_t));
    memmove(values(node) + at + 1, values(node) + at, behind * sizeof(uint64_t));
    node->words[at] = key;
    values(node)[at] = value_of(key);
    node->count++;
}

// The leaf that a key belongs to, and its place there: `*at` keys of the leaf are below it.
static struct node *leaf_of(uint64_t key, uint64_t *at) {
    struct node *node = root;
    while (!node->is_leaf) node = children(node)[rank(node, key)];
    *at = rank(node, key);
    if (*at && node->words[*at - 1] == key) --*at;
    return node;
}

static uint64_t look_up(uint64_t key) {
    uint64_t at;
    struct node *leaf = leaf_of(key, &at);
    return at < leaf->count && leaf->words[at] == key ? values(leaf)[at] : 0;
}

// The sum of the values of `scan_length` keys, from `key` on.
static uint64_t scan(uint64_t key) {
    uint64_t at, sum = 0, left = scan_length;
    for (struct node *leaf = leaf_of(key, &at); leaf && left; leaf = leaf->next, at = 0)
        for (; at < leaf->count && left; at++, left--) sum += values(leaf)[at];
    return sum;
}

// The state of --check: a walk over all nodes in the order of their keys.
struct walk {
    uint64_t *sorted;     // the keys as they come
    uint64_t seen;        // how many have come
    uint64_t leaf_depth;  // 0 until the first leaf
    struct node *next;    // the leaf that the last one's chain names
};

static const char *check_node(struct node *node, uint64_t depth, uint64_t least, uint64_t most,
                              struct walk *walk) {
    if (node->count > capacity) return "a node has more keys than it holds";
    if (node != root && node->count < (capacity - 1) / 2) return "a node is less than half full";
    for (uint64_t k = 0; k < node->count; k++) {
        if (node->words[k] < least || node->words[k] > most)
            return "a key lies outside the bounds of the node above";
        if (k && node->words[k - 1] >= node->words[k]) return "a node's keys are out of order";
    }
    if (!node->is_leaf) {
        for (uint64_t c = 0; c <= node->count; c++) {
            const char *problem = check_node(children(node)[c], depth + 1,
                                             c ? node->words[c - 1] : least,
                                             c < node->count ? node->words[c] - 1 : most, walk);
            if (problem) return problem;
        }
        return NULL;
    }
    if (walk->leaf_depth && (walk->leaf_depth != depth || walk->next != node))
        return walk->next != node ? "the chain of leaves leaves one out" : "leaves differ in depth";
    walk->leaf_depth = depth;
    walk->next = node->next;
    for (uint64_t k = 0; k < node->count; k++) {
        if (walk->seen == keys + inserts) return "there are more keys than were inserted";
        if (values(node)[k] != value_of(node->words[k])) return "a value is not its key's";
        walk->sorted[walk->seen++] = node->words[k];
    }
    return NULL;
}

static int by_key(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return (left > right) - (left < right);
}

static const char *verify(uint64_t lookup_start, uint64_t scan_start, uint64_t looked_up,
                          uint64_t scanned) {
    uint64_t total = keys + inserts;
    struct walk walk = {.sorted = big("the check", total, sizeof *walk.sorted)};
    const char *problem = check_node(root, 1, 0, UINT64_MAX, &walk);
    if (problem) return problem;
    if (walk.next) return "the chain of leaves does not end";
    uint64_t *sorted = big("the check", total, sizeof *sorted);
    for (uint64_t k = 0; k < total; k++) sorted[k] = key_of(k);
    qsort(sorted, total, sizeof *sorted, by_key);
    if (walk.seen != total || memcmp(sorted, walk.sorted, total * sizeof *sorted))
        return "the tree's keys are not those that were inserted";
    for (uint64_t l = 0; l < lookups; l++)
        looked_up -= value_of(key_of(below(random_at(lookup_start, l), total)));
    if (looked_up) return "a look-up did not find its key's value";
    for (uint64_t s = 0; s < scans; s++) {
        uint64_t key = key_of(below(random_at(scan_start, s), total));
        const uint64_t *from = bsearch(&key, sorted, total, sizeof *sorted, by_key);
        for (uint64_t k = 0; k < scan_length && from + k < sorted + total; k++)
            scanned -= value_of(from[k]);
    }
    return scanned ? "a scan did not find the keys that follow" : NULL;
}

static void spoil(uint64_t *looked_up, uint64_t *scanned) {
    struct node *leaf = root;
    while (!leaf->is_leaf) leaf = children(leaf)[leaf->count / 2];
    if (broken == 1) ++*looked_up;
    if (broken == 2) ++*scanned;
    if (broken == 3) values(leaf)[0]++;
    if (broken == 4) leaf->words[1] = leaf->words[0];
    if (broken == 5) leaf->words[0] = 0;
    if (broken == 6) leaf->next = leaf->next->next;
    if (broken == 7) leaf->count = 1;
    if (broken == 8) leaf->words[1]--, values(leaf)[1] = value_of(leaf->words[1]);
}

int main(int argc, char **argv) {
    READ_OPTIONS("btree", "inserts, look-ups and range scans in a B+-tree",
                 "--keys 10M --lookups 5M --scans 0 --huge always\n"
                 "--keys 50k --inserts 5k --lookups 50k --scans 1k --node 4KiB --seed 7");
    capacity = (node_bytes - sizeof(struct node)) / sizeof(uint64_t) / 2;
    // A node has a child more than keys.
    capacity -= node_bytes < sizeof(struct node) + (2 * capacity + 1) * sizeof(uint64_t);
    key_start = random_start(0);
    root = new_node(1);
    for (uint64_t k = 0; k < keys; k++) insert(key_of(k));
    uint64_t total = keys + inserts, looked_up = 0, scanned = 0;
    uint64_t lookup_start = random_start(1), scan_start = random_start(2);

    region_begins();
    for (uint64_t k = keys; k < total; k++) insert(key_of(k));
    for (uint64_t l = 0; l < lookups; l++)
        looked_up += look_up(key_of(below(random_at(lookup_start, l), total)));
    for (uint64_t s = 0; s < scans; s++)
        scanned += scan(key_of(below(random_at(scan_start, s), total)));
    region_ends();

    if (broken) spoil(&looked_up, &scanned);
    const char *problem =
        check == CHECK_YES ? verify(lookup_start, scan_start, looked_up, scanned) : NULL;
    return report(inserts + lookups + scans, "operations", looked_up * 3 + scanned, problem);
}
