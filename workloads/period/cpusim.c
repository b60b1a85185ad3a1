// Simulates a processor that runs a program, as `m88ksim` of the SPEC suite of 1995 does. Common to both
// programs: a loop that fetches a word of simulated memory, takes it apart, looks its handler up in a
// table, keeps registers, a scoreboard of when each is ready, and counts of every instruction; the
// simulated program sorts, searches and copies small arrays. A working set of some tens of KB. Written
// for this purpose; the instruction set is made up.
//
//   cpusim [ROUNDS]

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MEMORY_WORDS = 1 << 16, OPERATIONS = 16 };
enum { ADD, SUB, AND, XOR, SHL, SHR, LDI, LD, ST, BEQ, BNE, BLT, JMP, MUL, OR, HALT };

static uint32_t memory[MEMORY_WORDS], registers[32];
static uint64_t ready_at[32], counts[OPERATIONS], by_address[4096], cycle, stalls;
static uint32_t pc;
static int is_halted;

struct decoded { unsigned operation, to, a, b; int32_t immediate; };

static struct decoded decode(uint32_t word) {
    struct decoded op = {word >> 28, word >> 23 & 31, word >> 18 & 31, word >> 13 & 31,
                         (int32_t)(word << 19) >> 19};
    return op;
}

static void wait_for(unsigned number) {
    if (ready_at[number] > cycle) {
        stalls += ready_at[number] - cycle;
        cycle = ready_at[number];
    }
}

static void set(unsigned to, uint32_t value, unsigned latency) {
    if (to) registers[to] = value;
    ready_at[to] = cycle + latency;
}

static uint32_t *word_at(uint32_t address) { return &memory[address % MEMORY_WORDS]; }

#define OPERATION(name, latency, value)                                                          \
    static void name(const struct decoded *op) {                                                 \
        wait_for(op->a);                                                                         \
        wait_for(op->b);                                                                         \
        uint32_t a = registers[op->a], b = registers[op->b] + (uint32_t)op->immediate;            \
        set(op->to, value, latency);                                                             \
    }
OPERATION(do_add, 1, a + b)
OPERATION(do_sub, 1, a - b)
OPERATION(do_and, 1, a & b)
OPERATION(do_or, 1, a | b)
OPERATION(do_xor, 1, a ^ b)
OPERATION(do_shl, 1, a << (b & 31))
OPERATION(do_shr, 1, a >> (b & 31))
OPERATION(do_mul, 4, (a * b))
OPERATION(do_ldi, 1, ((void)a, b))
OPERATION(do_ld, 3, *word_at(a + b))

static void do_st(const struct decoded *op) {
    wait_for(op->to);
    wait_for(op->a);
    wait_for(op->b);
    *word_at(registers[op->a] + registers[op->b] + (uint32_t)op->immediate) = registers[op->to];
}

#define BRANCH(name, condition)                                                                  \
    static void name(const struct decoded *op) {                                                 \
        wait_for(op->to);                                                                        \
        wait_for(op->a);                                                                         \
        uint32_t left = registers[op->to], right = registers[op->a];                              \
        if (condition) {                                                                         \
            pc += (uint32_t)op->immediate;                                                       \
            cycle += 2;                                                                          \
        }                                                                                        \
    }
BRANCH(do_beq, left == right)
BRANCH(do_bne, left != right)
BRANCH(do_blt, (int32_t)left < (int32_t)right)
BRANCH(do_jmp, ((void)left, (void)right, 1))

static void do_halt(const struct decoded *op) { is_halted = op->operation == HALT; }

static void (*const handlers[OPERATIONS])(const struct decoded *) = {
    [ADD] = do_add, [SUB] = do_sub, [AND] = do_and, [XOR] = do_xor, [SHL] = do_shl, [SHR] = do_shr,
    [LDI] = do_ldi, [LD] = do_ld, [ST] = do_st, [BEQ] = do_beq, [BNE] = do_bne, [BLT] = do_blt,
    [JMP] = do_jmp, [MUL] = do_mul, [OR] = do_or, [HALT] = do_halt};

static uint32_t place;
static void put(unsigned operation, unsigned to, unsigned a, unsigned b, int immediate) {
    memory[place++] = operation << 28 | to << 23 | a << 18 | b << 13 | ((uint32_t)immediate & 0x1fff);
}

// Fills an array with numbers from a linear congruence, sorts it by insertion, and adds up every
// element times its place, again and again. Registers: 1 i, 2 j, 3 length, 4 value, 5 other,
// 6 state, 7 sum, 8 round, 9 rounds, 10 base.
static void assemble(int rounds) {
    put(LDI, 3, 0, 0, 200);
    put(LDI, 9, 0, 0, rounds);
    put(LDI, 10, 0, 0, 4000);
    put(LDI, 6, 0, 0, 17);
    uint32_t round = place;
    put(LDI, 1, 0, 0, 0);
    uint32_t fill = place;
    put(LDI, 4, 0, 0, 1103);
    put(MUL, 6, 6, 4, 0);
    put(ADD, 6, 6, 0, 1231);
    put(SHR, 4, 6, 0, 9);
    put(ST, 4, 10, 1, 0);
    put(ADD, 1, 1, 0, 1);
    put(BLT, 1, 3, 0, (int)fill - (int)place - 1);
    put(LDI, 1, 0, 0, 1);
    uint32_t outer = place;
    put(LD, 4, 10, 1, 0);
    put(OR, 2, 1, 0, 0);
    uint32_t inner = place;
    put(LD, 5, 10, 2, -1);
    put(BLT, 5, 4, 0, 4);
    put(ST, 5, 10, 2, 0);
    put(SUB, 2, 2, 0, 1);
    put(BNE, 2, 0, 0, (int)inner - (int)place - 1);
    put(AND, 0, 0, 0, 0);
    put(ST, 4, 10, 2, 0);
    put(ADD, 1, 1, 0, 1);
    put(BLT, 1, 3, 0, (int)outer - (int)place - 1);
    put(LDI, 1, 0, 0, 0);
    uint32_t adding = place;
    put(LD, 4, 10, 1, 0);
    put(MUL, 4, 4, 1, 0);
    put(XOR, 7, 7, 4, 0);
    put(ST, 7, 10, 1, 1000);
    put(ADD, 1, 1, 0, 1);
    put(BLT, 1, 3, 0, (int)adding - (int)place - 1);
    put(ADD, 8, 8, 0, 1);
    put(BLT, 8, 9, 0, (int)round - (int)place - 1);
    put(HALT, 0, 0, 0, 0);
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 5;
    if (rounds < 1 || rounds > 4095) return 2;
    assemble(rounds);
    while (!is_halted) {
        uint32_t address = pc++;
        struct decoded op = decode(*word_at(address));
        counts[op.operation]++;
        by_address[address % 4096]++;
        cycle++;
        handlers[op.operation](&op);
    }
    printf("cpusim: sum %u, %llu cycles, %llu stalls, %llu loads\n", registers[7],
           (unsigned long long)cycle, (unsigned long long)stalls, (unsigned long long)counts[LD]);
    return 0;
}
