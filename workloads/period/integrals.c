// Two-electron integrals over shells of atoms, as `fpppp` of the SPEC suite of 1989 computes them. What
// it shares with that program: blocks of hundreds of floating-point instructions without a branch, of
// which several take turns, so that code is as large a part of the working set (some 220 KB) as the
// arrays of densities and results that each block reads and adds to. The sums stand for integrals; no
// chemistry is meant. Written for this purpose.
//
//   integrals [SHELLS [ROUNDS]]

#include <stdio.h>
#include <stdlib.h>

enum { MOST = 110 };  // two arrays of MOST * MOST doubles: 190 KB
static double density[MOST][MOST], fock[MOST][MOST], exponents[MOST], centres[MOST][3];

// A term of a long sum: three products, a quotient, and the density of two shells.
#define TERM(n)                                                                                  \
    t##n = p * (q + 0.01 * n) - r * (s + 0.003 * n);                                            \
    u##n = (t##n * x + y) / (1.0 + z * (0.5 + 0.07 * n));                                       \
    sum += u##n * density[i][(j + n) % MOST] * (1.0 - 0.002 * n * t##n);                          \
    p = p * 0.999 + 0.001 * u##n;                                                               \
    s = s * 0.998 + 0.002 * t##n;
#define DECLARED(n) double t##n, u##n;
#define TEN(M, n) M(n##0) M(n##1) M(n##2) M(n##3) M(n##4) M(n##5) M(n##6) M(n##7) M(n##8) M(n##9)
#define HUNDRED(M)                                                                               \
    TEN(M, 1) TEN(M, 2) TEN(M, 3) TEN(M, 4) TEN(M, 5) TEN(M, 6) TEN(M, 7) TEN(M, 8) TEN(M, 9)

// A kind of block: the same terms with other constants.
#define BLOCK(name, a, b)                                                                        \
    static __attribute__((noinline)) double name(int i, int j, double p, double q, double r) {   \
        double s = a, x = centres[i][0] - centres[j][0], y = centres[i][1] * b, z = q * q + 0.1;  \
        double sum = 0;                                                                          \
        HUNDRED(DECLARED)                                                                        \
        HUNDRED(TERM)                                                                            \
        return sum;                                                                              \
    }
BLOCK(ssss, 0.3, 1.1)
BLOCK(psss, 0.5, 0.9)
BLOCK(ppss, 0.7, 1.3)
BLOCK(pppp, 0.9, 0.7)

int main(int argc, char **argv) {
    int shells = argc > 1 ? atoi(argv[1]) : MOST, rounds = argc > 2 ? atoi(argv[2]) : 1;
    if (shells < 1 || shells > MOST) return 2;
    for (int i = 0; i < MOST; i++) {
        exponents[i] = 0.2 + 0.01 * (i * 7 % 31);
        for (int k = 0; k < 3; k++) centres[i][k] = 0.05 * (i * (k + 3) % 17);
        for (int j = 0; j < MOST; j++) density[i][j] = 1.0 / (1 + i + j);
    }
    double energy = 0;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < shells; i++)
            for (int j = 0; j <= i; j++) {
                double p = exponents[i], q = exponents[j], r = p + q, value;
                switch ((i % 4 ? 1 : 0) + (j % 3 ? 2 : 0)) {
                case 0: value = ssss(i, j, p, q, r); break;
                case 1: value = psss(i, j, p, q, r); break;
                case 2: value = ppss(i, j, p, q, r); break;
                default: value = pppp(i, j, p, q, r); break;
                }
                fock[i][j] += value;
                fock[j][i] += 0.5 * value;
                energy += value * density[i][j];
            }
    printf("integrals: %.6e\n", energy);
    return 0;
}
