// A parent, children by fork, and one by fork and exec of itself, all counting in one shared
// mapping.
//
//   forks CHILDREN      prints the counter: 100 from every child by fork
//   forks --as-child    what the child by exec does: prints "child" and exits with 7
//
// The parent exits with 0 if every child ended as it should.

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int wait_for(pid_t child) {
    int status;
    return waitpid(child, &status, 0) == child && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: forks CHILDREN\n");
        return 2;
    }
    if (!strcmp(argv[1], "--as-child")) {
        puts("child");
        return 7;
    }
    unsigned children = strtoul(argv[1], NULL, 0);
    atomic_ulong *counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE,
                                 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (counter == MAP_FAILED) return 1;
    pid_t *pids = calloc(children, sizeof *pids);
    for (unsigned c = 0; c < children; c++) {
        pids[c] = fork();
        if (pids[c] == 0) {
            for (int i = 0; i < 100; i++) atomic_fetch_add(counter, 1);
            _exit(40 + (int)c % 10);
        }
    }
    int wrong = 0;
    for (unsigned c = 0; c < children; c++) wrong |= wait_for(pids[c]) != 40 + (int)c % 10;
    printf("%lu\n", atomic_load(counter));
    fflush(stdout);

    pid_t pid = fork();
    if (pid == 0) {
        execl(argv[0], argv[0], "--as-child", (char *)NULL);
        _exit(127);
    }
    wrong |= wait_for(pid) != 7;
    return wrong;
}
