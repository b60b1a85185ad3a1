// Seven kernels of fluid dynamics, one after the other, as `nasa7` of the SPEC suite of 1989. Common to
// both programs: the loops and their arrays (a matrix product, a Fourier transform in two dimensions,
// many Cholesky factorisations at once, block-tridiagonal systems, Gaussian elimination, vortices that
// are made near a boundary, pentadiagonal systems along one dimension of three), arrays of 0.2 to 2 MB
// each that are walked along columns and across them, and a working set of some 1.1 MB. Written for this
// purpose.
//
//   kernels7 [ROUNDS]

#include <complex.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double sum;

// 1. A product of 256 x 128 and 128 x 64, four columns of the first at a time.
enum { L = 256, M = 128, N = 64 };
static double pa[M][L], pb[N][M], pc[N][L];
static void product(void) {
    memset(pc, 0, sizeof pc);
    for (int j = 0; j < M; j += 4)
        for (int k = 0; k < N; k++)
            for (int i = 0; i < L; i++)
                pc[k][i] += pa[j][i] * pb[k][j] + pa[j + 1][i] * pb[k][j + 1]
                    + pa[j + 2][i] * pb[k][j + 2] + pa[j + 3][i] * pb[k][j + 3];
    sum += pc[19][19];
}

// 2. A Fourier transform of 128 x 256 complex numbers, by columns and then by rows.
enum { ROWS = 128, COLUMNS = 256 };
static complex double field[COLUMNS][ROWS], roots[COLUMNS];
static void transform_line(complex double *at, long step, int count) {
    for (int i = 1, j = 0; i < count; i++) {
        int bit = count >> 1;
        for (; j & bit; bit >>= 1) j ^= bit;
        j ^= bit;
        if (i < j) {
            complex double kept = at[i * step];
            at[i * step] = at[j * step];
            at[j * step] = kept;
        }
    }
    for (int half = 1; half < count; half *= 2)
        for (int i = 0; i < count; i += 2 * half)
            for (int k = 0; k < half; k++) {
                complex double w = roots[k * (COLUMNS / 2 / half)];
                complex double *low = &at[(i + k) * step], *high = &at[(i + k + half) * step];
                double re = creal(*high) * creal(w) - cimag(*high) * cimag(w);
                double im = creal(*high) * cimag(w) + cimag(*high) * creal(w);
                complex double odd = re + im * I;
                *high = *low - odd;
                *low += odd;
            }
}
static void transform(void) {
    for (int j = 0; j < COLUMNS; j++) transform_line(field[j], 1, ROWS);
    for (int i = 0; i < ROWS; i++) transform_line(&field[0][i], ROWS, COLUMNS);
    for (int j = 0; j < COLUMNS; j++)
        for (int i = 0; i < ROWS; i++) field[j][i] *= 1.0 / 181;
    sum += creal(field[3][5]);
}

// 3. 250 banded systems of order 40, factored together: the system is the fastest index.
enum { SYSTEMS = 250, ORDER = 40, BAND = 4 };
static double banded[ORDER + 1][BAND + 1][SYSTEMS];
static void cholesky(void) {
    for (int j = 0; j <= ORDER; j++)
        for (int m = 0; m <= BAND; m++)
            for (int s = 0; s < SYSTEMS; s++) banded[j][m][s] = m ? 0.1 / m : 3.0 + 0.001 * s;
    for (int j = 0; j <= ORDER; j++) {
        int first = j < BAND ? j : BAND;
        for (int m = first; m > 0; m--) {
            for (int k = m + 1; k <= first; k++)
                for (int s = 0; s < SYSTEMS; s++)
                    banded[j][m][s] -= banded[j][k][s] * banded[j - m][k - m][s];
            for (int s = 0; s < SYSTEMS; s++) banded[j][m][s] *= banded[j - m][0][s];
        }
        for (int m = 1; m <= first; m++)
            for (int s = 0; s < SYSTEMS; s++)
                banded[j][0][s] -= banded[j][m][s] * banded[j][m][s];
        for (int s = 0; s < SYSTEMS; s++) banded[j][0][s] = 1.0 / sqrt(fabs(banded[j][0][s]) + 1e-9);
    }
    sum += banded[ORDER][0][7];
}

// 4. Blocks of 5 x 5 along lines of a box of 30 x 30 x 30, forward and back.
enum { SIDE = 30, BLOCK = 5 };
static double left[BLOCK][BLOCK][SIDE][SIDE], middle[BLOCK][BLOCK][SIDE][SIDE];
static double right[BLOCK][SIDE][SIDE][SIDE];
static void block_tridiagonal(void) {
    for (int plane = 0; plane < SIDE; plane++) {
        for (int m = 0; m < BLOCK; m++)
            for (int n = 0; n < BLOCK; n++)
                for (int k = 0; k < SIDE; k++)
                    for (int j = 0; j < SIDE; j++) {
                        left[m][n][k][j] = 0.01 * (m + n + 1) + 0.001 * j;
                        middle[m][n][k][j] = m == n ? 2.0 + 0.01 * k : 0.05 / (1 + m + n);
                    }
        for (int j = 1; j < SIDE; j++)
            for (int m = 0; m < BLOCK; m++)
                for (int n = 0; n < BLOCK; n++)
                    for (int k = 0; k < SIDE; k++) {
                        middle[m][n][k][j] -= left[m][n][k][j] * middle[n][m][k][j - 1] * 0.1;
                        right[m][plane][k][j] -= left[m][n][k][j] * right[n][plane][k][j - 1];
                    }
        for (int j = SIDE - 1; j >= 0; j--)
            for (int m = 0; m < BLOCK; m++)
                for (int k = 0; k < SIDE; k++)
                    right[m][plane][k][j] = (right[m][plane][k][j] + 1.0) / middle[m][m][k][j];
    }
    sum += right[2][3][4][5];
}

