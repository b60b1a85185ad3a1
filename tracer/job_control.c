/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The signals that stop a process by default: SIGTSTP (Ctrl-Z), SIGTTIN, SIGTTOU. The core catches
 * them and does nothing where the program has no handler, so that a program would run on while
 * its terminal's other processes are stopped. Here the kernel's default action holds.
 */
#include "tracer.h"

/* Declared by the core alone. */
extern SysRes VG_(do_sys_sigaction)(Int signal, const vki_sigaction_toK_t* new_action,
                                    vki_sigaction_fromK_t* old_action);
extern Int VG_(sigaction)(Int signal, const vki_sigaction_toK_t* action,
                          vki_sigaction_fromK_t* old_action);

static Bool stops_by_default(Int signal)
{
   return signal == VKI_SIGTSTP || signal == VKI_SIGTTIN || signal == VKI_SIGTTOU;
}

/* Whether the program leaves the signal to its default action. */
static Bool program_has_default(Int signal)
{
   vki_sigaction_fromK_t action;
   VG_(do_sys_sigaction)(signal, NULL, &action);
   return action.ksa_handler == VKI_SIG_DFL;
}

/* The core sets its own handler, for the time of the program's system calls. It also checks what it
   has set before. */
extern Int __real_vgPlain_sigaction(Int signal, const vki_sigaction_toK_t* action,
                                    vki_sigaction_fromK_t* old_action);
Int __wrap_vgPlain_sigaction(Int signal, const vki_sigaction_toK_t* action,
                             vki_sigaction_fromK_t* old_action);
Int __wrap_vgPlain_sigaction(Int signal, const vki_sigaction_toK_t* action,
                             vki_sigaction_fromK_t* old_action)
{
   static void* wanted[VKI_SIGTTOU + 1];
   if (!stops_by_default(signal) || !action)
      return __real_vgPlain_sigaction(signal, action, old_action);
   vki_sigaction_toK_t changed = *action;
   if (program_has_default(signal))
      changed.ksa_handler = VKI_SIG_DFL;
   const Int result = __real_vgPlain_sigaction(signal, &changed, old_action);
   if (old_action && wanted[signal])
      old_action->ksa_handler = wanted[signal];
   wanted[signal] = action->ksa_handler;
   return result;
}

/* The core takes a signal that has arrived while the program computed, with all signals blocked. */
extern Int __real_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* info);
Int __wrap_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* info);
Int __wrap_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* info)
{
   const Int signal = __real_vgPlain_sigtimedwait_zero(set, info);
   if (stops_by_default(signal) && program_has_default(signal)) {
      const ULong only = 1UL << (signal - 1);
      ULong before;
      raw_syscall(__NR_tgkill, (ULong)VG_(getpid)(), (ULong)VG_(gettid)(), (ULong)signal, 0, 0, 0);
      raw_syscall(__NR_rt_sigprocmask, VKI_SIG_UNBLOCK, (ULong)(Addr)&only, (ULong)(Addr)&before,
                  sizeof before, 0, 0);
      raw_syscall(__NR_rt_sigprocmask, VKI_SIG_SETMASK, (ULong)(Addr)&before, 0, sizeof before, 0,
                  0);
   }
   return signal;
}
