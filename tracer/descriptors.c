/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * The tracer's own descriptors, and the limit of open files.
 *
 * Valgrind keeps its descriptors above the program's soft limit of open files and makes that limit
 * the program's hard limit, so that a server that raises its limit fails. Here the tracer's
 * descriptors lie far above the program's, and the kernel's limit is the tracer's. The program's
 * own limit is kept apart, and the program can read and change it as it can natively.
 *
 * The descriptors are inherited by the next image of a process that executes a program, under the
 * same numbers. So an image needs no path to reach the consumer, whatever user it runs as.
 */
#include "tracer.h"
#include "pub_tool_xarray.h"

/* The core's own declarations, which tools do not get. */
extern XArray* VG_(args_for_valgrind);
extern Int VG_(fd_soft_limit);
extern Int VG_(fd_hard_limit);
extern const HChar* VG_(libdir);
extern Int VG_(safe_fd)(Int oldfd);
extern SysRes VG_(mk_SysRes_Error)(UWord error);
extern SysRes VG_(mk_SysRes_Success)(UWord value);
/* The first member of the core's struct, the only one used. */
extern struct {
   Int fd;
} VG_(log_output_sink);

/* Where the tracer's descriptors end if the kernel allows it; the descriptor table has 64 Ki
   entries then. */
#define TOP_DESCRIPTOR 65536u
#define RESERVED_DESCRIPTORS 32u
/* The fewest that the core reserves for itself, where the limit is low. */
#define FEWEST_RESERVED_DESCRIPTORS 12u

#define SESSION_OPTION "--octavo-session="
#define LOG_OPTION "--log-fd="
#define FILES_OPTION "--octavo-files="

/* The limit that the program sees. */
static struct vki_rlimit program_limit;
static Int session_fd = -1, tool_dir_fd = -1;

/* ---- the options of the next image ---- */

static const HChar* option_value(const HChar* name)
{
   for (Word i = 0; i < VG_(sizeXA)(VG_(args_for_valgrind)); i++) {
      const HChar* option = *(HChar**)VG_(indexXA)(VG_(args_for_valgrind), i);
      if (VG_(strncmp)(option, name, VG_(strlen)(name)) == 0)
         return option + VG_(strlen)(name);
   }
   return NULL;
}

static void set_option(const HChar* name, ULong value, const HChar* rest)
{
   HChar* text = VG_(malloc)("octavo.option", 96);
   VG_(snprintf)(text, 96, "%s%llu%s", name, value, rest);
   for (Word i = 0; i < VG_(sizeXA)(VG_(args_for_valgrind)); i++) {
      HChar** option = VG_(indexXA)(VG_(args_for_valgrind), i);
      if (VG_(strncmp)(*option, name, VG_(strlen)(name)) == 0) {
         *option = text;
         return;
      }
   }
   VG_(addToXA)(VG_(args_for_valgrind), &text);
}

/* ---- the limit ---- */

static Bool set_kernel_limit(ULong soft, ULong hard)
{
   struct vki_rlimit limit = {soft, hard};
   return raw_syscall(__NR_setrlimit, VKI_RLIMIT_NOFILE, (ULong)(Addr)&limit, 0, 0, 0, 0) == 0;
}

static struct vki_rlimit kernel_limit(void)
{
   struct vki_rlimit limit = {1024, 1024};
   raw_syscall(__NR_getrlimit, VKI_RLIMIT_NOFILE, (ULong)(Addr)&limit, 0, 0, 0, 0);
   return limit;
}

static void apply_program_limit(void)
{
   ULong soft = program_limit.rlim_cur, reserved_from = (ULong)VG_(fd_hard_limit);
   VG_(fd_soft_limit) = (Int)(soft < reserved_from ? soft : reserved_from);
}

