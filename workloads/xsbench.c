// Look-ups of macroscopic neutron cross-sections, as in XSBench (Tramm et al., "XSBench – the
// development and verification of a performance abstraction for Monte Carlo reactor analysis",
// PHYSOR 2014) with its unionised energy grid: a binary search of all energies, a row of indices,
// and two neighbouring grid points of each nuclide of a material.
//
//   xsbench [--nuclides N] [--points N] [--lookups N] …      see --help
//
// The sizes and frequencies of the twelve materials are XSBench's; which nuclides are in them, and
// all energies and cross-sections, are random.

#include "common.h"

enum { MATERIALS = 12, SECTIONS = 5, KEPT = 1000 };

struct point {
    double energy, section[SECTIONS];  // total, elastic, absorption, fission, nu-fission
};

struct material {
    uint32_t count, *nuclide;
    double *density;
};

static uint64_t nuclides = 68, points = 4096, lookups = 400000;

static const struct option options[] = {
    {"nuclides", COUNT, &nuclides, 2, 4096, NULL, "nuclides; XSBench has 68 or 355"},
    {"points", COUNT, &points, 2, 10000000, NULL, "grid points of each nuclide; XSBench has 11303"},
    {"lookups", COUNT, &lookups, 1, 1000000 * G, NULL, "cross-sections to look up"},
};

static struct point *grid;  // by nuclide, ascending by energy
static double *energies;    // of all nuclides together, ascending
static uint32_t *rows;      // for each energy, each nuclide's last point not above it
static struct material materials[MATERIALS];
static uint64_t energy_count;

