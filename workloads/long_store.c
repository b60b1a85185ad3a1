// One string instruction that stores 500,000 times, without a C library: its trace has several
// chunks.

static char memory[1 << 20];

void _start(void) {
    void *to = memory;
    unsigned long count = 500000;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(7) : "memory");
    __asm__ volatile("syscall" : : "a"(231), "D"(0));
}
