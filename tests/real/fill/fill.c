/* Fills memory by malloc: fill BLOCK_BYTES TOTAL_MIB THREADS; prints "ready" and waits. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 64 };

static size_t block_bytes, total_bytes, threads;

static void *fill(void *unused)
{
    (void)unused;
    for (size_t done = 0; done < total_bytes / threads; done += block_bytes) {
        char *block = malloc(block_bytes);
        memset(block, 1, block_bytes);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 4)
        return 2;
    block_bytes = strtoul(argv[1], NULL, 10);
    total_bytes = strtoul(argv[2], NULL, 10) << 20;
    threads = strtoul(argv[3], NULL, 10);
    if (threads < 1 || threads > MOST_THREADS || block_bytes < 1)
        return 2;
    if (threads == 1) {
        fill(NULL);
    } else {
        pthread_t made[MOST_THREADS];
        for (size_t at = 0; at < threads; at++)
            pthread_create(&made[at], NULL, fill, NULL);
        for (size_t at = 0; at < threads; at++)
            pthread_join(made[at], NULL);
    }
    printf("%s\n", "ready");
    fflush(stdout);
    pause();
    return 0;
}
