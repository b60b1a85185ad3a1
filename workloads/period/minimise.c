// Minimises a sum of products, as `espresso` of the SPEC suite of 1989 does. Common to both programs: a
// cover is an array of cubes in two bits a variable; the complement comes from a recursion over
// cofactors that allocates and frees small covers; then cubes are expanded against the complement,
// covered ones dropped, and what is left reduced and expanded again. Covers of some hundred cubes, a
// working set of some 170 KB, of which the parts in use at once are small and apart. Written for this
// purpose.
//
//   minimise [VARIABLES [CUBES [FUNCTIONS]]]

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 2, MOST = 62 };  // two bits a variable: 01 is 0, 10 is 1, 11 either

struct cube { uint64_t part[WORDS]; };
struct cover { unsigned count, room; struct cube *cubes; };

static unsigned variables;
static uint64_t random_state = 1;

static uint64_t random_next(void) {
    uint64_t x = random_state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static unsigned get(const struct cube *cube, unsigned v) {
    return cube->part[v / 32] >> v % 32 * 2 & 3;
}
static void put(struct cube *cube, unsigned v, unsigned value) {
    uint64_t *word = &cube->part[v / 32];
    *word = (*word & ~(3ull << v % 32 * 2)) | (uint64_t)value << v % 32 * 2;
}

static struct cube everything(void) {
    struct cube all = {{0}};
    for (unsigned v = 0; v < variables; v++) put(&all, v, 3);
    return all;
}

static int covers(const struct cube *large, const struct cube *small) {
    for (unsigned w = 0; w < WORDS; w++)
        if (small->part[w] & ~large->part[w]) return 0;
    return 1;
}

// The number of variables in which two cubes have nothing in common.
static unsigned distance(const struct cube *a, const struct cube *b) {
    unsigned apart = 0;
    for (unsigned w = 0; w < WORDS; w++) {
        uint64_t common = a->part[w] & b->part[w], in_use = (a->part[w] | a->part[w] >> 1)
            & 0x5555555555555555u;
        apart += (unsigned)__builtin_popcountll(in_use & ~(common | common >> 1));
    }
    return apart;
}

static void *checked(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "minimise: no memory.\n");
    exit(1);
}

static struct cover new_cover(unsigned room) {
    room = room ? room : 1;
    return (struct cover){0, room, checked(malloc(room * sizeof(struct cube)))};
}

static void add(struct cover *to, struct cube one) {
    if (to->count == to->room)
        to->cubes = checked(realloc(to->cubes, (to->room *= 2) * sizeof one));
    to->cubes[to->count++] = one;
}

static struct cover cofactor(const struct cover *cover, unsigned v, unsigned value) {
    struct cover made = new_cover(cover->count);
    for (unsigned i = 0; i < cover->count; i++)
        if (get(&cover->cubes[i], v) & value) {
            add(&made, cover->cubes[i]);
            put(&made.cubes[made.count - 1], v, 3);
        }
    return made;
}

// The variable that most cubes restrict; `variables` if none does.
static unsigned binate(const struct cover *cover) {
    unsigned counts[MOST] = {0}, best = variables, most = 0;
    for (unsigned i = 0; i < cover->count; i++)
        for (unsigned v = 0; v < variables; v++) counts[v] += get(&cover->cubes[i], v) != 3;
    for (unsigned v = 0; v < variables; v++)
        if (counts[v] > most) most = counts[v], best = v;
    return best;
}

static void drop_covered(struct cover *cover) {
    unsigned kept = 0;
    for (unsigned i = 0; i < cover->count; i++) {
        int is_covered = 0;
        for (unsigned j = 0; j < cover->count && !is_covered; j++)
            is_covered = i != j && covers(&cover->cubes[j], &cover->cubes[i])
                && (j < i || !covers(&cover->cubes[i], &cover->cubes[j]));
        if (!is_covered) cover->cubes[kept++] = cover->cubes[i];
    }
    cover->count = kept;
}

