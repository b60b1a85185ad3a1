// A thread that waits for a completion of io_uring, whose request another thread submits.
//
//   ring_wait
//
// Prints "completed", or "unavailable" where the kernel refuses to make a ring.

#include <linux/io_uring.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int ring;

static long enter(unsigned to_submit, unsigned to_await) {
    unsigned flags = to_await ? IORING_ENTER_GETEVENTS : 0;
    return syscall(__NR_io_uring_enter, ring, to_submit, to_await, flags, NULL, 0);
}

static void *wait_for_one(void *unused) {
    (void)unused;
    return enter(0, 1) == 0 ? NULL : "the wait failed";
}

int main(void) {
    struct io_uring_params made = {0};
    ring = syscall(__NR_io_uring_setup, 1, &made);
    if (ring < 0) {
        puts("unavailable");
        return 0;
    }
    size_t bytes = made.sq_off.array + made.sq_entries * sizeof(unsigned);
    char *queue = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQ_RING);
    struct io_uring_sqe *requests = mmap(NULL, made.sq_entries * sizeof *requests, PROT_READ | PROT_WRITE,
                                         MAP_SHARED | MAP_POPULATE, ring, IORING_OFF_SQES);
    if (queue == MAP_FAILED || requests == MAP_FAILED) return 1;

    pthread_t waiting;
    if (pthread_create(&waiting, NULL, wait_for_one, NULL)) return 1;
    usleep(100000);  // most likely it waits by now; the result is the same where it does not
    requests[0] = (struct io_uring_sqe){.opcode = IORING_OP_NOP};
    ((unsigned *)(queue + made.sq_off.array))[0] = 0;
    atomic_fetch_add((_Atomic unsigned *)(queue + made.sq_off.tail), 1);
    if (enter(1, 0) != 1) return 1;
    void *error;
    pthread_join(waiting, &error);
    if (error) return 1;
    puts("completed");
    return 0;
}
