/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Events between instructions: memory, threads, processes, signals, marks.
 *
 * Records are written only where no superblock is under way: after system calls, at thread
 * switches, at client requests. A superblock under way holds the write address in a register.
 */
#include "tracer.h"
#include "pub_tool_debuginfo.h"
#include "pub_tool_stacktrace.h"

/* The request number of octavo.h. */
#define OCTAVO_REQUEST 0x4f560000UL

static ThreadId running = 1;

/* Whether the program, or its parent before the fork, has given advice on huge pages. */
static Bool has_advised;

static void advise_record(Addr start, SizeT bytes, ULong advice)
{
   ULong payload[] = {start, VG_PGROUNDUP(bytes), advice};
   ring_record(OCTAVO_ADVISE, 3, payload);
}

/* ---- mappings ---- */

#define MAP_STACK 0x20000
#define MADV_COLLAPSE 25
#ifndef VKI_PR_SET_THP_DISABLE
#define VKI_PR_SET_THP_DISABLE 41
#endif

/* Whether the process has switched transparent huge pages off for itself. Each mapping is then
   reported with MADV_NOHUGEPAGE. */
static Bool forbids_huge_pages;

static void map_record(Addr start, SizeT bytes, ULong protection, ULong flags,
                       enum octavo_source source, ULong offset, const HChar* path)
{
   ring_begin(OCTAVO_MAP);
   ring_word(start);
   ring_word(VG_PGROUNDUP(bytes));
   ring_word(protection);
   ring_word(flags);
   ring_word(source);
   ring_word(offset);
   ring_text(path ? path : "");
   ring_end();
   if (forbids_huge_pages)
      advise_record(start, bytes, MADV_NOHUGEPAGE);
}

static ULong protection_of(const NSegment* seg)
{
   return (seg->hasR ? 1 : 0) | (seg->hasW ? 2 : 0) | (seg->hasX ? 4 : 0);
}

/* Cuts the part of anonymous memory from `start` to `*end` where the zeroed data (.bss) of a file
   ends: the core keeps such data in one segment with mappings that begin at its end. Returns
   whether the part begins at such an end. */
static Bool cut_zeroed_data(Addr start, Addr* end)
{
   for (const DebugInfo* file = VG_(next_DebugInfo)(NULL); file; file = VG_(next_DebugInfo)(file)) {
      const Addr zeroed = VG_(DebugInfo_get_bss_avma)(file);
      const Addr zeroed_end = VG_PGROUNDUP(zeroed + VG_(DebugInfo_get_bss_size)(file));
      if (!zeroed || zeroed >= *end || zeroed_end < start)
         continue;
      if (zeroed_end > start && zeroed_end < *end)
         *end = zeroed_end;
      return zeroed_end == start;
   }
   return False;
}

/* Describes the part of a mapping from `start` to `*end`, which is lowered to where another kind of
   memory begins. */
static void map_part(const NSegment* seg, Addr start, Addr* end)
{
   ULong flags = sharing_at(start, end);
   const Bool shared = (flags & VKI_MAP_SHARED) != 0;
   const Bool forked = ring_slot->parent_stream != OCTAVO_NO_PARENT;
   if (forked && seg->kind == SkAnonC && !shared && cut_zeroed_data(start, end))
      flags |= VKI_MAP_PRIVATE | VKI_MAP_ANONYMOUS;
   const SizeT bytes = *end - start;
   switch (seg->kind) {
      case SkFileC:
         map_record(start, bytes, protection_of(seg), shared ? VKI_MAP_SHARED : 0, OCTAVO_FILE,
                    (ULong)seg->offset + (start - seg->start), VG_(am_get_filename)(seg));
         break;
      case SkAnonC: {
         enum octavo_source source = shared                      ? OCTAVO_SHARED
                                     : placement_is_stack(start) ? OCTAVO_STACK
                                     : placement_is_heap(start)  ? OCTAVO_HEAP
                                                                  : OCTAVO_ANONYMOUS;
         /* Valgrind maps one page at the start of an empty heap. It is not the program's memory:
            brk records report the heap. */
         if (start != placement_heap_start() || bytes > VKI_PAGE_SIZE)
            map_record(start, bytes, protection_of(seg), flags & ~(ULong)VKI_MAP_SHARED, source, 0,
                       NULL);
         break;
      }
      case SkShmC:
         map_record(start, bytes, protection_of(seg), sharing_pages_at(seg->start), OCTAVO_SHARED, 0,
                    NULL);
         break;
      default: break;
   }
}

