/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Programs that a traced process executes: traced where possible, untraced otherwise.
 *
 * The core traces an executed program by executing a launcher with it, and ends the process if that
 * fails. The tool is its own launcher, since a launcher only chooses a tool. Two things are checked
 * before: whether the process, with its present user, can reach the tool; and whether the program
 * gains privileges by being executed, which the kernel would give to Valgrind instead.
 */
#include "tracer.h"

/* The core's own declarations, which tools do not get. */
extern const HChar* VG_(name_of_launcher);
extern const HChar* VG_(libdir);
extern Bool VG_(clo_trace_children);

#define TOOL_NAME "octavo-amd64-linux"

#ifndef __NR_faccessat2
#define __NR_faccessat2 439
#endif
#define AT_FDCWD (-100)
#define AT_EACCESS 0x200
#define READ_OK 4
#define EXECUTE_OK 1

/* ---- capabilities ---- */

struct capability_header {
   UInt version;
   Int pid;
};
static const struct capability_header own_capabilities = {0x20080522, 0};

void capabilities_get(struct capabilities* out)
{
   struct capability_header header = own_capabilities;
   VG_(memset)(out, 0, sizeof *out);
   raw_syscall(__NR_capget, (ULong)(Addr)&header, (ULong)(Addr)out, 0, 0, 0, 0);
}

static void capabilities_set(const struct capabilities* wanted)
{
   struct capability_header header = own_capabilities;
   raw_syscall(__NR_capset, (ULong)(Addr)&header, (ULong)(Addr)wanted, 0, 0, 0, 0);
}

/* Whether the capability survives an execution by a user who is not root. */
static Bool is_ambient(UInt capability)
{
   static const ULong pr_cap_ambient = 47, is_set = 1;
   return raw_syscall(__NR_prctl, pr_cap_ambient, is_set, capability, 0, 0, 0) == 1;
}

/* Drops the capabilities that open every file, unless they are ambient: a process that has changed
   its user may still have them, but a program that it executes will not. Returns the capabilities
   before. */
static struct capabilities drop_file_capabilities(void)
{
   static const UInt dac_override = 1, dac_read_search = 2;
   struct capabilities before, after;
   capabilities_get(&before);
   after = before;
   for (UInt capability = dac_override; capability <= dac_read_search; capability++)
      if (VG_(geteuid)() != 0 && !is_ambient(capability))
         after.set[0].effective &= ~(1u << capability);
   capabilities_set(&after);
   return before;
}

/* ---- obstacles to tracing ---- */

/* Whether the process's effective user may access the file. */
static Bool may_access(const HChar* path, ULong mode)
{
   Long answer = raw_syscall(__NR_faccessat2, (ULong)AT_FDCWD, (ULong)(Addr)path, mode,
                             AT_EACCESS, 0, 0);
   if (answer == -VKI_ENOSYS)
      answer = raw_syscall(__NR_access, (ULong)(Addr)path, mode, 0, 0, 0, 0);
   return answer == 0;
}

static Bool holds_tool(const HChar* directory)
{
   HChar path[TRACER_PATH_BYTES];
   VG_(snprintf)(path, sizeof path, "%s/%s", directory, TOOL_NAME);
   return may_access(path, EXECUTE_OK);
}

/* Whether the file's owner, group or capabilities give the process privileges that it does not
   have. Root has all of them, except that files it makes as another user would belong to that
   user. */
static Bool gives_privileges(const HChar* path)
{
   struct vki_stat file;
   if (raw_syscall(__NR_stat, (ULong)(Addr)path, (ULong)(Addr)&file, 0, 0, 0, 0) != 0)
      return False;
   UInt user = (UInt)VG_(geteuid)(), group = (UInt)VG_(getegid)();
   if ((file.st_mode & VKI_S_ISUID) && file.st_uid != user)
      return True;
   if (user == 0)
      return False;
   if ((file.st_mode & VKI_S_ISGID) && file.st_gid != group)
      return True;
   static const HChar capabilities[] = "security.capability";
   return raw_syscall(__NR_getxattr, (ULong)(Addr)path, (ULong)(Addr)capabilities, 0, 0, 0, 0) >= 0;
}

/* Where it traces children, the core refuses every file that is set-user-ID, set-group-ID or has
   capabilities; here only files that give privileges are refused. */
extern Int __real_vgPlain_check_executable(Bool* is_setuid, const HChar* path, Bool allow_setuid);
Int __wrap_vgPlain_check_executable(Bool* is_setuid, const HChar* path, Bool allow_setuid);
Int __wrap_vgPlain_check_executable(Bool* is_setuid, const HChar* path, Bool allow_setuid)
{
   return __real_vgPlain_check_executable(is_setuid, path,
                                          allow_setuid || !gives_privileges(path));
}

/* ---- the execution under way ---- */

enum fate { NONE, TRACED, UNTRACED };
static enum fate fate;
static const HChar *program, *obstacle;
/* The tool's directory can be reached only through the descriptor, not by its path. */
static Bool tool_by_descriptor;