/* Raises the kernel's limit to make room for the descriptors. */
static void reserve_descriptors(void)
{
   struct vki_rlimit kernel = kernel_limit();
   program_limit = kernel;
   const HChar* passed = option_value(FILES_OPTION);
   if (passed) {
      HChar* rest;
      program_limit.rlim_cur = VG_(strtoull10)(passed, &rest);
      program_limit.rlim_max = VG_(strtoull10)(rest + (*rest == ','), NULL);
   }
   ULong top = TOP_DESCRIPTOR;
   if (!set_kernel_limit(top, kernel.rlim_max > top ? kernel.rlim_max : top)) {
      top = kernel.rlim_max;
      set_kernel_limit(top, top);
   }
   ULong reserved = top < 8 * RESERVED_DESCRIPTORS ? FEWEST_RESERVED_DESCRIPTORS
                                                   : RESERVED_DESCRIPTORS;
   VG_(fd_hard_limit) = (Int)(top > reserved ? top - reserved : 0);
   apply_program_limit();
}

/* The core calls this for open files once, when it makes room for its own descriptors. */
extern Int __real_vgPlain_setrlimit(Int resource, const struct vki_rlimit* limit);
Int __wrap_vgPlain_setrlimit(Int resource, const struct vki_rlimit* limit);
Int __wrap_vgPlain_setrlimit(Int resource, const struct vki_rlimit* limit)
{
   if (resource != VKI_RLIMIT_NOFILE)
      return __real_vgPlain_setrlimit(resource, limit);
   reserve_descriptors();
   return 0;
}

static Bool may_raise_limits(void)
{
   static const UInt sys_resource = 24;
   struct capabilities now;
   capabilities_get(&now);
   return (now.set[0].effective >> sys_resource) & 1;
}

/* Returns the error that the kernel would return, or 0. */
static UWord change_program_limit(const struct vki_rlimit* wanted)
{
   if (wanted->rlim_cur > wanted->rlim_max)
      return VKI_EINVAL;
   struct vki_rlimit kernel = kernel_limit();
   if (wanted->rlim_max > kernel.rlim_max && !set_kernel_limit(kernel.rlim_cur, wanted->rlim_max))
      return VKI_EPERM;
   if (wanted->rlim_max > program_limit.rlim_max && !may_raise_limits())
      return VKI_EPERM;
   program_limit = *wanted;
   apply_program_limit();
   return 0;
}

static void finish_syscall(struct syscall_status* status, UWord error)
{
   status->what = SYSCALL_COMPLETE;
   status->result = error ? VG_(mk_SysRes_Error)(error) : VG_(mk_SysRes_Success)(0);
}

SYSCALL_WRAPPER(linux_sys_prlimit64_before)
{
   const UWord *arg = arguments->arg, pid = arg[0];
   if (arg[1] != VKI_RLIMIT_NOFILE || (pid != 0 && pid != (UWord)VG_(getpid)())) {
      __real_vgSysWrap_linux_sys_prlimit64_before(tid, layout, arguments, status, flags);
      return;
   }
   const SizeT bytes = sizeof(struct vki_rlimit);
   const struct vki_rlimit *wanted = (const struct vki_rlimit*)arg[2], before = program_limit;
   UWord error = 0;
   if ((wanted && !VG_(am_is_valid_for_client)(arg[2], bytes, VKI_PROT_READ))
       || (arg[3] && !VG_(am_is_valid_for_client)(arg[3], bytes, VKI_PROT_WRITE)))
      error = VKI_EFAULT;
   else if (wanted)
      error = change_program_limit(wanted);
   if (!error && arg[3])
      *(struct vki_rlimit*)arg[3] = before;
   finish_syscall(status, error);
}

SYSCALL_WRAPPER(generic_sys_setrlimit_before)
{
   const UWord* arg = arguments->arg;
   if (arg[0] != VKI_RLIMIT_NOFILE) {
      __real_vgSysWrap_generic_sys_setrlimit_before(tid, layout, arguments, status, flags);
      return;
   }
   Bool valid = VG_(am_is_valid_for_client)(arg[1], sizeof(struct vki_rlimit), VKI_PROT_READ);
   finish_syscall(status, valid ? change_program_limit((const struct vki_rlimit*)arg[1])
                                : VKI_EFAULT);
}

extern void __real_vgSysWrap_generic_sys_getrlimit_after(ThreadId tid,
                                                         struct syscall_arguments* arguments,
                                                         struct syscall_status* status);
void __wrap_vgSysWrap_generic_sys_getrlimit_after(ThreadId tid,
                                                  struct syscall_arguments* arguments,
                                                  struct syscall_status* status);