static struct cover complement(const struct cover *cover) {
    struct cover made = new_cover(4);
    unsigned v = binate(cover);
    if (!cover->count) add(&made, everything());
    if (v == variables) return made;
    for (unsigned value = 1; value <= 2; value++) {
        struct cover part = cofactor(cover, v, value), inverse = complement(&part);
        for (unsigned i = 0; i < inverse.count; i++) {
            put(&inverse.cubes[i], v, value);
            unsigned j = 0;
            // A cube that is in both halves is one cube of the whole.
            for (; value == 2 && j < made.count; j++) {
                struct cube both = inverse.cubes[i];
                put(&both, v, 1);
                if (!memcmp(&both, &made.cubes[j], sizeof both)) {
                    put(&made.cubes[j], v, 3);
                    break;
                }
            }
            if (value == 1 || j == made.count) add(&made, inverse.cubes[i]);
        }
        free(part.cubes);
        free(inverse.cubes);
    }
    return made;
}

// Each cube is freed of every variable without which it still meets no cube of `off`.
static void expand(struct cover *on, const struct cover *off, unsigned from) {
    for (unsigned i = 0; i < on->count; i++)
        for (unsigned step = 0; step < variables; step++) {
            unsigned v = (from + step) % variables;
            struct cube larger = on->cubes[i];
            if (get(&larger, v) == 3) continue;
            put(&larger, v, 3);
            unsigned j = 0;
            while (j < off->count && distance(&larger, &off->cubes[j])) j++;
            if (j == off->count) on->cubes[i] = larger;
        }
    drop_covered(on);
}

static int is_tautology(const struct cover *cover) {
    unsigned v = binate(cover);
    if (v == variables) return cover->count > 0;
    for (unsigned value = 1; value <= 2; value++) {
        struct cover part = cofactor(cover, v, value);
        int is = is_tautology(&part);
        free(part.cubes);
        if (!is) return 0;
    }
    return 1;
}

// The cofactor of the other cubes with respect to cube `left_out`.
static struct cover others(const struct cover *cover, unsigned left_out) {
    struct cover made = new_cover(cover->count);
    const struct cube *within = &cover->cubes[left_out];
    for (unsigned i = 0; i < cover->count; i++) {
        if (i == left_out || distance(&cover->cubes[i], within)) continue;
        struct cube seen = cover->cubes[i];
        for (unsigned v = 0; v < variables; v++)
            if (get(within, v) != 3) put(&seen, v, 3);
        add(&made, seen);
    }
    return made;
}

static void irredundant(struct cover *cover) {
    for (unsigned i = cover->count; i-- > 0;) {
        struct cover rest = others(cover, i);
        if (is_tautology(&rest)) cover->cubes[i] = cover->cubes[--cover->count];
        free(rest.cubes);
    }
}

// Each cube gives up the half of a variable that the others cover.
static void reduce(struct cover *cover) {
    for (unsigned i = 0; i < cover->count; i++)
        for (unsigned v = 0; v < variables; v++) {
            if (get(&cover->cubes[i], v) != 3) continue;
            for (unsigned value = 1; value <= 2; value++) {
                struct cube whole = cover->cubes[i];
                put(&cover->cubes[i], v, value);
                struct cover rest = others(cover, i);
                int is = is_tautology(&rest);
                free(rest.cubes);
                cover->cubes[i] = whole;
                if (is) {
                    put(&cover->cubes[i], v, 3 - value);
                    break;
                }
            }
        }
}

int main(int argc, char **argv) {
    variables = argc > 1 ? (unsigned)atoi(argv[1]) : 8;
    unsigned cubes = argc > 2 ? (unsigned)atoi(argv[2]) : 60;
    unsigned functions = argc > 3 ? (unsigned)atoi(argv[3]) : 2, before = 0, after = 0;
    if (variables < 1 || variables > MOST) return 2;
    for (unsigned f = 0; f < functions; f++) {
        struct cover on = new_cover(cubes);
        for (unsigned i = 0; i < cubes; i++) {
            struct cube one = everything();
            for (unsigned v = 0; v < variables; v++) {
                unsigned chosen = (unsigned)(random_next() >> 40) % 8;
                put(&one, v, chosen < 3 ? 1 : chosen < 6 ? 2 : 3);
            }
            add(&on, one);
        }
        struct cover off = complement(&on);
        before += on.count;
        expand(&on, &off, 0);
        irredundant(&on);
        for (unsigned round = 1, last = 0; last != on.count && round < 4; round++) {
            last = on.count;
            reduce(&on);
            expand(&on, &off, round * 5);
            irredundant(&on);
        }
        after += on.count;
        free(on.cubes);
        free(off.cubes);
    }
    printf("minimise: %u cubes became %u\n", before, after);
    return 0;
}
