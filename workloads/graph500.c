// Breadth-first searches of a Kronecker graph, as in Graph500 (specification 2.0, kernel 2): a few
// vertices have most of the edges, so that some pages are hot and the others are used at random.
// The region of interest is the searches alone; each tree is checked by Graph500's five rules.
//
//   graph500 [--scale N] [--edge-factor N] [--roots N] …      see --help
//
// Differences from the reference code: the edges stay in the order in which they were drawn (the
// vertices' numbers are shuffled), and the search is top-down and of one thread.

#include "common.h"

enum { NONE = UINT32_MAX };

struct edge {
    uint32_t from, to;
};

// Compressed rows: vertex v's neighbours are to[first[v]] … to[first[v + 1] - 1].
struct graph {
    uint64_t *first;
    uint32_t *to;
};

static uint64_t scale = 18, edge_factor = 16, roots = 8;

static const struct option options[] = {
    {"scale", COUNT, &scale, 4, 31, NULL, "the graph has 2^scale vertices"},
    {"edge-factor", COUNT, &edge_factor, 1, 1024, NULL, "edges for each vertex, on average"},
    {"roots", COUNT, &roots, 1, 4096, NULL, "searches, each from a root of its own"},
};

static uint64_t vertices, edges;

// The shares of the edges in the quarters of the adjacency matrix, added up: A and B above, C and D
// below.
#define OF_ALL(share) ((uint64_t)((share) * 0x1p32))
static const uint64_t A = OF_ALL(0.57), AB = OF_ALL(0.57 + 0.19), ABC = OF_ALL(0.57 + 0.19 + 0.19);

static struct edge *draw_edges(void) {
    uint64_t random = random_start(0);
    uint32_t *number = big("the vertices' numbers", vertices, sizeof *number);
    for (uint64_t v = 0; v < vertices; v++) {
        uint64_t other = below(random_next(&random), v + 1);
        number[v] = number[other];
        number[other] = (uint32_t)v;
    }
    struct edge *edge = big("the edges", edges, sizeof *edge);
    for (uint64_t e = 0; e < edges; e++) {
        uint32_t from = 0, to = 0;
        for (uint64_t level = 0; level < scale; level++) {
            uint64_t where = random_next(&random) >> 32;
            uint32_t below_half = where >= AB;
            from = from << 1 | below_half;
            to = to << 1 | ((where >= A) - below_half + (where >= ABC));
        }
        edge[e] = (struct edge){number[from], number[to]};
    }
    munmap(number, vertices * sizeof *number);
    return edge;
}

// The rows with both directions of each edge, without loops of a vertex to itself.
static struct graph rows_of(const struct edge *edge) {
    struct graph graph = {big("the rows", vertices + 1, sizeof *graph.first), NULL};
    for (uint64_t e = 0; e < edges; e++)
        if (edge[e].from != edge[e].to) graph.first[edge[e].from]++, graph.first[edge[e].to]++;
    uint64_t arcs = 0;
    for (uint64_t v = 0; v <= vertices; v++) {
        uint64_t degree = graph.first[v];
        graph.first[v] = arcs;
        arcs += degree;
    }
    graph.to = big("the neighbours", arcs, sizeof *graph.to);
    for (uint64_t e = 0; e < edges; e++)
        if (edge[e].from != edge[e].to) {
            graph.to[graph.first[edge[e].from]++] = edge[e].to;
            graph.to[graph.first[edge[e].to]++] = edge[e].from;
        }
    // Each row's beginning has moved to its end, which is the beginning of the next.
    memmove(graph.first + 1, graph.first, vertices * sizeof *graph.first);
    graph.first[0] = 0;
    return graph;
}

// Fills in the parents (the root is its own); returns the number of vertices in the queue then.
static uint64_t search(const struct graph *graph, uint32_t root, uint32_t *parent,
                       uint32_t *queue) {
    uint64_t head = 0, tail = 0;
    parent[root] = root;
    queue[tail++] = root;
    while (head < tail) {
        uint32_t v = queue[head++];
        for (uint64_t e = graph->first[v]; e < graph->first[v + 1]; e++) {
            uint32_t to = graph->to[e];
            if (parent[to] == NONE) {
                parent[to] = v;
                queue[tail++] = to;
            }
        }
    }
    return tail;
}

