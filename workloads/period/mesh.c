// Relaxes a mesh of points around a body, as `tomcatv` of the SPEC suite of 1989 does. Common to both
// programs: seven arrays of 257 x 257 doubles (3.7 MB, of which a working set of some 2.9 MB), swept in a
// line: residuals of both coordinates from nine neighbours, a tridiagonal solver down each column for all
// rows at once, and the correction added. Columns are contiguous, as Fortran has them. Written for this
// purpose.
//
//   mesh [SWEEPS]

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 257 };
typedef double grid[N][N];  // [j][i]: i runs along memory
static grid x, y, rx, ry, aa, dd, d;

int main(int argc, char **argv) {
    int sweeps = argc > 1 ? atoi(argv[1]) : 1;
    for (int j = 0; j < N; j++)
        for (int i = 0; i < N; i++) {
            double s = (double)i / (N - 1), t = (double)j / (N - 1);
            x[j][i] = s + 0.1 * sin(3.1 * t) * s * (1 - s);
            y[j][i] = t + 0.1 * cos(2.7 * s) * t * (1 - t);
        }
    double largest = 0;
    for (int sweep = 0; sweep < sweeps; sweep++) {
        largest = 0;
        for (int j = 1; j < N - 1; j++)
            for (int i = 1; i < N - 1; i++) {
                double xx = x[j][i + 1] - x[j][i - 1], yx = y[j][i + 1] - y[j][i - 1];
                double xy = x[j + 1][i] - x[j - 1][i], yy = y[j + 1][i] - y[j - 1][i];
                double a = 0.25 * (xy * xy + yy * yy), b = 0.25 * (xx * xx + yx * yx);
                double c = 0.125 * (xx * xy + yx * yy);
                aa[j][i] = -b;
                dd[j][i] = b + b + a * 2.02;
                double pxx = x[j][i + 1] - 2 * x[j][i] + x[j][i - 1];
                double qxx = y[j][i + 1] - 2 * y[j][i] + y[j][i - 1];
                double pyy = x[j + 1][i] - 2 * x[j][i] + x[j - 1][i];
                double qyy = y[j + 1][i] - 2 * y[j][i] + y[j - 1][i];
                double pxy = x[j + 1][i + 1] - x[j + 1][i - 1] - x[j - 1][i + 1] + x[j - 1][i - 1];
                double qxy = y[j + 1][i + 1] - y[j + 1][i - 1] - y[j - 1][i + 1] + y[j - 1][i - 1];
                rx[j][i] = a * pxx + b * pyy - c * pxy;
                ry[j][i] = a * qxx + b * qyy - c * qxy;
            }
        for (int j = 1; j < N - 1; j++)
            for (int i = 1; i < N - 1; i++)
                largest = fmax(largest, fmax(fabs(rx[j][i]), fabs(ry[j][i])));
        for (int i = 1; i < N - 1; i++) d[1][i] = 1.0 / dd[1][i];
        for (int j = 2; j < N - 1; j++)
            for (int i = 1; i < N - 1; i++) {
                double r = aa[j][i] * d[j - 1][i];
                d[j][i] = 1.0 / (dd[j][i] - aa[j - 1][i] * r);
                rx[j][i] -= rx[j - 1][i] * r;
                ry[j][i] -= ry[j - 1][i] * r;
            }
        for (int i = 1; i < N - 1; i++) {
            rx[N - 2][i] *= d[N - 2][i];
            ry[N - 2][i] *= d[N - 2][i];
        }
        for (int j = N - 3; j > 0; j--)
            for (int i = 1; i < N - 1; i++) {
                rx[j][i] = (rx[j][i] - aa[j][i] * rx[j + 1][i]) * d[j][i];
                ry[j][i] = (ry[j][i] - aa[j][i] * ry[j + 1][i]) * d[j][i];
            }
        for (int j = 1; j < N - 1; j++)
            for (int i = 1; i < N - 1; i++) {
                x[j][i] += rx[j][i];
                y[j][i] += ry[j][i];
            }
    }
    printf("mesh: %.6e\n", largest);
    return 0;
}