static const HChar* find_obstacle(const HChar* path)
{
   const HChar* inherited = descriptors_tool_dir();
   tool_by_descriptor = VG_(strcmp)(VG_(libdir), inherited) == 0 || !holds_tool(VG_(libdir));
   if (gives_privileges(path))
      return "it gains privileges by being executed (set-user-ID, set-group-ID or file "
             "capabilities)";
   if (!may_access("/proc/self/maps", READ_OK))
      return "the process that executes it sees no /proc";
   if (tool_by_descriptor && !holds_tool(inherited))
      return "the tracer's file is out of reach for the process that executes it";
   return NULL;
}

static void decide_fate(const HChar* path)
{
   program = path;
   obstacle = NULL;
   fate = UNTRACED;
   if (!VG_(clo_trace_children))
      return; /* as the user wants it */
   struct capabilities before = drop_file_capabilities();
   obstacle = find_obstacle(path);
   capabilities_set(&before);
   if (!obstacle)
      fate = TRACED;
   VG_(clo_trace_children) = !obstacle;
}

/* Called once the core has found that the program can be executed, just before it executes the
   program. */
static void leave_image(void)
{
   if (fate == TRACED) {
      static HChar tool[TRACER_PATH_BYTES];
      VG_(snprintf)(tool, sizeof tool, "%s/%s",
                    tool_by_descriptor ? descriptors_tool_dir() : VG_(libdir), TOOL_NAME);
      VG_(name_of_launcher) = tool;
      descriptors_pass_on(tool_by_descriptor);
   } else
      descriptors_leave();
   if (obstacle) {
      VG_(umsg)("octavo tracer: %s ran untraced: %s\n", program, obstacle);
      ring_count_untraced();
   }
}

extern void __real_vgPlain_nuke_all_threads_except(ThreadId me, UInt reason);
void __wrap_vgPlain_nuke_all_threads_except(ThreadId me, UInt reason);
void __wrap_vgPlain_nuke_all_threads_except(ThreadId me, UInt reason)
{
   if (fate != NONE)
      leave_image();
   __real_vgPlain_nuke_all_threads_except(me, reason);
}

/* The core passes the tool's directory to the next image in its environment. The name of the
   launcher, which the next image's core reads, is added. */
extern void __real_vgPlain_env_setenv(HChar*** environment, const HChar* name, const HChar* value);
void __wrap_vgPlain_env_setenv(HChar*** environment, const HChar* name, const HChar* value);
void __wrap_vgPlain_env_setenv(HChar*** environment, const HChar* name, const HChar* value)
{
   Bool passed_on = fate == TRACED && VG_(strcmp)(name, "VALGRIND_LIB") == 0;
   if (passed_on)
      __real_vgPlain_env_setenv(environment, "VALGRIND_LAUNCHER", VG_(name_of_launcher));
   __real_vgPlain_env_setenv(environment, name,
                             passed_on && tool_by_descriptor ? descriptors_tool_dir() : value);
}

/* ---- the system calls ---- */

/* A program that executes /proc/self/exe means itself, but that file is Valgrind's tool. So the
   call gets the program's path instead, written to unused memory below the red zone of the stack.
   This is done in the core's own wrapper, since a tool's wrapper sees only copies of the
   arguments. */
static void name_own_program(ThreadId tid, UWord* path_argument)
{
   static const HChar own[] = "/proc/self/exe";
   HChar path[sizeof own + 1];
   copy_text(path, sizeof path, *path_argument);
   const HChar* own_program = placement_program();
   SizeT bytes = VG_(strlen)(own_program) + 1;
   Addr place = VG_(get_SP)(tid) - VG_STACK_REDZONE_SZB - bytes;
   if (VG_(strcmp)(path, own) == 0 && VG_(am_is_valid_for_client)(place, bytes, VKI_PROT_WRITE)) {
      VG_(memcpy)((void*)place, own_program, bytes);
      *path_argument = place;
   }
}

SYSCALL_WRAPPER(generic_sys_execve_before)
{
   HChar path[TRACER_PATH_BYTES];
   const Bool trace_children = VG_(clo_trace_children);
   name_own_program(tid, &arguments->arg[0]);
   copy_text(path, sizeof path, arguments->arg[0]);
   decide_fate(path);
   __real_vgSysWrap_generic_sys_execve_before(tid, layout, arguments, status, flags);
   /* The call returns only if it has failed. */
   fate = NONE;
   VG_(clo_trace_children) = trace_children;
}

/* The path of an execveat, as far as it is needed to look at the file. */
static void copy_path_at(HChar* to, SizeT room, Int directory, Addr from)
{
   HChar name[TRACER_PATH_BYTES / 2];
   copy_text(name, sizeof name, from);
   if (name[0] == '/' || (directory == AT_FDCWD && name[0]))
      VG_(snprintf)(to, (Int)room, "%s", name);
   else
      VG_(snprintf)(to, (Int)room, "/proc/self/fd/%d%s%s", directory, name[0] ? "/" : "", name);
}

SYSCALL_WRAPPER(linux_sys_execveat_before)
{
   HChar path[TRACER_PATH_BYTES];
   const Bool trace_children = VG_(clo_trace_children);
   copy_path_at(path, sizeof path, (Int)arguments->arg[0], arguments->arg[1]);
   decide_fate(path);
   __real_vgSysWrap_linux_sys_execveat_before(tid, layout, arguments, status, flags);
   fate = NONE;
   VG_(clo_trace_children) = trace_children;
}
