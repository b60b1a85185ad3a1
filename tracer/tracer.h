/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Shared by the tracer's own files. main.c is the way in; ring.c writes words; segments.c turns
 * superblocks into segments; dependences.c reads register dependences off the IR; events.c
 * watches memory, threads and processes; allocations.c the calls of the program's allocator; kernel_time.c
 * measures system calls; sharing.c distinguishes shared memory from a process's own;
 * execution.c decides how an executed program is traced; windows.c turns instrumentation on and off;
 * descriptors.c keeps the tracer's own descriptors; placement.c puts mappings where Linux would;
 * checks.c leaves out checks of VEX.
 */
#ifndef OCTAVO_TRACER_H
#define OCTAVO_TRACER_H

#include "pub_tool_basics.h"
#include "pub_tool_clientstate.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_tooliface.h"
#include "pub_tool_vki.h"
#include "pub_tool_vkiscnums.h"

#include "ring.h"

/* ---- ring.c ---- */

/* Maps the session file, inherited as descriptor `fd`, and claims a slot; an unusable session ends
   the process with a message in the log. */
void ring_open(Int fd);
/* Sets the seccomp mode that holds for the process from now on; returns the mode before. */
UInt ring_set_seccomp(UInt mode);
/* Counts a process that runs on untraced. */
void ring_count_untraced(void);
/* In a forked child: claims a slot of its own at the same address, or goes silent. */
void ring_reopen_in_child(Bool follow);
/* The slot, at one address for the life of the process: its fields are compiled into the
   instrumented code. */
extern struct octavo_slot* ring_slot;
/* The page that all processes share with the consumer. */
extern struct octavo_session* ring_session;
/* Publishes the chunk and waits for a free one. Called from instrumented code. */
void ring_next_chunk(void);
/* Begins a record; the payload words follow by ring_word and ring_text; then ring_end. */
void ring_begin(enum octavo_record kind);
void ring_word(ULong word);
void ring_text(const HChar* text);
void ring_end(void);
/* A record of up to six words at once. */
void ring_record(enum octavo_record kind, UInt words, const ULong* payload);

/* The argv[0] that the image before this one in the same process meant this one to see; empty if
   there was none. */
const HChar* ring_exec_name(void);

/* A system call that Valgrind's aspace manager must not see. */
Long raw_syscall(ULong number, ULong a, ULong b, ULong c, ULong d, ULong e, ULong f);

/* ---- segments.c ---- */

IRSB* segments_instrument(VgCallbackClosure* closure, IRSB* in, const VexGuestLayout* layout,
                          const VexGuestExtents* extents, const VexArchInfo* host,
                          IRType guest_word, IRType host_word);
void segments_init(void);
/* Writes every definition made so far: a forked child's stream begins with them. */
void segments_redefine(void);

/* ---- windows.c ---- */

void windows_init(void);
/* Whether execution is traced now. */
Bool windows_on(void);
/* Whether instructions are counted, also outside windows. */
Bool windows_count(void);
/* Adds code to the superblock that counts `instructions` more. */
void windows_count_instructions(IRSB* out, UInt instructions);
/* Instruments a superblock that is not traced, and begins at `entry`. */
IRSB* windows_instrument(IRSB* in, Addr entry);
/* Instructions executed by this image and the images that it comes from. */
ULong windows_instructions(void);
/* Goes on from the count of the last image of this process. */
void windows_continue(ULong instructions);
/* Called in a forked child, once its stream describes the process. */
void windows_forked(void);
/* Called where the image ends, or is to be `replaced` by another: records how far it has
   executed. */
void windows_finished(Bool replaced);
/* Called when the core has left translations. */
void windows_stopped(void);

/* ---- allocations.c ---- */

/* Reports the blocks that the program allocates, with this number of frames of the calls; 0:
   reports none. */
void allocations_init(UInt frames);
Bool allocations_on(void);
/* Adds to a superblock, before its first instruction, the helper that reads an allocation call
   beginning there. */
void allocations_before(IRSB* out, Addr entry);
/* Adds to a superblock, behind its last instruction, the check whether an allocation call has
   returned. */
void allocations_after(IRSB* out);
/* Write the stacks, before the mappings, and the live blocks: a forked child's stream begins with
   them. */
void allocations_describe_stacks(void);
void allocations_describe_blocks(void);
void allocations_thread_runs(ThreadId tid);
void allocations_thread_ended(ThreadId tid);
/* Called when a signal handler is about to run. */
void allocations_signal(ThreadId tid, Bool alternate_stack);

/* ---- threads.c ---- */

/* The core's default limit. */
#define MOST_THREADS 500
void threads_init(void);
/* Called by the thread `parent`. */
void threads_created(ThreadId parent, ThreadId child);
/* In a forked child, whose only thread is `tid`. */
void threads_forked(ThreadId tid);
/* Reads the name of the calling thread `tid` again. */
void threads_name(ThreadId tid);
/* The thread in the slot; NULL where the slot has no room for it. */
struct octavo_thread* threads_slot(ThreadId tid);

/* ---- kernel_time.c ---- */

void kernel_time_init(void);
/* Around a system call of a thread. */
void kernel_time_before(ThreadId tid, UInt number);
void kernel_time_after(ThreadId tid);

/* ---- dependences.c ---- */

