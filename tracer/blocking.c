/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * System calls that wait, which the core takes for ones that return at once.
 *
 * A thread holds the core's lock in a call that is not known to wait, so that no other thread of the
 * process runs meanwhile. Where one of them would have ended the wait, the process hangs.
 */
#include "tracer.h"

/* Bit of the flags of a call, as the core has it in priv_types_n_macros.h. */
#define MAY_BLOCK 2u

/* Waits for completions, which requests of other threads bring. */
SYSCALL_WRAPPER(linux_sys_io_uring_enter_before)
{
   __real_vgSysWrap_linux_sys_io_uring_enter_before(tid, layout, arguments, status, flags);
   *flags |= MAY_BLOCK;
}
