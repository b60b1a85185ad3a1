/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Octavo's tracer, a Valgrind tool: options and initialisation.
 */
#include "tracer.h"
#include "pub_tool_clreq.h"
#include "pub_tool_options.h"

static Int session_fd = -1;
/* Read by descriptors.c, long before the other options. */
static const HChar* open_files;
static Bool follow_children = True;
static Int allocation_frames;

static Bool process_option(const HChar* arg)
{
   if (VG_INT_CLO(arg, "--octavo-session", session_fd)) {}
   else if (VG_STR_CLO(arg, "--octavo-files", open_files)) {}
   else if (VG_BOOL_CLO(arg, "--octavo-follow", follow_children)) {}
   else if (VG_INT_CLO(arg, "--octavo-allocations", allocation_frames)) {}
   else if (VG_BOOL_CLO(arg, "--octavo-check-translations", check_translations)) {}
   else
      return False;
   return True;
}

static void print_usage(void)
{
   VG_(printf)("    --octavo-session=FD      the ring that `octavo run` made\n"
               "    --octavo-files=N,M       the program's own limits of open files\n"
               "    --octavo-follow=yes|no   trace forked children too [yes]\n"
               "    --octavo-allocations=N   report allocated blocks with N frames [0]\n");
}

static void print_debug_usage(void)
{
   VG_(printf)("    --octavo-check-translations=yes|no   have VEX check each superblock [no]\n");
}

static void child_forked(ThreadId tid)
{
   ring_reopen_in_child(follow_children);
   threads_forked(tid);
   segments_redefine();
   allocations_describe_stacks();
   events_describe_process();
   allocations_describe_blocks();
   windows_forked();
   refused_pages_forked();
}

static void post_options(void)
{
   ring_open(session_fd);
   segments_init();
   windows_init();
   threads_init();
   events_init();
   allocations_init(allocation_frames > 0 ? (UInt)allocation_frames : 0);
   VG_(atfork)(NULL, NULL, child_forked);
}

static void pre_options(void)
{
   VG_(details_name)("Octavo");
   VG_(details_version)("1");
   VG_(details_description)("a tracer of references for virtual-memory studies");
   VG_(details_copyright_author)("Copyright (C) 2026, the Octavo authors; GPL-2.0-or-later.");
   VG_(details_bug_reports_to)("the Octavo project");
   VG_(details_avg_translation_sizeB)(400);
   VG_(basic_tool_funcs)(post_options, segments_instrument, events_finished);
   VG_(needs_command_line_options)(process_option, print_usage, print_debug_usage);
}

VG_DETERMINE_INTERFACE_VERSION(pre_options)
