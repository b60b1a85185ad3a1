// 512 calls deep with 64 KiB of stack each: 32 MiB of stack.

#include <stdio.h>

__attribute__((noinline)) static int sink(int depth) {
    volatile char room[1 << 16];
    room[0] = depth;
    return depth ? sink(depth - 1) + room[0] : 0;
}

int main(void) { return printf("%d\n", sink(512)) < 0; }