// Finds each vertex's depth below the root, NONE outside the tree; returns 0 if parents form a
// cycle.
static int find_levels(const uint32_t *parent, uint32_t root, uint32_t *level) {
    memset(level, 0xff, vertices * sizeof *level);
    level[root] = 0;
    for (uint64_t v = 0; v < vertices; v++) {
        if (parent[v] == NONE || level[v] != NONE) continue;
        uint32_t steps = 0;
        uint64_t up = v;
        for (; level[up] == NONE; up = parent[up], steps++)
            if (steps >= vertices || parent[up] == NONE) return 0;
        steps += level[up];
        for (uint64_t down = v; level[down] == NONE; down = parent[down]) level[down] = steps--;
    }
    return 1;
}

// Checks a tree by Graph500's rules; NULL if it keeps them all. The check reads the edges as they
// were drawn, not the rows that the search used. (A vertex is one level below its parent by
// construction of the levels.)
static const char *validate(const struct edge *edge, const uint32_t *parent, uint32_t root,
                            uint32_t *level, uint8_t *joined) {
    if (parent[root] != root) return "the root is not its own parent";
    if (!find_levels(parent, root, level)) return "the parents of a vertex do not lead to the root";
    memset(joined, 0, vertices);
    for (uint64_t e = 0; e < edges; e++) {
        uint32_t a = edge[e].from, b = edge[e].to;
        if ((level[a] == NONE) != (level[b] == NONE)) return "an edge leads out of the tree";
        if (level[a] == NONE) continue;
        if (level[a] > level[b] + 1 || level[b] > level[a] + 1)
            return "an edge joins vertices that are more than one level apart";
        if (parent[a] == b) joined[a] = 1;
        if (parent[b] == a) joined[b] = 1;
    }
    for (uint64_t v = 0; v < vertices; v++) {
        if (level[v] == NONE || v == root) continue;
        if (!joined[v]) return "no edge joins a vertex and its parent";
    }
    return NULL;
}

// A vertex with an edge at which no search has begun.
static uint32_t next_root(const struct graph *graph, uint64_t *random, uint8_t *used) {
    for (uint64_t tries = 0; tries < vertices * 64; tries++) {
        uint32_t v = (uint32_t)below(random_next(random), vertices);
        if (graph->first[v] == graph->first[v + 1] || used[v]) continue;
        used[v] = 1;
        return v;
    }
    REFUSE("--roots %" PRIu64 " is more than this graph has: allowed are as many as there are "
           "vertices with edges.", roots);
}

static void spoil(uint32_t *parent, uint32_t root, const uint32_t *queue, uint64_t reached) {
    uint32_t last = queue[reached - 1];
    if (broken == 1) parent[last] = last;
    if (broken == 2) parent[last] = root;
    if (broken == 3) parent[last] = NONE;
    if (broken == 4) parent[root] = last;
    // A vertex on the level of the right parent, with no edge to this one.
    if (broken == 5) parent[last] = parent[queue[reached - 2]];
}

int main(int argc, char **argv) {
    READ_OPTIONS("graph500", "breadth-first searches of a Kronecker graph",
                 "--scale 20 --roots 4 --huge always\n--scale 14 --edge-factor 8 --seed 7");
    vertices = UINT64_C(1) << scale;
    edges = vertices * edge_factor;
    struct edge *edge = draw_edges();
    struct graph graph = rows_of(edge);
    uint32_t *parent = big("the parents", vertices, sizeof *parent);
    uint32_t *queue = big("the queue", vertices, sizeof *queue);
    uint32_t *level = big("the levels", vertices, sizeof *level);
    uint8_t *joined = big("the check", vertices, sizeof *joined);
    uint8_t *used = big("the roots", vertices, sizeof *used);

    uint64_t random = random_start(1), traversed = 0, digest = 0;
    const char *problem = NULL;
    for (uint64_t r = 0; r < roots; r++) {
        uint32_t root = next_root(&graph, &random, used);
        memset(parent, 0xff, vertices * sizeof *parent);
        region_begins();
        uint64_t reached = search(&graph, root, parent, queue);
        region_ends();
        for (uint64_t q = 0; q < reached; q++) {
            traversed += graph.first[queue[q] + 1] - graph.first[queue[q]];
            digest = digest * 3 + parent[queue[q]];
        }
        if (broken && r + 1 == roots) spoil(parent, root, queue, reached);
        if (check == CHECK_YES && !problem) problem = validate(edge, parent, root, level, joined);
    }
    // Each edge was met from both its ends.
    return report(traversed / 2, "edges", digest, problem);
}
