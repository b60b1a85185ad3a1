/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The threads of the process in the slot: their names, and the time of their system calls.
 *
 * Valgrind gives the number of a thread that has ended to a later one, so the slot has threads in the
 * order in which they began: that of the records OCTAVO_THREAD_START.
 */
#include "tracer.h"

#ifndef VKI_PR_GET_NAME
#define VKI_PR_GET_NAME 16
#endif

/* The place of each thread in the slot plus 1; 0: it has none. */
static UInt place[MOST_THREADS];
/* The name of the tool's executable, which the kernel gives to the first thread. */
static HChar own_name[OCTAVO_THREAD_NAME_BYTES];

/* Reads the name of the calling thread. Returns whether that was possible: a filter may forbid the
   call. */
static Bool read_name(HChar* name)
{
   return !ring_slot->seccomp
          && raw_syscall(__NR_prctl, VKI_PR_GET_NAME, (ULong)(Addr)name, 0, 0, 0, 0) == 0;
}

void threads_init(void)
{
   read_name(own_name);
}

static void begin(ThreadId tid)
{
   const UInt number = ring_slot->threads++;
   if (tid < MOST_THREADS)
      place[tid] = number < OCTAVO_THREADS ? number + 1 : 0;
}

struct octavo_thread* threads_slot(ThreadId tid)
{
   return tid < MOST_THREADS && place[tid] ? &ring_slot->thread[place[tid] - 1] : NULL;
}

void threads_name(ThreadId tid)
{
   HChar name[OCTAVO_THREAD_NAME_BYTES];
   struct octavo_thread* thread = threads_slot(tid);
   if (thread && read_name(name) && VG_(strncmp)(name, own_name, sizeof name) != 0)
      VG_(memcpy)(thread->name, name, sizeof name);
}

void threads_created(ThreadId parent, ThreadId child)
{
   /* The first thread has no parent. */
   threads_name(parent);
   begin(child);
}

void threads_forked(ThreadId tid)
{
   VG_(memset)(place, 0, sizeof place);
   begin(tid);
   threads_name(tid);
}
