// Multiplies matrices of 300 x 300 doubles in all eight ways of transposing them, by sums of multiples of
// columns, as `matrix300` of the SPEC suite of 1989 does. Common to both programs: the order,
// Fortran's layout by columns, the three matrices of 720 KB, and inner loops that walk a column (step 8
// bytes) or a row (step 2400 bytes, more than half a page of 4 KiB). Written for this purpose.
//
//   saxpy300 [COLUMNS]    of each product; all 300 if none is said

#include <stdio.h>
#include <stdlib.h>

enum { N = 300 };
static double a[N * N], b[N * N], c[N * N];

// y += times * x, over N elements at distances `step_x` and `step_y`.
static __attribute__((noinline)) void saxpy(double times, const double *x, long step_x, double *y,
                                            long step_y) {
    for (int i = 0; i < N; i++) y[i * step_y] += times * x[i * step_x];
}

int main(int argc, char **argv) {
    int columns = argc > 1 ? atoi(argv[1]) : N;
    if (columns < 1 || columns > N) return 2;
    for (int i = 0; i < N * N; i++) {
        a[i] = 1.0 / (1 + i % 97);
        b[i] = 1.0 / (1 + i % 89);
    }
    double sum = 0;
    for (int form = 0; form < 8; form++) {
        // Distances of the next row and of the next column, of each matrix as the product sees it.
        long row_a = form & 1 ? N : 1, column_a = form & 1 ? 1 : N;
        long row_b = form & 2 ? N : 1, column_b = form & 2 ? 1 : N;
        long row_c = form & 4 ? N : 1, column_c = form & 4 ? 1 : N;
        for (int i = 0; i < N * N; i++) c[i] = 0;
        for (int j = 0; j < columns; j++)
            for (int k = 0; k < N; k++)
                saxpy(b[k * row_b + j * column_b], a + k * column_a, row_a, c + j * column_c, row_c);
        for (int i = 0; i < N * N; i += 7) sum += c[i];
    }
    printf("saxpy300: %.6f\n", sum);
    return 0;
}