/* Describes one mapping of the process as it stands. */
static void map_segment(const NSegment* seg)
{
   for (Addr start = seg->start, end; start <= seg->end; start = end) {
      end = seg->end + 1;
      map_part(seg, start, &end);
   }
}

static void for_client_segments(void (*use)(const NSegment* seg))
{
   const UInt kinds = SkFileC | SkAnonC | SkShmC;
   Int room = 64, count;
   Addr* starts = NULL;
   do {
      VG_(free)(starts);
      starts = VG_(malloc)("octavo.segments", (SizeT)room * sizeof *starts);
      count = VG_(am_get_segment_starts)(kinds, starts, room);
      room = -count;
   } while (count < 0);
   for (Int i = 0; i < count; i++)
      use(VG_(am_find_nsegment)(starts[i]));
   VG_(free)(starts);
}

static void forbid_in_segment(const NSegment* seg)
{
   advise_record(seg->start, seg->end + 1 - seg->start, MADV_NOHUGEPAGE);
}

/* prctl(PR_SET_THP_DISABLE): for all memory, or with flags only for memory without advice. */
static void switch_huge_pages(Bool off, ULong flags)
{
   forbids_huge_pages = off && !flags;
   if (forbids_huge_pages)
      for_client_segments(forbid_in_segment);
}

static void advised(const UWord* args)
{
   const Bool asks = args[2] == MADV_HUGEPAGE || args[2] == MADV_COLLAPSE;
   has_advised |= args[2] == MADV_HUGEPAGE || args[2] == MADV_NOHUGEPAGE;
   if (!(asks && forbids_huge_pages))
      advise_record(args[0], args[1], args[2]);
}

void events_describe_process(void)
{
   struct octavo_layout layout;
   placement_layout(&layout);
   ring_begin(OCTAVO_START);
   for (UInt i = 0; i < sizeof layout / 8; i++)
      ring_word(((const ULong*)&layout)[i]);
   ring_text(placement_program());
   ring_end();
   sharing_read();
   for_client_segments(map_segment);
   if (has_advised && !forbids_huge_pages)
      sharing_read_advice(advise_record);
}

/* ---- memory ---- */

static Addr heap_end;

/* brk: Valgrind passes the new end of the heap, or the old one if it refused. */
static void heap_moved(Addr end)
{
   Addr start = placement_heap_start();
   Addr old_end = VG_PGROUNDUP(heap_end > start ? heap_end : start);
   Addr new_end = VG_PGROUNDUP(end > start ? end : start);
   heap_end = end;
   if (new_end > old_end) {
      map_record(old_end, new_end - old_end, 3, 0, OCTAVO_HEAP, 0, NULL);
   } else if (new_end < old_end) {
      ULong payload[] = {new_end, old_end - new_end};
      ring_record(OCTAVO_UNMAP, 2, payload);
   }
}

/* Which translations check that their code has not changed since they were made; by default those
   of code outside files (pub_core_options.h). */
extern UInt VG_(clo_smc_check);
#define CHECK_ALL_CODE 2

/* Just-in-time compilers that keep memory either writable or executable (Erlang's) map a file of
   memfd_create twice, and write code through the second mapping. A loader instead maps text
   privately, and as executable from the start. */
static void expect_rewriting(ULong protection, Bool may_be_written)
{
   if ((protection & VKI_PROT_EXEC) && may_be_written)
      VG_(clo_smc_check) = CHECK_ALL_CODE;
}

/* Whether the instruction at `at` is the C library's. */
static Bool is_of_c_library(Addr at)
{
   const DebugInfo* object = VG_(find_DebugInfo)(VG_(current_DiEpoch)(), at);
   const HChar* name = object ? VG_(DebugInfo_get_soname)(object) : NULL;
   return name && VG_(strncmp)(name, "libc.so.", 8) == 0;
}

