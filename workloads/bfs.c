// Breadth-first search of a random graph in compressed rows: a stream of edges read in order, and
// an access to a random vertex for each.
//
//   bfs VERTICES DEGREE

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: bfs VERTICES DEGREE\n");
        return 2;
    }
    uint32_t vertices = strtoul(argv[1], NULL, 0), degree = strtoul(argv[2], NULL, 0);
    uint32_t *edges = malloc((size_t)vertices * degree * sizeof *edges);
    uint32_t *depth = malloc(vertices * sizeof *depth);
    uint32_t *queue = malloc(vertices * sizeof *queue);
    if (!edges || !depth || !queue) {
        perror("malloc");
        return 1;
    }
    uint64_t random = 88172645463325252u;
    for (size_t e = 0; e < (size_t)vertices * degree; e++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        edges[e] = random % vertices;
    }

    memset(depth, 0xff, vertices * sizeof *depth);
    uint32_t head = 0, tail = 0, deepest = 0;
    depth[0] = 0;
    queue[tail++] = 0;
    while (head < tail) {
        uint32_t v = queue[head++];
        deepest = depth[v];
        for (uint32_t e = 0; e < degree; e++) {
            uint32_t to = edges[(size_t)v * degree + e];
            if (depth[to] == UINT32_MAX) {
                depth[to] = depth[v] + 1;
                queue[tail++] = to;
            }
        }
    }
    printf("%u vertices reached, depth %u\n", tail, deepest);
    return 0;
}
