// Plays the game of go against itself, as `go` of the SPEC suite of 1995 does. Common to both programs:
// boards and lists in small static arrays, groups and liberties that are followed stone by stone,
// candidate moves that are tried and taken back, ladders read by recursion, patterns looked up in
// tables, and branches that depend on the position. A working set of some hundred KB. Written for this
// purpose.
//
//   go [MOVES]

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 19, WIDTH = SIDE + 2, POINTS = WIDTH * WIDTH, EMPTY = 0, BLACK = 1, WHITE = 2, EDGE = 3 };
enum { PATTERNS = 1 << 16, HISTORY = 4096, DEEPEST = 24 };

struct change { short point; unsigned char before; };
static unsigned char board[POINTS];
static signed char patterns[PATTERNS];  // by the eight points around
static short influence[2][POINTS];
static struct change history[HISTORY];
static int history_end;
static int marks[POINTS], mark_now;
static const int around[8] = {1, -1, WIDTH, -WIDTH, WIDTH + 1, WIDTH - 1, -WIDTH + 1, -WIDTH - 1};
static uint64_t random_state = 1;
static long tried;

static unsigned random_below(unsigned limit) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)((random_state >> 33) * limit >> 31);
}

static void set(int point, unsigned char to) {
    history[history_end++] = (struct change){(short)point, board[point]};
    board[point] = to;
}

static void take_back(int to) {
    while (history_end > to) {
        history_end--;
        board[history[history_end].point] = history[history_end].before;
    }
}

// The liberties of the group at a point, up to `most`; its stones and liberties go to lists.
static int liberties(int point, int most, short *stones, int *stone_count, short *free_points) {
    unsigned char colour = board[point];
    int found = 0, count = 0;
    mark_now++;
    stones[count++] = (short)point;
    marks[point] = mark_now;
    for (int i = 0; i < count && found < most; i++)
        for (int k = 0; k < 4 && found < most; k++) {
            int next = stones[i] + around[k];
            if (marks[next] == mark_now) continue;
            marks[next] = mark_now;
            if (board[next] == EMPTY) free_points[found++] = (short)next;
            else if (board[next] == colour) stones[count++] = (short)next;
        }
    *stone_count = count;
    return found;
}

// Plays a stone and removes what it captures; false if it has no liberty then.
static int play(int point, unsigned char colour, int *captured) {
    short stones[POINTS], free_points[POINTS];
    int count;
    *captured = 0;
    if (board[point] != EMPTY || history_end > HISTORY - 2 * POINTS) return 0;
    set(point, colour);
    for (int k = 0; k < 4; k++) {
        int next = point + around[k];
        if (board[next] == 3 - colour && !liberties(next, 1, stones, &count, free_points)) {
            for (int i = 0; i < count; i++) set(stones[i], EMPTY);
            *captured += count;
        }
    }
    return liberties(point, 1, stones, &count, free_points) > 0;
}

// Whether the group at a point is caught in a ladder: its side moves, then the other.
static int is_caught(int point, int depth) {
    short stones[POINTS], ways[POINTS];
    int count, captured, here = history_end;
    unsigned char own = board[point];
    int found = liberties(point, 3, stones, &count, ways);
    if (found > 1 || depth == DEEPEST) return found < 2;
    if (!found) return 1;
    int is = 1;
    if (play(ways[0], own, &captured)) {
        short second[POINTS];
        found = liberties(point, 3, stones, &count, second);
        if (found > 2) is = 0;
        else if (found == 2) {
            is = 0;
            for (int k = 0; k < 2 && !is; k++) {
                int before = history_end;
                if (play(second[k], 3 - own, &captured)) is = is_caught(point, depth + 1);
                take_back(before);
            }
        }
    }
    take_back(here);
    return is;
}

static unsigned pattern_at(int point) {
    unsigned code = 0;
    for (int k = 0; k < 8; k++) code = code << 2 | board[point + around[k]];
    return code;
}

static void spread_influence(void) {
    memset(influence, 0, sizeof influence);
    for (int point = 0; point < POINTS; point++)
        if (board[point] == BLACK || board[point] == WHITE)
            for (int y = -4; y <= 4; y++)
                for (int x = -4; x <= 4; x++) {
                    int to = point + y * WIDTH + x, far = abs(x) + abs(y);
                    if (to >= 0 && to < POINTS && board[to] != EDGE && far < 6)
                        influence[board[point] - 1][to] += (short)(64 >> far);
                }
}

static int value_of(int point, unsigned char colour) {
    short stones[POINTS], ways[POINTS];
    int here = history_end, captured, count, value = patterns[pattern_at(point)];
    value += abs(influence[0][point] - influence[1][point]) < 24 ? 12 : 0;
    value -= influence[colour - 1][point] > 90 ? 20 : 0;
    if (!play(point, colour, &captured)) value = -1000;
    else {
        int own = liberties(point, 8, stones, &count, ways);
        value += 15 * captured + 2 * own;
        if (own < 2 || (own == 2 && is_caught(point, 0))) value -= 60 + 10 * count;
        for (int k = 0; k < 4; k++) {
            int next = point + around[k];
            if (board[next] != 3 - colour) continue;
            int theirs = liberties(next, 4, stones, &count, ways);
            value += theirs == 1 ? 10 * count : theirs == 2 ? 3 * count : 0;
            if (theirs == 1 && is_caught(next, 0)) value += 12 * count;
        }
    }
    take_back(here);
    tried++;
    return value;
}

int main(int argc, char **argv) {
    int moves = argc > 1 ? atoi(argv[1]) : 20;
    memset(board, EDGE, sizeof board);
    for (int y = 1; y <= SIDE; y++) memset(&board[y * WIDTH + 1], EMPTY, SIDE);
    for (int i = 0; i < PATTERNS; i++) patterns[i] = (signed char)random_below(20);
    unsigned char colour = BLACK;
    int stones_taken = 0;
    for (int move = 0; move < moves; move++, colour = 3 - colour) {
        // A game of 250 moves, then the next.
        if (move % 250 == 0)
            for (int y = 1; y <= SIDE; y++) memset(&board[y * WIDTH + 1], EMPTY, SIDE);
        spread_influence();
        int best = -1000, chosen = 0, captured;
        for (int point = WIDTH; point < POINTS - WIDTH; point++) {
            if (board[point] != EMPTY) continue;
            int value = value_of(point, colour) * 4 + (int)random_below(8);
            if (value > best) best = value, chosen = point;
        }
        if (chosen && play(chosen, colour, &captured)) stones_taken += captured;
        history_end = 0;
    }
    printf("go: %ld moves tried, %d stones taken\n", tried, stones_taken);
    return 0;
}