/* Whether the thread is in a call of mmap that the C library has made for its malloc, not for the
   stack of a thread. */
static Bool malloc_maps(ThreadId tid, ULong flags)
{
   Addr frames[2];
   return !(flags & (VKI_MAP_SHARED | MAP_STACK))
          && VG_(get_StackTrace)(tid, frames, 2, NULL, NULL, 0) == 2 && is_of_c_library(frames[0])
          && is_of_c_library(frames[1]);
}

/* The flags of a mapping of a file. For one on hugetlbfs, or of memfd_create with MFD_HUGETLB, those
   of MAP_HUGETLB with the file's page size: the kernel needs no such flags, and ignores the size. */
static ULong flags_for_file(ULong flags, ULong fd)
{
   /* struct statfs: the type of the file system, the size of its blocks, and others. */
   ULong type_and_page[16] = {0};
   /* A filter that forbids the call would end the process. */
   if (!ring_slot->seccomp)
      raw_syscall(__NR_fstatfs, fd, (ULong)(Addr)type_and_page, 0, 0, 0, 0);
   const ULong hugetlbfs_magic = 0x958458F6;
   if (type_and_page[0] != hugetlbfs_magic)
      return flags;
   ULong log2 = 0;
   while (2UL << log2 <= type_and_page[1]) log2++;
   return (flags & ~OCTAVO_MAP_HUGE_MASK) | OCTAVO_MAP_HUGETLB | log2 << OCTAVO_MAP_HUGE_SHIFT;
}

static void mapped(ThreadId tid, Addr start, const UWord* args)
{
   const ULong flags = args[3];
   expect_rewriting(args[2], (flags & VKI_MAP_SHARED) && !(flags & VKI_MAP_ANONYMOUS));
   const NSegment* seg = VG_(am_find_nsegment)(start);
   if (flags & VKI_MAP_ANONYMOUS)
      map_record(start, args[1], args[2], flags | (malloc_maps(tid, flags) ? OCTAVO_MAP_BY_MALLOC : 0),
                 flags & VKI_MAP_SHARED ? OCTAVO_SHARED : OCTAVO_ANONYMOUS, 0, NULL);
   else
      map_record(start, args[1], args[2], flags_for_file(flags, args[4]), OCTAVO_FILE, args[5],
                 seg ? VG_(am_get_filename)(seg) : NULL);
}

static void attached(Addr start, ULong segment)
{
   const NSegment* seg = VG_(am_find_nsegment)(start);
   sharing_attached(start, segment);
   if (seg)
      map_record(start, seg->end + 1 - start, protection_of(seg), sharing_pages_of(segment),
                 OCTAVO_SHARED, 0, NULL);
}

/* shmdt names only the start; the extent is that of the mapping before the call. */
static SizeT detaching_bytes;

static Bool readable(Addr start, SizeT bytes)
{
   return VG_(am_is_valid_for_client)(start, bytes, VKI_PROT_READ);
}

void copy_text(HChar* to, SizeT room, Addr from)
{
   SizeT i = 0;
   while (i + 1 < room && readable(from + i, 1) && *(const HChar*)(from + i)) {
      to[i] = *(const HChar*)(from + i);
      i++;
   }
   to[i] = 0;
}

static void exec_record(const HChar* path)
{
   ring_begin(OCTAVO_EXEC);
   ring_text(path);
   ring_end();
}

/* Writes the last records of an image that is about to be replaced. */
static void executing(Addr path, Addr argv)
{
   HChar text[TRACER_PATH_BYTES];
   copy_text(text, sizeof text, path);
   refused_pages_finished();
   windows_finished(True);
   exec_record(text);
   ring_slot->exec_name[0] = 0;
   if (readable(argv, sizeof(Addr)))
      copy_text(ring_slot->exec_name, sizeof ring_slot->exec_name, *(const Addr*)argv);
}

/* Gives an executed program the argv[0] that its parent passed. Valgrind has put the program's path
   there; the name overwrites the end of the path if it is not longer. */
