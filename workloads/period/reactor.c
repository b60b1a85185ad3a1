// Follows the state of a reactor in time, as `doduc` of the SPEC suite of 1989 does by Monte Carlo. What
// it shares with that program: many subroutines of some hundred instructions with a branch every few of
// them, called in turn and by chance, small tables of material properties that are searched and
// interpolated, and a working set of some 250 KB, half of it code. The physics is made up. Written for
// this purpose.
//
//   reactor [STEPS]

#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 60, POINTS = 64, MODELS = 40 };

static double temperature[CELLS], pressure[CELLS], density[CELLS], flux[CELLS], enthalpy[CELLS];
static double tables[MODELS][POINTS][2];  // 40 KiB of properties, a table for each model
static double history[MODELS][CELLS];
static unsigned long random_state = 1;

static double chance(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (double)(random_state >> 11) * 0x1p-53;
}

static double interpolate(double table[POINTS][2], double x) {
    int low = 0, high = POINTS - 1;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (table[middle][0] <= x) low = middle;
        else high = middle;
    }
    double width = table[high][0] - table[low][0];
    return table[low][1] + (table[high][1] - table[low][1]) * (x - table[low][0]) / width;
}

// A regime of a model: which formula holds depends on the state.
#define REGIME(k)                                                                                \
    if (x < 0.02 * k + shift) {                                                                  \
        if (y > 0.5 + 0.01 * k) { z += 0.3 * x * y / (1.0 + x * x); count += 1; }                 \
        else if (y < 0.2) { z -= 0.1 * (y + 0.01 * k) * x; count += 2; }                         \
        else { z = z * 0.97 + 0.02 * y; }                                                        \
        if (z > 2.0 + 0.05 * k) { z = 1.0 + 0.5 * (z - 1.0); w += z * 0.01; }                     \
        else if (z < -2.0) { z = -1.0; w -= 0.02; }                                              \
        x = x * 0.93 + 0.05 * w + 0.003 * k;                                                      \
    } else {                                                                                     \
        w = w * 0.9 + x * (0.1 + 0.002 * k);                                                      \
        x -= 0.011 * k * y;                                                                       \
        if (w > 1.5) w -= 0.7; else if (w < -1.5) w += 0.7;                                       \
    }
#define REGIMES                                                                                  \
    REGIME(1) REGIME(2) REGIME(3) REGIME(4) REGIME(5) REGIME(6) REGIME(7) REGIME(8) REGIME(9)      \
    REGIME(10) REGIME(11) REGIME(12)

#define MODEL(n)                                                                                 \
    static __attribute__((noinline)) int model##n(int cell) {                                    \
        const double shift = 0.013 * n;                                                          \
        double x = temperature[cell], y = pressure[cell], z = density[cell], w = flux[cell];     \
        int count = 0;                                                                           \
        w += 0.1 * interpolate(tables[n], x < 0 ? 0 : x > 0.99 ? 0.99 : x);                       \
        REGIMES                                                                                  \
        enthalpy[cell] = 0.5 * enthalpy[cell] + 0.1 * z;                                         \
        history[n][cell] = 0.9 * history[n][cell] + 0.1 * w;                                     \
        density[cell] = z * 0.9 + 0.05;                                                          \
        flux[cell] = w * 0.8 + 0.1 * chance();                                                   \
        return count;                                                                            \
    }
#define ALL(M)                                                                                   \
    M(0) M(1) M(2) M(3) M(4) M(5) M(6) M(7) M(8) M(9) M(10) M(11) M(12) M(13) M(14) M(15) M(16)  \
    M(17) M(18) M(19) M(20) M(21) M(22) M(23) M(24) M(25) M(26) M(27) M(28) M(29) M(30) M(31)    \
    M(32) M(33) M(34) M(35) M(36) M(37) M(38) M(39)
ALL(MODEL)
#define NAME(n) model##n,
static int (*const models[MODELS])(int) = {ALL(NAME)};

int main(int argc, char **argv) {
    int steps = argc > 1 ? atoi(argv[1]) : 10;
    for (int n = 0; n < MODELS; n++)
        for (int p = 0; p < POINTS; p++) {
            tables[n][p][0] = (double)p / (POINTS - 1);
            tables[n][p][1] = chance();
        }
    for (int c = 0; c < CELLS; c++) {
        temperature[c] = 0.1 + 0.013 * c;
        pressure[c] = 0.9 - 0.011 * c;
    }
    long count = 0;
    double sum = 0;
    for (int step = 0; step < steps; step++)
        for (int c = 0; c < CELLS; c++) {
            // Heat flows to the next cell; then the models that its state asks for.
            double *next = &temperature[(c + 1) % CELLS];
            double moved = 0.02 * (temperature[c] - *next) + 0.01 * flux[c] * pressure[c];
            temperature[c] -= moved;
            *next += moved;
            if (temperature[c] > 1.0 || temperature[c] < 0.0) temperature[c] = chance();
            pressure[c] = 0.98 * pressure[c] + 0.02 * chance();
            int first = (int)(temperature[c] * MODELS);
            for (int k = 0; k < 3; k++) count += models[(first + k * (1 + c % 3)) % MODELS](c);
            count += models[(int)(chance() * MODELS)](c);
            sum += enthalpy[c];
        }
    printf("reactor: %ld, %.6f\n", count, sum);
    return 0;
}
