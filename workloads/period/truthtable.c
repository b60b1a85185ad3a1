// Turns Boolean equations into the sorted truth table of their products, as `eqntott` of the SPEC suite
// of 1989 does. Common to both programs: a product is an array of shorts from malloc, one for
// each input; nearly all time goes into comparing two of them, element by element, inside a quicksort
// of pointers; then equal ones are merged. Some 750 KB of products, read in an order that the sort makes
// random. Written for this purpose.
//
//   truthtable [PRODUCTS [INPUTS [ROUNDS]]]

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct product { short *in; short out; };

static int inputs;
static uint64_t random_state = 1;

static uint64_t random_next(void) {
    uint64_t x = random_state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static int compare(const struct product *a, const struct product *b) {
    for (int i = 0; i < inputs; i++) {
        // 2 is "either", and comes last as it is the largest.
        int left = a->in[i], right = b->in[i];
        if (left != right) return left < right ? -1 : 1;
    }
    return a->out - b->out;
}

static void sort(struct product **table, long count) {
    while (count > 1) {
        struct product *middle = table[count / 2];
        long low = 0, high = count - 1;
        while (low <= high) {
            while (compare(table[low], middle) < 0) low++;
            while (compare(table[high], middle) > 0) high--;
            if (low > high) break;
            struct product *kept = table[low];
            table[low++] = table[high];
            table[high--] = kept;
        }
        if (high + 1 < count - low) {
            sort(table, high + 1);
            table += low;
            count -= low;
        } else {
            sort(table + low, count - low);
            count = high + 1;
        }
    }
}

static void *checked(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "truthtable: no memory.\n");
    exit(1);
}

int main(int argc, char **argv) {
    long count = argc > 1 ? atol(argv[1]) : 6000;
    inputs = argc > 2 ? atoi(argv[2]) : 42;
    int rounds = argc > 3 ? atoi(argv[3]) : 1;
    long merged = 0;
    struct product **table = checked(malloc((size_t)count * sizeof *table));
    for (long i = 0; i < count; i++) {
        table[i] = checked(malloc(sizeof **table));
        table[i]->in = checked(malloc((size_t)inputs * sizeof(short)));
    }
    for (int round = 0; round < rounds; round++) {
        for (long i = 0; i < count; i++) {
            // Equations share long heads, and differ far behind.
            uint64_t head = random_next() % 16, tail = random_next();
            for (int k = 0; k < inputs; k++)
                table[i]->in[k] = (short)(k < inputs * 3 / 4 ? (head >> k % 4 & 1) + (k % 7 == 0)
                                                             : (int)(tail >> k % 32 * 2 & 3) % 3);
            table[i]->out = (short)(tail >> 62);
        }
        sort(table, count);
        long kept = 0;
        for (long i = 0; i < count; i++)
            if (kept == 0 || compare(table[kept - 1], table[i])) {
                struct product *other = table[kept];
                table[kept++] = table[i];
                table[i] = other;
            }
        merged += count - kept;
    }
    printf("truthtable: %ld of %ld products merged\n", merged, count * rounds);
    return 0;
}
