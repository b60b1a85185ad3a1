/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * System calls that may block, but that the core takes for ones that return at once.
 *
 * A thread keeps the core's lock during a call that is not marked as blocking, so no other thread
 * of the process runs meanwhile. If one of these threads has to end the wait, the process hangs.
 */
#include "tracer.h"

/* A flag of a call: SfMayBlock of the core's priv_types_n_macros.h. */
#define MAY_BLOCK 2u

/* Waits for completions of requests, which other threads may have to submit. */
SYSCALL_WRAPPER(linux_sys_io_uring_enter_before)
{
   __real_vgSysWrap_linux_sys_io_uring_enter_before(tid, layout, arguments, status, flags);
   *flags |= MAY_BLOCK;
}
