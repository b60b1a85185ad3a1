// Signals: handled, and deadly.
//
//   signals usr1        counts 1000 SIGUSR1 that it sends itself; prints the count
//   signals segv        faults 100 times and leaves the handler by siglongjmp; prints the count
//   signals die-segv    prints "before", works a little, dies of SIGSEGV
//   signals die-abort   the same with abort()
//   signals die-kill    the same with SIGKILL
//   signals die-trap    the same by `ud2`, where compilers have a program give up
//   signals die-avx512  the same by an instruction that Valgrind does not know
//   signals exit-3      the same, but exits with 3
//   signals spin        prints "ready" and works until something stops it

#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static volatile sig_atomic_t handled;
static volatile char *volatile nowhere = (char *)8;
static sigjmp_buf back;

static void count(int number) { handled += number == SIGUSR1; }

static void leave(int number) {
    handled += number == SIGSEGV;
    siglongjmp(back, 1);
}

static volatile unsigned char memory[1 << 20];

static void work(void) {
    for (size_t i = 0; i < sizeof memory; i += 64) memory[i] += 1;
}

int main(int argc, char **argv) {
    const char *mode = argc == 2 ? argv[1] : "";
    if (!strcmp(mode, "usr1")) {
        signal(SIGUSR1, count);
        for (int i = 0; i < 1000; i++) raise(SIGUSR1);
        printf("%d\n", (int)handled);
        return 0;
    }
    if (!strcmp(mode, "segv")) {
        signal(SIGSEGV, leave);
        for (volatile int i = 0; i < 100; i++)
            if (!sigsetjmp(back, 1)) *nowhere = 1;
        printf("%d\n", (int)handled);
        return 0;
    }
    if (!strcmp(mode, "spin")) {
        puts("ready");
        fflush(stdout);
        for (;;) work();
    }

    puts("before");
    fflush(stdout);
    work();
    if (!strcmp(mode, "die-segv")) *nowhere = 1;
    if (!strcmp(mode, "die-abort")) abort();
    if (!strcmp(mode, "die-trap")) __builtin_trap();
    if (!strcmp(mode, "die-kill")) raise(SIGKILL);
    // vpaddd %zmm0, %zmm0, %zmm0, in bytes for assemblers that do not know it either.
    if (!strcmp(mode, "die-avx512")) __asm__ volatile(".byte 0x62,0xf1,0x7d,0x48,0xfe,0xc0");
    if (!strcmp(mode, "exit-3")) return 3;
    fprintf(stderr, "usage: signals MODE\n");
    return 2;
}
