/* prefork CHILDREN MIB PRIVATE_MIB: a pre-forking server without clients.
 *
 * Maps MIB of shared memory and forks CHILDREN processes. Each of them writes its own part of the
 * shared memory, reads all of it, and writes PRIVATE_MIB of memory of its own. Prints the sum of
 * what they read.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, ROUNDS = 4 };

static void write_pages(char *memory, size_t bytes, char value)
{
    for (size_t at = 0; at < bytes; at += PAGE)
        memory[at] = value;
}

static void serve(char *shared, size_t bytes, size_t part, size_t own_bytes, char value, int out)
{
    char *own = mmap(NULL, own_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint64_t sum = 0;
    if (own == MAP_FAILED)
        _exit(1);
    write_pages(shared + part * (size_t)value, part, value);
    write_pages(own, own_bytes, value);
    for (int round = 0; round < ROUNDS; round++)
        for (size_t at = 0; at < bytes; at += PAGE)
            sum += (unsigned char)shared[at] == 255;
    if (write(out, &sum, sizeof sum) != sizeof sum)
        _exit(1);
    _exit(0);
}

int main(int argc, char **argv)
{
    const int children = argc > 1 ? atoi(argv[1]) : 4;
    const size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 8) << 20;
    const size_t own_bytes = (size_t)(argc > 3 ? atoi(argv[3]) : 1) << 20;
    char *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t sum = 0, one;
    int pipes[2];
    if (children < 1 || children > 100 || shared == MAP_FAILED || pipe(pipes) != 0)
        return 1;
    for (int child = 0; child < children; child++) {
        const pid_t pid = fork();
        if (pid < 0)
            return 1;
        if (pid == 0)
            serve(shared, bytes, bytes / (size_t)children / PAGE * PAGE, own_bytes, (char)child,
                  pipes[1]);
    }
    for (int child = 0; child < children; child++) {
        int status;
        if (wait(&status) < 0 || status != 0)
            return 1;
        if (read(pipes[0], &one, sizeof one) != sizeof one)
            return 1;
        sum += one;
    }
    printf("%llu\n", (unsigned long long)sum);
    return 0;
}
