// A server without a network: it works on request and waits meanwhile.
//
//   requests
//
// Each line of input is answered by a line, once its work is done:
//
//   touch N       stores to each of the first N pages of 4 KiB
//   fork N        a child does that, and ends
//   spin          stores to the first page until SIGINT, after its answer
//   daemon        goes on in a child of a child, in a session of its own; the first process ends
//
// At the end of input, and at SIGINT, it says "bye" and ends with status 0.

#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGES = 8192, PAGE_BYTES = 4096 };
static volatile unsigned char memory[PAGES * PAGE_BYTES] __attribute__((aligned(PAGE_BYTES)));

static void touch(long pages) {
    for (long i = 0; i < pages && i < PAGES; i++) memory[i * PAGE_BYTES] += 1;
}

static void end(int number) {
    (void)number;
    static const char said[] = "bye\n";
    if (write(1, said, sizeof said - 1) < 0) _exit(1);
    _exit(0);
}

static void answer(const char *text, long number) {
    printf("%s %ld\n", text, number);
    fflush(stdout);
}

int main(void) {
    signal(SIGINT, end);
    char line[64];
    answer("ready", getpid());
    // Unbuffered, so that nothing is read ahead that a child would read again.
    setvbuf(stdin, NULL, _IONBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        long pages;
        if (sscanf(line, "touch %ld", &pages) == 1) {
            touch(pages);
            answer("touched", pages);
        } else if (sscanf(line, "fork %ld", &pages) == 1) {
            pid_t child = fork();
            if (child == 0) {
                touch(pages);
                _exit(0);
            }
            waitpid(child, NULL, 0);
            answer("forked", child);
        } else if (!strcmp(line, "spin\n")) {
            answer("spinning", getpid());
            for (;;) touch(1);
        } else if (!strcmp(line, "daemon\n")) {
            if (fork()) _exit(0);
            setsid();
            if (fork()) _exit(0);
            answer("daemon", getpid());
        } else {
            fprintf(stderr, "requests: what is %s", line);
            return 2;
        }
    }
    end(0);
}
