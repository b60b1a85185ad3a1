// Worms crawl over a screen: a program that draws, as `worm` of Talluri et al. As the paper says of
// that program: a screen of a workstation of the time, a byte a dot, of which a working set of some 1.1
// MB has all, and 100 million references. A worm is drawn dot by dot at its head, and what it covered
// is put back at its tail. Written for this purpose.
//
//   worms [WORMS [STEPS]]

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WIDTH = 1152, HEIGHT = 900, LENGTH = 40, THICK = 6 };

struct segment { short x, y; unsigned char covered[THICK][THICK]; };
struct worm { double x, y, angle; int head; unsigned char colour; struct segment body[LENGTH]; };

static unsigned char screen[HEIGHT][WIDTH];
static uint64_t random_state = 1;

static uint64_t random_next(void) {
    uint64_t x = random_state += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static void draw(struct segment *at, unsigned char colour) {
    for (int y = 0; y < THICK; y++)
        for (int x = 0; x < THICK; x++) {
            unsigned char *dot = &screen[(at->y + y) % HEIGHT][(at->x + x) % WIDTH];
            at->covered[y][x] = *dot;
            *dot = colour;
        }
}

static void put_back(const struct segment *at) {
    for (int y = 0; y < THICK; y++)
        for (int x = 0; x < THICK; x++)
            screen[(at->y + y) % HEIGHT][(at->x + x) % WIDTH] = at->covered[y][x];
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 40, steps = argc > 2 ? atoi(argv[2]) : 100;
    struct worm *worms = calloc((size_t)count, sizeof *worms);
    if (!worms) return 1;
    for (int i = 0; i < count; i++) {
        worms[i].x = (double)(random_next() % WIDTH);
        worms[i].y = (double)(random_next() % HEIGHT);
        worms[i].angle = (double)(random_next() % 628) / 100;
        worms[i].colour = (unsigned char)(1 + i % 255);
    }
    for (int step = 0; step < steps; step++)
        for (int i = 0; i < count; i++) {
            struct worm *worm = &worms[i];
            worm->angle += ((double)(random_next() % 1000) - 499.5) / 1500;
            worm->x = fmod(worm->x + THICK * cos(worm->angle) + WIDTH, WIDTH);
            worm->y = fmod(worm->y + THICK * sin(worm->angle) + HEIGHT, HEIGHT);
            struct segment *at = &worm->body[worm->head];
            if (step >= LENGTH) put_back(at);
            at->x = (short)worm->x;
            at->y = (short)worm->y;
            draw(at, worm->colour);
            worm->head = (worm->head + 1) % LENGTH;
        }
    unsigned long sum = 0;
    for (int y = 0; y < HEIGHT; y++)
        for (int x = 0; x < WIDTH; x++) sum += screen[y][x];
    printf("worms: %lu\n", sum);
    return 0;
}
