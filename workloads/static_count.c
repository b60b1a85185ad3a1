// A program whose every reference is predictable: static, without a C library, with no system call
// but its exit, so that two tracers must count exactly the same references.
//
//   static_count
//
// The stack that the kernel gives lies where the environment's size puts it. The program leaves it
// untouched and takes one of its own in .bss, so that its data addresses are the same in every run.
// It has code on more pages than a TLB of 64 entries holds, loops, string instructions, atomics,
// conditional moves, SSE2, and loads and stores that cross lines and pages. Exits with 42.

#include <emmintrin.h>
#include <stdint.h>

enum { TABLE_BYTES = 6 << 20, STACK_BYTES = 64 << 10 };

static unsigned char table[TABLE_BYTES] __attribute__((aligned(4096)));
unsigned char own_stack[STACK_BYTES] __attribute__((aligned(4096)));

static uint32_t random_state = 2463534242u;

static uint32_t next_random(void) {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 17;
    random_state ^= random_state << 5;
    return random_state;
}

// 128 functions, each on an 8 KiB page of its own and most of that page unused.
#define FAR(n) __attribute__((noipa, aligned(8192))) static uint32_t far##n(uint32_t x) { return x + n; }
#define FAR4(n) FAR(n##0) FAR(n##1) FAR(n##2) FAR(n##3)
#define FAR16(n) FAR4(n##0) FAR4(n##1) FAR4(n##2) FAR4(n##3)
FAR16(1) FAR16(2) FAR16(3) FAR16(4) FAR16(5) FAR16(6) FAR16(7) FAR16(8)

#define NAME4(n) far##n##0, far##n##1, far##n##2, far##n##3
#define NAME16(n) NAME4(n##0), NAME4(n##1), NAME4(n##2), NAME4(n##3)
static uint32_t (*const far[128])(uint32_t) = {NAME16(1), NAME16(2), NAME16(3), NAME16(4),
                                               NAME16(5), NAME16(6), NAME16(7), NAME16(8)};

// An instruction of ten bytes that lies three on one page and seven on the next.
uint64_t across(void);
__asm__(".p2align 13\n\t"
        ".skip 4096 - 3, 0xcc\n"
        "across:\n\t"
        "movabsq $0x1122334455667788, %rax\n\t"
        "ret\n");

static uint32_t calls(void) {
    uint32_t x = 0;
    for (int i = 0; i < 4000; i++) x += far[next_random() % 128](x) + (uint32_t)across();
    for (int i = 0; i < 4000; i++) x += far[i % 96](x);
    return x;
}

static uint64_t updates(void) {
    uint64_t sum = 0;
    for (int i = 0; i < 12000; i++) {
        // Any byte offset: some of these cross a line, and some a page.
        uint64_t *word = (uint64_t *)(table + next_random() % (TABLE_BYTES - 8));
        __asm__ volatile("addq %1, (%0)" : : "r"(word), "r"((uint64_t)i) : "memory");
        sum += *word;
    }
    for (int i = 4092; i < TABLE_BYTES - 8; i += 4096)
        *(volatile uint64_t *)(table + i) = (uint64_t)i;
    return sum;
}

static uint64_t strings(void) {
    uint64_t found = 0;
    for (int i = 0; i < 6; i++) {
        void *to = table + 8192 + i * 5000, *from = table + (1 << 20) + i * 70000;
        uint64_t count = 3000;
        __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(count) : : "memory");
        to = table + (2 << 20) + i * 9000;
        count = 500;
        __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(0x0101010101010101) : "memory");
        from = table + (2 << 20) + i * 9000;
        count = 4100;
        __asm__ volatile("repe scasb" : "+D"(from), "+c"(count) : "a"(1) : "cc", "memory");
        found += count;
    }
    return found;
}

static uint64_t atomics(void) {
    static uint64_t cell, other;
    static __uint128_t pair __attribute__((aligned(16)));
    for (uint64_t i = 0; i < 500; i++) {
        __atomic_fetch_add(&cell, i, __ATOMIC_SEQ_CST);
        __atomic_exchange_n(&other, i, __ATOMIC_SEQ_CST);
        uint64_t expected = i % 3 ? i : i + 1;
        __atomic_compare_exchange_n(&other, &expected, i + 7, 0, __ATOMIC_SEQ_CST,
                                    __ATOMIC_SEQ_CST);
        uint64_t low = i, high = 0;
        __asm__ volatile("lock cmpxchg16b %0"
                         : "+m"(pair), "+a"(low), "+d"(high)
                         : "b"(i + 1), "c"(0ul)
                         : "cc");
    }
    return cell + other;
}

static uint64_t conditional(void) {
    uint64_t best = 0;
    for (int i = 0; i < 4000; i++) {
        uint64_t *word = (uint64_t *)(table + i * 512);
        // A conditional move from memory loads whether or not it moves.
        __asm__ volatile("cmpq %0, %1\n\tcmovaq %1, %0" : "+r"(best) : "m"(*word) : "cc");
        if (best & 1) best ^= (uint64_t)i;
    }
    return best;
}

static uint64_t vectors(void) {
    __m128i sum = _mm_setzero_si128();
    for (int i = 0; i < 3000; i++) {
        sum = _mm_add_epi64(sum, _mm_loadu_si128((__m128i *)(table + i * 1000 + 1)));
        _mm_store_si128((__m128i *)(table + i * 1024), sum);
        _mm_stream_si32((int *)(table + 16 + i * 1024), i);
    }
    uint64_t halves[2];
    _mm_storeu_si128((__m128i *)halves, sum);
    return halves[0] ^ halves[1];
}

__attribute__((used)) static void run(void) {
    volatile uint64_t result =
        calls() + updates() + strings() + atomics() + conditional() + vectors();
    (void)result;
    __asm__ volatile("syscall" : : "a"(231 /* exit_group */), "D"(42));
    __builtin_unreachable();
}

__asm__(".globl _start\n"
        "_start:\n\t"
        "leaq own_stack + 65536, %rsp\n\t"
        "xorl %ebp, %ebp\n\t"
        "call run\n");