struct dependences {
   ULong producers, reads, writes;
   /* The parts of the first two that the addresses of data do not need. */
   ULong late_producers, late_reads;
};
/* Fills out[0..instructions) for the superblock. */
void dependences_of(const IRSB* sb, struct dependences* out, UInt instructions);

/* ---- addresses.c ---- */

/* A temporary's value plus a constant, modulo 2^64; without a temporary (IRTemp_INVALID) the
   constant. */
struct address {
   IRTemp base;
   ULong offset;
};
/* Reads the sums of a superblock, for address_of. */
void addresses_of(const IRSB* sb);
/* The value of a temporary or a constant of the superblock read last. */
struct address address_of(const IRExpr* atom);

/* ---- events.c ---- */

void events_init(void);
/* Writes the START record and the mappings of the process as it stands. */
void events_describe_process(void);
/* Writes the EXIT record: the tool's last act. */
void events_finished(Int unused);
/* Copies a text of the program's, cut to `room` bytes; empty where it cannot be read. */
void copy_text(HChar* to, SizeT room, Addr from);

/* ---- sharing.c ---- */

#define MADV_HUGEPAGE 14
#define MADV_NOHUGEPAGE 15
/* MAP_HUGETLB of mmap, and the bits that hold the binary logarithm of the page size, 0 for the
   default. */
#define OCTAVO_MAP_HUGETLB 0x40000UL
#define OCTAVO_MAP_HUGE_SHIFT 26
#define OCTAVO_MAP_HUGE_MASK (0x3fUL << OCTAVO_MAP_HUGE_SHIFT)
/* Reads which mappings are shared, and which are of hugetlbfs, at present. */
void sharing_read(void);
/* The flags of mmap that `addr` had when last read: VKI_MAP_SHARED, OCTAVO_MAP_HUGETLB, both or
   none. Lowers `*end` to where they change. */
ULong sharing_at(Addr addr, Addr* end);
/* Calls `use` for each range of mappings for which madvise(MADV_HUGEPAGE) or MADV_NOHUGEPAGE
   holds. */
void sharing_read_advice(void (*use)(Addr start, SizeT bytes, ULong advice));

/* The program has called shmget with these flags, and got the segment. */
void sharing_made(ULong segment, ULong flags);
/* The segment is attached at `start`. */
void sharing_attached(Addr start, ULong segment);
/* The flags of mmap that stand for the pages of a segment, or of the one attached at `start`: with
   OCTAVO_MAP_HUGETLB, or 0 for ordinary pages. */
ULong sharing_pages_of(ULong segment);
ULong sharing_pages_at(Addr start);

/* ---- refused_pages.c ---- */

/* The kernel has refused a mapping, with these flags of mmap, for lack of memory. */
void refused_pages_note(SizeT bytes, ULong flags);
void refused_pages_finished(void);
void refused_pages_forked(void);

/* ---- job_control.c ---- */

/* A handler of the program is about to run. */
void job_control_delivers(Int signal);

/* ---- descriptors.c ---- */

/* Takes over the descriptors that the image was started with; returns the session's. */
Int descriptors_adopt(Int inherited_session);
/* Gives the descriptors to the image that is to be executed, and says so in its options; that of
   the tool's directory only if it is needed. */
void descriptors_pass_on(Bool tool_dir);
/* Gives an image that runs untraced the program's own limit of open files. */
void descriptors_leave(void);
/* The tool's directory, through a descriptor. */
const HChar* descriptors_tool_dir(void);

/* ---- execution.c ---- */

/* As capget(2) has them, version 3. */
struct capabilities {
   struct {
      UInt effective, permitted, inheritable;
   } set[2];
};
void capabilities_get(struct capabilities* out);

/* ---- the core's wrappers of system calls ---- */

/* As the core has them in priv_types_n_macros.h. */
struct syscall_arguments {
   Word number;
   UWord arg[8];
};
struct syscall_status {
   enum { SYSCALL_COMPLETE = 1 } what;
   SysRes result;
};

/* Begins a function that takes the place of the core's own, linked with --wrap (build.mk). */
#define SYSCALL_WRAPPER(name)                                                                     \
   extern void __real_vgSysWrap_##name(ThreadId tid, void* layout,                                \
                                       struct syscall_arguments* arguments,                       \
                                       struct syscall_status* status, UWord* flags);              \
   void __wrap_vgSysWrap_##name(ThreadId tid, void* layout, struct syscall_arguments* arguments,  \
                                struct syscall_status* status, UWord* flags);                     \
   void __wrap_vgSysWrap_##name(ThreadId tid, void* layout, struct syscall_arguments* arguments,  \
                                struct syscall_status* status, UWord* flags)

/* ---- checks.c ---- */

/* Whether VEX checks each superblock; an option. */
extern Bool check_translations;

/* ---- placement.c ---- */

/* The layout of this process: as traced and as Linux would have it. */
void placement_layout(struct octavo_layout* out);
/* Announces to the placement policy the mapping call that is under way (number 0: none). */
void placement_syscall(UInt number, const UWord* args);
/* The start of the brk heap. */
Addr placement_heap_start(void);
Bool placement_is_heap(Addr addr);
Bool placement_is_stack(Addr addr);
/* The path of the program's executable. */
const HChar* placement_program(void);
/* Whether the main stack has grown since the last call, and by which range. */
Bool placement_stack_grown(Addr* start, SizeT* bytes);

/* The longest path that a record carries. */
#define TRACER_PATH_BYTES 4096

#endif