void __wrap_vgSysWrap_generic_sys_getrlimit_after(ThreadId tid,
                                                  struct syscall_arguments* arguments,
                                                  struct syscall_status* status)
{
   __real_vgSysWrap_generic_sys_getrlimit_after(tid, arguments, status);
   if (arguments->arg[0] == VKI_RLIMIT_NOFILE)
      *(struct vki_rlimit*)arguments->arg[1] = program_limit;
}

/* ---- temporary files of the core ---- */

#ifndef __NR_memfd_create
#define __NR_memfd_create 319
#endif

/* The core keeps two files for the program to read, its command line and auxiliary vector. Both are
   kept in memory, since TMPDIR may name a directory that the program's user cannot write to. */
Int __wrap_vgPlain_mkstemp(const HChar* part_of_name, HChar* fullname);
Int __wrap_vgPlain_mkstemp(const HChar* part_of_name, HChar* fullname)
{
   fullname[0] = 0;
   Long fd = raw_syscall(__NR_memfd_create, (ULong)(Addr)part_of_name, 0, 0, 0, 0, 0);
   return fd < 0 ? -1 : VG_(safe_fd)((Int)fd);
}

extern Int __real_vgPlain_unlink(const HChar* path);
Int __wrap_vgPlain_unlink(const HChar* path);
Int __wrap_vgPlain_unlink(const HChar* path)
{
   return path[0] ? __real_vgPlain_unlink(path) : 0;
}

/* ---- from image to image ---- */

/* The path of the tool's inherited directory, up to the number of its descriptor. */
#define DIRECTORY_PATH "/proc/self/fd/"

static void set_close_on_exec(Int fd, Bool close)
{
   raw_syscall(__NR_fcntl, (ULong)fd, VKI_F_SETFD, close ? VKI_FD_CLOEXEC : 0, 0, 0, 0);
}

Int descriptors_adopt(Int inherited_session)
{
   session_fd = VG_(safe_fd)(inherited_session);
   /* The core has duplicated the inherited descriptor of the log. */
   const HChar* log = option_value(LOG_OPTION);
   Int inherited_log = log ? (Int)VG_(strtoll10)(log, NULL) : -1;
   if (inherited_log > 2 && inherited_log != VG_(log_output_sink).fd)
      raw_syscall(__NR_close, (ULong)inherited_log, 0, 0, 0, 0, 0);

   SizeT prefix = VG_(strlen)(DIRECTORY_PATH);
   if (VG_(strncmp)(VG_(libdir), DIRECTORY_PATH, prefix) == 0) {
      tool_dir_fd = (Int)VG_(strtoll10)(VG_(libdir) + prefix, NULL);
      set_close_on_exec(tool_dir_fd, True);
   } else {
      static const ULong path_only = 010000000, directory = 0200000;
      Long fd = raw_syscall(__NR_open, (ULong)(Addr)VG_(libdir), path_only | directory, 0, 0, 0, 0);
      tool_dir_fd = fd < 0 ? -1 : VG_(safe_fd)((Int)fd);
   }
   return session_fd;
}

const HChar* descriptors_tool_dir(void)
{
   static HChar path[sizeof DIRECTORY_PATH + 16];
   VG_(snprintf)(path, sizeof path, "%s%d", DIRECTORY_PATH, tool_dir_fd);
   return path;
}

void descriptors_pass_on(Bool tool_dir)
{
   HChar hard[24];
   VG_(snprintf)(hard, sizeof hard, ",%llu", (ULong)program_limit.rlim_max);
   set_option(SESSION_OPTION, (ULong)session_fd, "");
   set_option(LOG_OPTION, (ULong)VG_(log_output_sink).fd, "");
   set_option(FILES_OPTION, program_limit.rlim_cur, hard);
   set_close_on_exec(session_fd, False);
   set_close_on_exec(VG_(log_output_sink).fd, False);
   if (tool_dir)
      set_close_on_exec(tool_dir_fd, False);
}

void descriptors_leave(void)
{
   set_kernel_limit(program_limit.rlim_cur, program_limit.rlim_max);
}