static int by_energy(const void *a, const void *b) {
    double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static void make_grids(void) {
    uint64_t random = random_start(0);
    energy_count = nuclides * points;
    grid = big("the nuclides' grids", energy_count, sizeof *grid);
    energies = big("the energies", energy_count, sizeof *energies);
    rows = big("the indices", energy_count * nuclides, sizeof *rows);
    for (uint64_t p = 0; p < energy_count; p++) {
        grid[p].energy = unit(random_next(&random));
        for (int s = 0; s < SECTIONS; s++) grid[p].section[s] = unit(random_next(&random));
    }
    for (uint64_t n = 0; n < nuclides; n++)
        qsort(grid + n * points, points, sizeof *grid, by_energy);
    for (uint64_t p = 0; p < energy_count; p++) energies[p] = grid[p].energy;
    qsort(energies, energy_count, sizeof *energies, by_energy);

    // The last point has no neighbour above it, so the last index is of the one before.
    uint32_t *at = big("the places", nuclides, sizeof *at);
    for (uint64_t e = 0; e < energy_count; e++)
        for (uint64_t n = 0; n < nuclides; n++) {
            const struct point *own = grid + n * points;
            while (at[n] + 2 < points && own[at[n] + 1].energy <= energies[e]) at[n]++;
            rows[e * nuclides + n] = at[n];
        }
}

static void make_materials(void) {
    // Fuel first: 34 of XSBench's 68 nuclides, 321 of its 355.
    uint64_t counts[MATERIALS] = {0, 5, 4, 4, 27, 21, 21, 21, 21, 21, 9, 9};
    counts[0] = nuclides < 355 ? nuclides / 2 : nuclides - 34;
    uint64_t random = random_start(1);
    uint32_t *all = big("the nuclides", nuclides, sizeof *all);
    for (uint32_t n = 0; n < nuclides; n++) all[n] = n;
    for (int m = 0; m < MATERIALS; m++) {
        uint64_t count = counts[m] < nuclides ? counts[m] : nuclides;
        materials[m].count = (uint32_t)count;
        materials[m].nuclide = big("a material", count, sizeof(uint32_t));
        materials[m].density = big("a material", count, sizeof(double));
        for (uint64_t i = 0; i < count; i++) {
            uint64_t other = i + below(random_next(&random), nuclides - i);
            uint32_t chosen = all[other];
            all[other] = all[i];
            all[i] = chosen;
            materials[m].nuclide[i] = chosen;
            materials[m].density[i] = unit(random_next(&random));
        }
    }
}

// The material and energy of look-up number `lookup`.
static const struct material *asked(uint64_t start, uint64_t lookup, double *energy) {
    // How often each material is hit, in thousandths: fuel, cladding, cold and hot water, …
    static const unsigned often[MATERIALS] = {140, 52, 275, 134, 154, 64, 66, 55, 8, 15, 25, 12};
    uint64_t random = random_at(start, lookup);
    *energy = unit(random);
    unsigned left = (unsigned)below(mix(random), 1000), m = 0;
    while (left >= often[m]) left -= often[m++];
    return &materials[m];
}

static void add_between(const struct point *low, double energy, double density,
                        double sums[SECTIONS]) {
    const struct point *high = low + 1;
    double share = (high->energy - energy) / (high->energy - low->energy);
    for (int s = 0; s < SECTIONS; s++)
        sums[s] += density * (high->section[s] - share * (high->section[s] - low->section[s]));
}

static void look_up(const struct material *material, double energy, double sums[SECTIONS]) {
    uint64_t low = 0, count = energy_count;  // the last energy not above lies among these
    while (count > 1) {
        uint64_t half = count / 2;
        if (energies[low + half] <= energy) low += half, count -= half;
        else count = half;
    }
    const uint32_t *row = rows + low * nuclides;
    for (int s = 0; s < SECTIONS; s++) sums[s] = 0;
    for (uint32_t i = 0; i < material->count; i++) {
        uint64_t n = material->nuclide[i];
        add_between(&grid[n * points + row[n]], energy, material->density[i], sums);
    }
}

// Looks up without energies and rows: in each nuclide's own grid, from its beginning.
static void look_up_directly(const struct material *material, double energy,
                             double sums[SECTIONS]) {
    for (int s = 0; s < SECTIONS; s++) sums[s] = 0;
    for (uint32_t i = 0; i < material->count; i++) {
        const struct point *own = grid + material->nuclide[i] * points;
        uint64_t p = 0;
        while (p + 2 < points && own[p + 1].energy <= energy) p++;
        add_between(&own[p], energy, material->density[i], sums);
    }
}

int main(int argc, char **argv) {
    READ_OPTIONS("xsbench", "look-ups of neutron cross-sections on a unionised energy grid",
                 "--points 11303 --lookups 2M --huge always\n"
                 "--nuclides 12 --points 500 --lookups 10k --seed 7");
    make_grids();
    make_materials();
    // The sums of one in `every` look-ups are kept for the check.
    uint64_t every = lookups > KEPT ? lookups / KEPT : 1, next_kept = 0, start = random_start(2);
    double(*kept)[SECTIONS] = big("the check", KEPT + 1, sizeof *kept), sums[SECTIONS], energy;
    uint64_t digest = 0, kept_count = 0;

    region_begins();
    for (uint64_t l = 0; l < lookups; l++) {
        const struct material *material = asked(start, l, &energy);
        look_up(material, energy, sums);
        unsigned largest = 0;
        for (unsigned s = 1; s < SECTIONS; s++)
            if (sums[s] > sums[largest]) largest = s;
        digest += largest + 1;
        if (l == next_kept && kept_count < KEPT) {
            memcpy(kept[kept_count++], sums, sizeof sums);
            next_kept += every;
        }
    }
    region_ends();

    const char *problem = NULL;
    if (broken == 1) kept[kept_count / 2][0] += 1;
    if (check == CHECK_YES)
        for (uint64_t k = 0; k < kept_count; k++) {
            const struct material *material = asked(start, k * every, &energy);
            look_up_directly(material, energy, sums);
            if (memcmp(sums, kept[k], sizeof sums))
                problem = "a look-up differs from that by each nuclide's own grid";
        }
    return report(lookups, "look-ups", digest, problem);
}
