/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * An estimate of the processor time that the program's system calls take in the kernel.
 *
 * The clock of the thread, which stands still while the thread waits, is read where the core enters
 * the kernel for a call and where it is back, so that the core's own work on the call (checks of its
 * arguments, locks) does not count. Reading the clock takes as long as a cheap call, so after the
 * first calls only a sample is measured and weighted.
 */
#include "tracer.h"

/* CLOCK_THREAD_CPUTIME_ID of clock_gettime. */
#define THREAD_CPU_CLOCK 3
/* The first ALL_MEASURED calls of a thread are all measured, then one in MEASURED_OF: a prime
   number, so that calls that repeat in turn are measured equally often. */
#define ALL_MEASURED 4096
#define MEASURED_OF 17
#define ROUNDS 32
#define SIGNAL_SET_BYTES 8

static struct {
   ULong calls;
   /* Whether the call under way is measured. */
   Bool measured;
   /* Times; 0 before. */
   ULong entered, left;
   /* The part of the time between that is not the call's. */
   ULong added;
} thread[MOST_THREADS];
/* Nanoseconds of a reading of the clock, alone and with two changes of the signal mask. The core
   makes these for a call that may wait. */
static ULong reading, reading_with_masks;

static ULong thread_time(void)
{
   struct vki_timespec now = {0, 0};
   raw_syscall(__NR_clock_gettime, THREAD_CPU_CLOCK, (ULong)(Addr)&now, 0, 0, 0, 0);
   return (ULong)now.tv_sec * 1000000000UL + (ULong)now.tv_nsec;
}

/* Sets the mask of signals to what it is, as often as this. Returns the time from before the first
   to after the last, with the reading of the clock. */
static ULong time_of_masks(UInt changes)
{
   vki_sigset_t mask;
   const ULong to = (ULong)(Addr)&mask;
   raw_syscall(__NR_rt_sigprocmask, VKI_SIG_SETMASK, 0, to, SIGNAL_SET_BYTES, 0, 0);
   const ULong start = thread_time();
   for (UInt i = 0; i < changes; i++)
      raw_syscall(__NR_rt_sigprocmask, VKI_SIG_SETMASK, to, to, SIGNAL_SET_BYTES, 0, 0);
   return thread_time() - start;
}

static ULong least_time_of_masks(UInt changes)
{
   ULong least = ~0UL;
   for (UInt i = 0; i < ROUNDS; i++) {
      const ULong took = time_of_masks(changes);
      least = took < least ? took : least;
   }
   return least;
}

void kernel_time_init(void)
{
   /* A filter may forbid the calls. */
   if (ring_slot->seccomp)
      return;
   reading = least_time_of_masks(0);
   reading_with_masks = least_time_of_masks(2);
}

/* How many calls the one of this number stands for; 0: it is not measured. */
static ULong weight(ULong number)
{
   if (number < ALL_MEASURED)
      return 1;
   return number % MEASURED_OF == 0 ? MEASURED_OF : 0;
}

/* Calls that natively run in the vDSO, which the core hides, and take no time in the kernel; sleeps,
   since a thread that sleeps for a time, works and sleeps again does so more often in a slower
   program; and mmap, during which the core reads the symbols of a library. */
static Bool is_left_out(UInt number)
{
   switch (number) {
      case __NR_clock_gettime:
      case __NR_gettimeofday:
      case __NR_time:
      case __NR_getcpu:
      case __NR_nanosleep:
      case __NR_clock_nanosleep:
      case __NR_mmap: return True;
      default: return False;
   }
}

/* Calls that the core makes while it checks the arguments. */
static Bool is_made_early(UInt number)
{
   switch (number) {
      case __NR_brk:
      case __NR_mremap:
      case __NR_clone:
      case __NR_fork:
      case __NR_vfork: return True;
      default: return False;
   }
}

/* Whether the thread's call under way is measured; never where a filter may forbid it, which the
   call, or one of another thread meanwhile, may have set. */
static Bool is_measured(ThreadId tid)
{
   return tid < MOST_THREADS && thread[tid].measured && !ring_slot->seccomp;
}

static void enter(ThreadId tid, ULong added)
{
   if (!is_measured(tid))
      return;
   thread[tid].added = added;
   thread[tid].entered = thread_time();
}

static void leave(ThreadId tid)
{
   if (is_measured(tid) && !thread[tid].left)
      thread[tid].left = thread_time();
}

void kernel_time_before(ThreadId tid, UInt number)
{
   if (tid >= MOST_THREADS)
      return;
   thread[tid].entered = thread[tid].left = 0;
   thread[tid].measured = False;
   if (is_left_out(number))
      return;
   thread[tid].measured = windows_on() && weight(thread[tid].calls++) > 0;
   if (is_made_early(number))
      enter(tid, reading);
}

/* The core calls this just before it makes the call, and just after it, for its debugger. */
extern void __real_vgPlain_gdbserver_report_syscall(Bool before, UWord number, ThreadId tid);
void __wrap_vgPlain_gdbserver_report_syscall(Bool before, UWord number, ThreadId tid);
void __wrap_vgPlain_gdbserver_report_syscall(Bool before, UWord number, ThreadId tid)
{
   __real_vgPlain_gdbserver_report_syscall(before, number, tid);
   if (!before || is_made_early((UInt)number))
      leave(tid);
   else
      enter(tid, reading);
}

/* A call that may wait is made without the core's lock. */
extern void __real_vgPlain_release_BigLock(ThreadId tid, UInt state, const HChar* who);
void __wrap_vgPlain_release_BigLock(ThreadId tid, UInt state, const HChar* who);
void __wrap_vgPlain_release_BigLock(ThreadId tid, UInt state, const HChar* who)
{
   __real_vgPlain_release_BigLock(tid, state, who);
   enter(tid, reading_with_masks);
}

/* Also after a signal has interrupted the call. */
extern void __real_vgPlain_acquire_BigLock(ThreadId tid, const HChar* who);
void __wrap_vgPlain_acquire_BigLock(ThreadId tid, const HChar* who);
void __wrap_vgPlain_acquire_BigLock(ThreadId tid, const HChar* who)
{
   leave(tid);
   __real_vgPlain_acquire_BigLock(tid, who);
}

void kernel_time_after(ThreadId tid)
{
   if (!is_measured(tid))
      return;
   thread[tid].measured = False;
   /* The clock of a forked child begins again. */
   const ULong least = thread[tid].entered + thread[tid].added;
   if (!thread[tid].entered || thread[tid].left <= least)
      return;
   const ULong time = weight(thread[tid].calls - 1) * (thread[tid].left - least);
   ring_slot->kernel_nanoseconds += time;
   struct octavo_thread* of_thread = threads_slot(tid);
   if (of_thread)
      of_thread->kernel_nanoseconds += time;
}
