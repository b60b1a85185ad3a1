// Multiplies two square matrices of doubles the textbook way: rows of one are read along pages,
// columns of the other across them.
//
//   matmul N

#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    size_t n = argc == 2 ? strtoull(argv[1], NULL, 0) : 0;
    if (n == 0) {
        fprintf(stderr, "usage: matmul N\n");
        return 2;
    }
    double *a = malloc(n * n * sizeof *a), *b = malloc(n * n * sizeof *b);
    double *c = malloc(n * n * sizeof *c);
    if (!a || !b || !c) {
        perror("malloc");
        return 1;
    }
    for (size_t i = 0; i < n * n; i++) {
        a[i] = (double)(i % 7);
        b[i] = (double)(i % 5);
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++) {
            double sum = 0;
            for (size_t k = 0; k < n; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
    double trace = 0;
    for (size_t i = 0; i < n; i++) trace += c[i * n + i];
    printf("%.0f\n", trace);
    return 0;
}
