/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The signals that stop a process by default: SIGTSTP (Ctrl-Z), SIGTTIN, SIGTTOU. The core catches
 * them and does nothing where the program has no handler, so that a program would run on while
 * its terminal's other processes are stopped. Here the kernel's default action holds.
 */
#include "tracer.h"

#define STOPPING_SIGNALS (1UL << (VKI_SIGTSTP - 1) | 1UL << (VKI_SIGTTIN - 1) \
                          | 1UL << (VKI_SIGTTOU - 1))

/* Declared by the core alone. */
extern Int VG_(sigaction)(Int signal, const vki_sigaction_toK_t* action,
                          vki_sigaction_fromK_t* old_action);
extern SysRes VG_(do_sys_sigaction)(Int signal, const vki_sigaction_toK_t* new_action,
                                    vki_sigaction_fromK_t* old_action);
extern SysRes VG_(do_sys_sigprocmask)(ThreadId tid, Int how, vki_sigset_t* set,
                                      vki_sigset_t* old_set);
extern Int VG_(sigprocmask)(Int how, const vki_sigset_t* set, vki_sigset_t* old_set);
extern Int __real_vgPlain_sigaction(Int signal, const vki_sigaction_toK_t* action,
                                    vki_sigaction_fromK_t* old_action);
extern SysRes __real_vgPlain_do_sys_sigaction(Int signal, const vki_sigaction_toK_t* new_action,
                                              vki_sigaction_fromK_t* old_action);
extern Int __real_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* info);

/* The action that the core has set last. */
static vki_sigaction_toK_t core_action[VKI_SIGTTOU + 1];
/* The signals that have the default action in the kernel. */
static ULong defaults;

static Bool stops_by_default(Int signal)
{
   return signal > 0 && signal <= VKI_SIGTTOU && STOPPING_SIGNALS >> (signal - 1) & 1;
}

static Int set_in_kernel(Int signal, Bool is_default, vki_sigaction_fromK_t* old_action)
{
   const ULong bit = 1UL << (signal - 1);
   vki_sigaction_toK_t action = core_action[signal];
   if (is_default)
      action.ksa_handler = VKI_SIG_DFL;
   defaults = is_default ? defaults | bit : defaults & ~bit;
   return __real_vgPlain_sigaction(signal, &action, old_action);
}

static vki_sigaction_fromK_t action_of_program(Int signal)
{
   vki_sigaction_fromK_t action;
   __real_vgPlain_do_sys_sigaction(signal, NULL, &action);
   return action;
}

/* The core sets its own handler, for the time of the program's system calls. It also checks what it
   has set before. */
Int __wrap_vgPlain_sigaction(Int signal, const vki_sigaction_toK_t* action,
                             vki_sigaction_fromK_t* old_action);
Int __wrap_vgPlain_sigaction(Int signal, const vki_sigaction_toK_t* action,
                             vki_sigaction_fromK_t* old_action)
{
   if (!stops_by_default(signal) || !action)
      return __real_vgPlain_sigaction(signal, action, old_action);
   void* const before = core_action[signal].ksa_handler;
   core_action[signal] = *action;
   const Bool is_default = action_of_program(signal).ksa_handler == VKI_SIG_DFL;
   const Int result = set_in_kernel(signal, is_default, old_action);
   if (old_action && before)
      old_action->ksa_handler = before;
   return result;
}

/* The program changes its action. The core has the same handler for the default action as for the
   program's handlers, so that it does not set it again. */
SysRes __wrap_vgPlain_do_sys_sigaction(Int signal, const vki_sigaction_toK_t* new_action,
                                       vki_sigaction_fromK_t* old_action);
SysRes __wrap_vgPlain_do_sys_sigaction(Int signal, const vki_sigaction_toK_t* new_action,
                                       vki_sigaction_fromK_t* old_action)
{
   const SysRes result = __real_vgPlain_do_sys_sigaction(signal, new_action, old_action);
   if (new_action && stops_by_default(signal))
      set_in_kernel(signal, action_of_program(signal).ksa_handler == VKI_SIG_DFL, NULL);
   return result;
}

/* A handler with SA_RESETHAND is about to run. The core then changes to the default action. */
void job_control_delivers(Int signal)
{
   if (stops_by_default(signal) && action_of_program(signal).sa_flags & VKI_SA_ONESHOT)
      set_in_kernel(signal, True, NULL);
}

/* The core takes a signal that has arrived while the program computed, with all signals blocked.
   Unblocked for a moment, a signal with the default action stops the process. The core also empties
   the queue before an exec, which signals that the program blocks outlast. */
Int __wrap_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* info);
Int __wrap_vgPlain_sigtimedwait_zero(const vki_sigset_t* set, vki_siginfo_t* info)
{
   vki_sigset_t others = *set, stopping, blocked, before;
   VG_(do_sys_sigprocmask)(VG_(get_running_tid)(), VKI_SIG_BLOCK, NULL, &blocked);
   others.sig[0] &= ~defaults;
   stopping.sig[0] = set->sig[0] & defaults & ~blocked.sig[0];
   if (stopping.sig[0]) {
      VG_(sigprocmask)(VKI_SIG_UNBLOCK, &stopping, &before);
      VG_(sigprocmask)(VKI_SIG_SETMASK, &before, NULL);
   }
   return __real_vgPlain_sigtimedwait_zero(&others, info);
}