static void restore_name(ThreadId tid)
{
   const HChar* name = ring_exec_name();
   SizeT length = VG_(strlen)(name);
   Addr argv = VG_(get_SP)(tid) + sizeof(UWord);
   if (length == 0 || !readable(argv, sizeof(Addr)))
      return;
   HChar* path = *(HChar**)argv;
   if (!path || !readable((Addr)path, 1) || VG_(strlen)(path) < length)
      return;
   HChar* start = path + VG_(strlen)(path) - length;
   VG_(memcpy)(start, name, length);
   *(HChar**)argv = start;
}

/* Overwrites the sixteen random bytes that the kernel gives every image with fixed ones, since
   programs make the low bits of addresses from them: glibc's strcspn, which the loader calls, looks
   up as many as three bytes after a string's end in a table on its stack. */
static void fix_random_bytes(ThreadId tid)
{
   static const UWord at_random = 25;
   const UWord* word = (const UWord*)VG_(get_SP)(tid);
   for (word += 1 + *word + 1; *word; word++) {} /* argc, argv, the environment */
   for (word++; word[0]; word += 2)
      if (word[0] == at_random && readable(word[1], 16))
         for (UInt i = 0; i < 16; i++) ((UChar*)word[1])[i] = (UChar)(0x9e + 37 * i);
}

/* The core does not pass the exit code to tools. */
static Int exit_code;

/* A program that confines its system calls confines the tracer's, too. The very next call may be
   fatal, so the mode is set before the program's call, and reset if the call fails. */
static UInt seccomp_before;

static Bool asks_for_seccomp(UInt number, const UWord* args, UInt* mode)
{
   if (number == __NR_prctl && args[0] == VKI_PR_SET_SECCOMP)
      *mode = (UInt)args[1];
   else if (number == __NR_seccomp && args[0] <= 1)
      *mode = (UInt)args[0] + 1;
   else
      return False;
   return True;
}

static void before_syscall(ThreadId tid, UInt number, UWord* args, UInt count)
{
   placement_syscall(number, args);
   kernel_time_before(tid, number);
   UInt mode;
   if (asks_for_seccomp(number, args, &mode))
      seccomp_before = ring_set_seccomp(mode);
   switch (number) {
      case __NR_shmdt: {
         const NSegment* seg = VG_(am_find_nsegment)(args[0]);
         detaching_bytes = seg ? seg->end + 1 - args[0] : 0;
         break;
      }
      case __NR_exit:
      case __NR_exit_group: exit_code = (Int)(args[0] & 0xff); break;
      case __NR_execve: executing(args[0], args[1]); break;
      case __NR_execveat: executing(args[1], args[2]); break;
      default: break;
   }
}

static void after_syscall(ThreadId tid, UInt number, UWord* args, UInt count, SysRes result)
{
   kernel_time_after(tid);
   placement_syscall(0, NULL);
   if (sr_isError(result)) {
      UInt mode;
      if (asks_for_seccomp(number, args, &mode))
         ring_set_seccomp(seccomp_before);
      if (number == __NR_mmap && sr_Err(result) == VKI_ENOMEM)
         refused_pages_note(args[1], args[3] & VKI_MAP_ANONYMOUS
                                        ? args[3]
                                        : flags_for_file(args[3], args[4]));
      if (number == __NR_execve || number == __NR_execveat)
         exec_record("");
      return;
   }
   const ULong value = sr_Res(result);
   switch (number) {
      case __NR_mmap: mapped(tid, value, args); break;
      case __NR_munmap: {
         ULong payload[] = {args[0], VG_PGROUNDUP(args[1])};
         ring_record(OCTAVO_UNMAP, 2, payload);
         break;
      }
      case __NR_mremap: {
         ULong payload[] = {args[0], VG_PGROUNDUP(args[1]), value, VG_PGROUNDUP(args[2])};
         ring_record(OCTAVO_REMAP, 4, payload);
         break;
      }
      case __NR_brk: heap_moved(value); break;
      case __NR_mprotect: {
         const NSegment* seg = VG_(am_find_nsegment)(args[0]);
         expect_rewriting(args[2], seg && seg->kind == SkFileC);
         ULong payload[] = {args[0], VG_PGROUNDUP(args[1]), args[2]};
         ring_record(OCTAVO_PROTECT, 3, payload);
         break;
      }
      case __NR_madvise: advised(args); break;
      case __NR_prctl:
         if (args[0] == VKI_PR_SET_THP_DISABLE)
            switch_huge_pages(args[1] != 0, args[2]);
         break;
      case __NR_shmget: sharing_made(value, args[2]); break;
      case __NR_shmat: attached(value, args[0]); break;
      case __NR_shmdt: {
         ULong payload[] = {args[0], VG_PGROUNDUP(detaching_bytes)};
         ring_record(OCTAVO_UNMAP, 2, payload);
         break;
      }
      case __NR_fork:
      case __NR_vfork:
      case __NR_clone:
         /* A clone that makes a thread shares our thread group. */
         if (value != 0 && !(number == __NR_clone && (args[0] & VKI_CLONE_THREAD))) {
            ULong payload[] = {value};
            ring_record(OCTAVO_FORK, 1, payload);
         }
         break;
      default: break;
   }
}