// 5. A matrix of the influence of 300 vortices on each other, made and eliminated.
enum { VORTICES = 300 };
static complex double influence[VORTICES][VORTICES];
static void eliminate(void) {
    for (int j = 0; j < VORTICES; j++)
        for (int i = 0; i < VORTICES; i++)
            influence[j][i] = 1.0 / (1.0 + (i - j) * (i - j) * 0.01) + (i == j ? 50.0 : 0.0) + 0.01 * I;
    for (int k = 0; k < VORTICES; k++) {
        complex double pivot = 1.0 / influence[k][k];
        for (int j = k + 1; j < VORTICES; j++) {
            complex double times = influence[j][k] * pivot;
            double re = creal(times), im = cimag(times);
            for (int i = k + 1; i < VORTICES; i++) {
                double *to = (double *)&influence[j][i], *from = (double *)&influence[k][i];
                to[0] -= re * from[0] - im * from[1];
                to[1] -= re * from[1] + im * from[0];
            }
        }
    }
    sum += creal(influence[VORTICES - 1][VORTICES - 1]);
}

// 6. New vortices, each moved by all before it.
enum { EMITTED = 600 };
static complex double place[EMITTED], strength[EMITTED], pull[EMITTED];
static void emit(void) {
    for (int v = 0; v < EMITTED; v++) {
        place[v] = cos(0.01 * v) + (sin(0.013 * v) + 1.5) * I;
        strength[v] = 0.01 * (v % 7 - 3);
        double re = 0, im = 0;
        for (int u = 0; u < v; u++) {
            double x = creal(place[v]) - creal(place[u]), y = cimag(place[v]) - cimag(place[u]);
            double scale = creal(strength[u]) / (x * x + y * y + 0.001);
            re += y * scale;
            im -= x * scale;
        }
        pull[v] = re + im * I;
    }
    sum += creal(pull[EMITTED - 1]);
}

// 7. Three pentadiagonal systems along the second dimension of arrays of 128 x 128.
enum { P = 128 };
static double diagonals[5][P][P], xs[P][P], ys[P][P], fs[3][P][P];
static void pentadiagonal(void) {
    for (int j = 0; j < P; j++)
        for (int i = 0; i < P; i++) {
            for (int d = 0; d < 5; d++) diagonals[d][j][i] = d == 2 ? 4.0 + 0.01 * i : 0.3 + 0.001 * d;
            for (int k = 0; k < 3; k++) fs[k][j][i] = 1.0 + k + 0.01 * j;
        }
    for (int i = 0; i < P; i++)
        for (int j = 2; j < P; j++) {
            double low = diagonals[1][j][i] - diagonals[0][j][i] * xs[j - 2][i];
            double scale = 1.0 / (diagonals[2][j][i] - low * xs[j - 1][i] - diagonals[0][j][i] * ys[j - 2][i]);
            xs[j][i] = (diagonals[3][j][i] - low * ys[j - 1][i]) * scale;
            ys[j][i] = diagonals[4][j][i] * scale;
            for (int k = 0; k < 3; k++)
                fs[k][j][i] = (fs[k][j][i] - low * fs[k][j - 1][i] - diagonals[0][j][i] * fs[k][j - 2][i]) * scale;
        }
    for (int i = 0; i < P; i++)
        for (int j = P - 3; j >= 0; j--)
            for (int k = 0; k < 3; k++)
                fs[k][j][i] -= xs[j][i] * fs[k][j + 1][i] + ys[j][i] * fs[k][j + 2][i];
    sum += fs[1][7][9];
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 1;
    for (int k = 0; k < COLUMNS; k++)
        roots[k] = cos(6.283185307179586 * k / COLUMNS) - sin(6.283185307179586 * k / COLUMNS) * I;
    for (int j = 0; j < M; j++)
        for (int i = 0; i < L; i++) pa[j][i] = 0.01 * ((i + j) % 50);
    for (int k = 0; k < N; k++)
        for (int j = 0; j < M; j++) pb[k][j] = 0.01 * ((k * j) % 50);
    for (int j = 0; j < COLUMNS; j++)
        for (int i = 0; i < ROWS; i++) field[j][i] = (i * j) % 17 - 8.0;
    // Each kernel several times before the next, as the suite has it.
    void (*const kernels[])(void) = {product, transform, cholesky, block_tridiagonal, eliminate, emit,
                                     pentadiagonal};
    static const int times[] = {4, 2, 6, 2, 1, 4, 10};
    for (int k = 0; k < 7; k++)
        for (int round = 0; round < rounds * times[k]; round++) kernels[k]();
    printf("kernels7: %.6e\n", sum);
    return 0;
}
