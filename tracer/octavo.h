/* SPDX-License-Identifier: Apache-2.0
 *
 * Marks that a program sets for Octavo. They cost a few instructions and do nothing when the
 * program does not run under the tracer.
 *
 *     OCTAVO_BEGIN();   begin the region of interest  (octavo run --marks)
 *     OCTAVO_END();     end it
 *     OCTAVO_MARK(n);   any other mark, n >= 16, kept in the stream as an event
 */
#ifndef OCTAVO_H
#define OCTAVO_H

#if !defined(__x86_64__)
#error "octavo.h: only x86-64 programs can be traced"
#endif

/* Valgrind recognises this sequence of rotations, which leaves every register as it was, as a
   request whose arguments rax points to and whose answer comes in rdx. */
static inline void octavo_mark(unsigned long value)
{
   volatile unsigned long request[6] = {0x4f560000UL /* 'O','V' */, value, 0, 0, 0, 0};
   unsigned long answer = 0;
   __asm__ volatile("rolq $3, %%rdi; rolq $13, %%rdi\n\t"
                    "rolq $61, %%rdi; rolq $51, %%rdi\n\t"
                    "xchgq %%rbx, %%rbx"
                    : "+d"(answer)
                    : "a"(&request[0])
                    : "cc", "memory");
   (void)answer;
}

#define OCTAVO_BEGIN() octavo_mark(1)
#define OCTAVO_END() octavo_mark(2)
#define OCTAVO_MARK(n) octavo_mark((unsigned long)(n))

#endif
