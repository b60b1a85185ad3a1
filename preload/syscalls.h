/* SPDX-License-Identifier: Apache-2.0
 *
 * System calls of the advising thread, without the C library. The thread shares the thread-local
 * storage of the thread that started it, so it must not set errno; it has no canary and no locale
 * of its own. Every function returns what the kernel returns: a negative error number on failure.
 */
#ifndef OCTAVO_PRELOAD_SYSCALLS_H
#define OCTAVO_PRELOAD_SYSCALLS_H

#if !defined(__x86_64__)
#error "the preload library is for x86-64"
#endif

#include <sys/syscall.h>

static inline long kernel(long number, unsigned long a, unsigned long b, unsigned long c,
                          unsigned long d, unsigned long e)
{
    long result;
    register unsigned long r10 __asm__("r10") = d;
    register unsigned long r8 __asm__("r8") = e;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return result;
}

/* Starts `run` as a task of this process on a stack of its own. Returns its thread ID, or an error.
 * The task ends when `run` returns. No thread-local storage is set up. */
static inline long start_task(unsigned long flags, void *stack_end, void (*run)(void))
{
    long result;
    register unsigned long r10 __asm__("r10") = 0;
    register unsigned long r8 __asm__("r8") = 0;
    __asm__ volatile("syscall\n\t"
                     "test %%rax, %%rax\n\t"
                     "jnz 1f\n\t"
                     "xor %%ebp, %%ebp\n\t"
                     "call *%[run]\n\t"
                     "mov %[exit], %%eax\n\t"
                     "xor %%edi, %%edi\n\t"
                     "syscall\n"
                     "1:"
                     : "=a"(result)
                     : "a"(SYS_clone), "D"(flags), "S"(stack_end), "d"(0UL), "r"(r10), "r"(r8),
                       [run] "b"(run), [exit] "i"(SYS_exit)
                     : "rcx", "r11", "memory", "cc");
    return result;
}

#endif