/* ---- threads, signals, marks ---- */

static void thread_record(enum octavo_record kind, ThreadId tid)
{
   ULong payload[] = {tid};
   ring_record(kind, 1, payload);
}

static void thread_created(ThreadId parent, ThreadId child)
{
   threads_created(parent, child);
   thread_record(OCTAVO_THREAD_START, child);
}

static void thread_ended(ThreadId tid)
{
   allocations_thread_ended(tid);
   threads_name(tid);
   thread_record(OCTAVO_THREAD_END, tid);
}

static void thread_runs(ThreadId tid, ULong blocks_done)
{
   if (blocks_done == 0) {
      restore_name(tid);
      fix_random_bytes(tid);
   }
   allocations_thread_runs(tid);
   Addr start;
   SizeT bytes;
   if (placement_stack_grown(&start, &bytes))
      map_record(start, bytes, 3, 0, OCTAVO_STACK, 0, NULL);
   if (tid != running) {
      running = tid;
      threads_name(tid);
      thread_record(OCTAVO_THREAD_SWITCH, tid);
   }
}

static void thread_stops(ThreadId tid, ULong blocks_done)
{
   windows_stopped();
}

static void signal_delivered(ThreadId tid, Int signal, Bool alternate_stack)
{
   allocations_signal(tid, alternate_stack);
   job_control_delivers(signal);
   ULong payload[] = {(ULong)signal};
   ring_record(OCTAVO_SIGNAL, 1, payload);
}

static Bool client_request(ThreadId tid, UWord* args, UWord* answer)
{
   if (args[0] != OCTAVO_REQUEST)
      return False;
   ULong payload[] = {args[1]};
   ring_record(OCTAVO_MARK, 1, payload);
   *answer = 0;
   return True;
}

void events_finished(Int unused)
{
   ULong payload[] = {(ULong)exit_code};
   refused_pages_finished();
   windows_finished(False);
   ring_record(OCTAVO_EXIT, 1, payload);
}

/* The core is about to end the process by the signal that the program died of. */
extern void __real_vgPlain_kill_self(Int signal);
void __wrap_vgPlain_kill_self(Int signal);
void __wrap_vgPlain_kill_self(Int signal)
{
   ring_slot->fatal_signal = (UInt)signal;
   __real_vgPlain_kill_self(signal);
}

/* The initial mappings are complete when the core reports the first of them. */
static void first_mapping(Addr start, SizeT bytes, Bool r, Bool w, Bool x, ULong debug_info)
{
   static Bool described;
   if (!described) {
      described = True;
      events_describe_process();
   }
}

void events_init(void)
{
   kernel_time_init();
   VG_(needs_syscall_wrapper)(before_syscall, after_syscall);
   VG_(needs_client_requests)(client_request);
   VG_(track_new_mem_startup)(first_mapping);
   VG_(track_pre_thread_ll_create)(thread_created);
   VG_(track_pre_thread_ll_exit)(thread_ended);
   VG_(track_start_client_code)(thread_runs);
   VG_(track_stop_client_code)(thread_stops);
   VG_(track_pre_deliver_signal)(signal_delivered);
}
