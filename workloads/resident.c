// Fills a region of small pages, says where it lies ("PID ADDRESS BYTES"), then waits: each line of
// standard input is answered with the number of its pages that still hold what was written, until
// "exit N" or the end of the input.
//
//   resident MIB [plain|late|heap|grow|both|thread|fork|exec]
//
// plain maps the region, late does so when it has read a line, heap takes it from malloc in pieces
// of 1000 bytes, grow reads a line when it has half of that, both also maps another one like it,
// thread fills it in a second thread, fork in a child (whose exit status becomes the parent's) and
// exec after executing itself. For tests of what is done to a program from outside.

#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MIB = 1 << 20, PAGE = 4096, PIECE = 1000, HUGE_PAGE = 2 * MIB };

static char *region;
static size_t bytes;

static char *map_region(void) {
    char *p = mmap(NULL, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) {
        perror("mmap");
        exit(3);
    }
    return (char *)(((uintptr_t)p + HUGE_PAGE - 1) & ~(uintptr_t)(HUGE_PAGE - 1));
}

static void fill(void) {
    for (size_t at = 0; at < bytes; at += PAGE)
        memcpy(region + at, &at, sizeof at);
}

static void *map_and_fill(void *unused) {
    (void)unused;
    region = map_region();
    fill();
    return NULL;
}

// The heap grows by brk, piece by piece.
static void fill_heap(int reads_line) {
    char *first = malloc(PIECE), *last = first;
    for (size_t at = 0; at < bytes; at += PIECE) {
        last = malloc(PIECE);
        memset(last, 1, PIECE);
        if (reads_line && at >= bytes / 2) {
            reads_line = 0;
            if (getchar() == EOF)
                exit(3);
        }
    }
    region = (char *)(((uintptr_t)first + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    bytes = (size_t)(last - region) & ~(size_t)(PAGE - 1);
    fill();
}

static size_t intact_pages(void) {
    size_t intact = 0, held;
    for (size_t at = 0; at < bytes; at += PAGE) {
        memcpy(&held, region + at, sizeof held);
        intact += held == at;
    }
    return intact;
}

static int serve(void) {
    char line[64];
    int status = 0;
    printf("%d %p %zu\n", (int)getpid(), (void *)region, bytes);
    while (fgets(line, sizeof line, stdin) != NULL && sscanf(line, "exit %d", &status) != 1)
        printf("%zu\n", intact_pages());
    return status;
}

int main(int argc, char **argv) {
    const char *mode = argc > 2 ? argv[2] : "plain";
    if (argc < 2 || (bytes = strtoul(argv[1], NULL, 10) * MIB) == 0) {
        fprintf(stderr, "usage: resident MIB [plain|late|heap|grow|both|thread|fork|exec]\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    if (strcmp(mode, "exec") == 0) {
        execl("/proc/self/exe", argv[0], argv[1], "plain", (char *)NULL);
        return 3;
    }
    if (strcmp(mode, "fork") == 0) {
        pid_t child = fork();
        int status;
        if (child != 0)
            return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : 3;
    }
    if (strcmp(mode, "late") == 0 && getchar() == EOF)
        return 3;
    if (strcmp(mode, "both") == 0)
        map_and_fill(NULL);
    int reads_line = strcmp(mode, "grow") == 0;
    if (strcmp(mode, "heap") == 0 || strcmp(mode, "both") == 0 || reads_line) {
        fill_heap(reads_line);
    } else if (strcmp(mode, "thread") == 0) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, map_and_fill, NULL) != 0 || pthread_join(thread, NULL) != 0)
            return 3;
    } else {
        map_and_fill(NULL);
    }
    return serve();
}
