/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * An estimate of the processor time that the program's system calls take in the kernel.
 *
 * The clock of the thread, which stands still while the thread waits, is read before and after a
 * call; the time of the core's own work around a call is subtracted. Reading the clock takes as
 * long as a cheap call, so after the first calls only a sample is measured and weighted.
 */
#include "tracer.h"

/* CLOCK_THREAD_CPUTIME_ID of clock_gettime. */
#define THREAD_CPU_CLOCK 3
/* The core's default limit. */
#define MOST_THREADS 500
/* The first ALL_MEASURED calls of a thread are all measured, then one in MEASURED_OF: a prime
   number, so that calls that repeat in turn are measured equally often. */
#define ALL_MEASURED 4096
#define MEASURED_OF 17
/* The time that the core adds to a call that may wait (locks, signal masks, checks of arguments),
   in readings of the clock. On a Zen 5, each call to read, send or receive took 2.2 us longer, and
   a reading took 0.35 us. */
#define CORE_IN_READINGS 6
#define ROUNDS 32

static struct {
   ULong calls;
   /* The time before the call under way; 0 where it is not measured. */
   ULong began;
} thread[MOST_THREADS];
static ULong core_nanoseconds;

static ULong thread_time(void)
{
   struct vki_timespec now = {0, 0};
   raw_syscall(__NR_clock_gettime, THREAD_CPU_CLOCK, (ULong)(Addr)&now, 0, 0, 0, 0);
   return (ULong)now.tv_sec * 1000000000UL + (ULong)now.tv_nsec;
}

/* How many calls the one of this number stands for; 0: it is not measured. */
static ULong weight(ULong number)
{
   if (number < ALL_MEASURED)
      return 1;
   return number % MEASURED_OF == 0 ? MEASURED_OF : 0;
}

void kernel_time_init(void)
{
   ULong least = ~0UL;
   /* A filter may forbid the calls. */
   if (ring_slot->seccomp)
      return;
   for (UInt i = 0; i < ROUNDS; i++) {
      const ULong start = thread_time(), took = thread_time() - start;
      least = took < least ? took : least;
   }
   core_nanoseconds = CORE_IN_READINGS * least;
}

/* Calls that natively run in the vDSO, which the core hides, and take no time in the kernel; and
   calls during which the core reads the symbols of a library, which takes far longer than the
   kernel does. */
static Bool is_left_out(UInt number)
{
   switch (number) {
      case __NR_clock_gettime:
      case __NR_gettimeofday:
      case __NR_time:
      case __NR_getcpu:
      case __NR_mmap:
      case __NR_mprotect: return True;
      default: return False;
   }
}

void kernel_time_before(ThreadId tid, UInt number)
{
   if (tid >= MOST_THREADS || is_left_out(number))
      return;
   const Bool measured = windows_on() && !ring_slot->seccomp && weight(thread[tid].calls);
   thread[tid].began = measured ? thread_time() : 0;
}

void kernel_time_after(ThreadId tid, UInt number)
{
   if (tid >= MOST_THREADS || is_left_out(number))
      return;
   const ULong began = thread[tid].began, stands_for = weight(thread[tid].calls++);
   /* The call, or one of another thread meanwhile, may have set a filter. */
   if (!began || ring_slot->seccomp)
      return;
   const ULong now = thread_time(), least = began + core_nanoseconds;
   /* The clock of a forked child begins again. */
   if (now > least)
      ring_slot->kernel_nanoseconds += stands_for * (now - least);
}
