/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Mappings go where Linux would put them.
 *
 * Valgrind's own policy is bottom-up and first-fit, and aligns nothing; but alignment decides what
 * huge pages can do, and a program's own behaviour follows from it (a thread's malloc arena aligns
 * itself). So the decision is taken here, while the program runs, rather than patched up
 * afterwards: top-down below the stack gap, 2 MiB alignment as this kernel gives it, and a brk heap
 * that grows as far as a native one.
 *
 * Valgrind's address space ends at 128 GiB, so each part sits at a constant distance from its
 * native place; `placement_layout` reports the distances, and the consumer adds them. The mmap
 * area's distance is a multiple of 64 GiB: every alignment up to that is the native one.
 */
#include "tracer.h"

/* The core's own declarations (pub_core_aspacemgr.h), which tools do not get. */
typedef struct {
   enum { MFixed, MHint, MAny, MAlign } rkind;
   Addr start;
   Addr len;
} MapRequest;

extern Addr __real_vgPlain_am_get_advisory(const MapRequest* req, Bool for_client, Bool* ok);
extern Addr __real_vgPlain_am_get_advisory_client_simple(Addr start, SizeT len, Bool* ok);
extern Bool __real_vgPlain_am_create_reservation(Addr start, SizeT length, ShrinkMode mode,
                                                 SSizeT extra);
Addr __wrap_vgPlain_am_get_advisory(const MapRequest* req, Bool for_client, Bool* ok);
Addr __wrap_vgPlain_am_get_advisory_client_simple(Addr start, SizeT len, Bool* ok);
Bool __wrap_vgPlain_am_create_reservation(Addr start, SizeT length, ShrinkMode mode,
                                          SSizeT extra);
extern const NSegment* __real_vgPlain_am_extend_into_adjacent_reservation_client(Addr addr,
                                                                                 SSizeT delta,
                                                                                 Bool* overflow);
const NSegment* __wrap_vgPlain_am_extend_into_adjacent_reservation_client(Addr addr, SSizeT delta,
                                                                          Bool* overflow);

#define MIB (1024ULL * 1024)
#define GIB (1024 * MIB)
#define HUGE_PAGE (2 * MIB)

/* Linux, x86-64, four page-table levels, no randomisation. */
#define NATIVE_STACK_END 0x7ffffffff000ULL
#define NATIVE_PIE_BASE 0x555555554000ULL
#define NATIVE_MMAP_DELTA 0x7ff000000000ULL
#define MINIMUM_STACK_GAP (128 * MIB)
#define STACK_GUARD_GAP MIB

/* Under Valgrind. */
#define HEAP_START (8 * GIB)
#define HEAP_BYTES (16 * GIB)
#define MMAP_START (HEAP_START + HEAP_BYTES)
#define MMAP_END (64 * GIB)
#define PIE_BASE 0x108000ULL /* where the core's ELF loader puts position-independent programs */
/* The stack ends some 16 MiB below Valgrind's last address and is given 1 GiB at most. */
#define STACK_AREA_END 0x2000000000ULL
#define STACK_AREA (STACK_AREA_END - GIB - 32 * MIB)
#define TRACER_TEXT 0x58000000ULL /* where this tool is linked (build.mk) */

static Addr heap_start;
/* The top of the mmap area, and the vdso's hole in it, which the core does not map. */
static Addr mmap_base;
static Addr vdso_start, vdso_end;
static SizeT vdso_bytes;
static UInt kernel_version; /* major * 1000 + minor */
static Bool kernel_has_thp;
/* The call under way, as the kernel would see it. */
static UInt pending_number;
static ULong pending_flags, pending_offset;
static Int pending_fd;

/* ---- the machine ---- */

static SizeT read_file(const HChar* path, HChar* buffer, SizeT room)
{
   Long fd = raw_syscall(__NR_open, (ULong)(Addr)path, VKI_O_RDONLY, 0, 0, 0, 0);
   if (fd < 0)
      return 0;
   SizeT used = 0;
   for (Long got = 1; got > 0 && used < room - 1; used += (SizeT)got) {
      got = raw_syscall(__NR_read, (ULong)fd, (ULong)(Addr)(buffer + used), room - 1 - used, 0, 0,
                        0);
      if (got < 0)
         got = 0;
   }
   raw_syscall(__NR_close, (ULong)fd, 0, 0, 0, 0, 0);
   buffer[used] = 0;
   return used;
}

/* The bytes of the kernel's own pages, [vvar] up to [vdso], in this process. */
static SizeT measure_vdso(void)
{
   static HChar maps[64 * 1024];
   Addr low = 0, high = 0;
   Bool saw_vdso = False;
   read_file("/proc/self/maps", maps, sizeof maps);
   for (HChar* line = maps; line && *line; line = VG_(strchr)(line, '\n')) {
      if (*line == '\n')
         line++;
      HChar* end = VG_(strchr)(line, '\n');
      HChar* name = VG_(strchr)(line, '[');
      if (!name || (end && name > end))
         continue;
      Bool vvar = VG_(strncmp)(name, "[vvar", 5) == 0;
      Bool vdso = VG_(strncmp)(name, "[vdso]", 6) == 0;
      if (!vvar && !vdso)
         continue;
      HChar* rest;
      Addr start = VG_(strtoull16)(line, &rest);
      Addr stop = VG_(strtoull16)(rest + 1, &rest);
      if (!low)
         low = start;
      high = stop;
      saw_vdso |= vdso;
   }
   /* The core unmaps the vdso when it sets up the program's stack: two pages in every recent
      kernel. */
   return high - low + (saw_vdso ? 0 : 2 * VKI_PAGE_SIZE);
}

static UInt measure_kernel(void)
{
   static HChar names[6 * 65];
   if (raw_syscall(__NR_uname, (ULong)(Addr)names, 0, 0, 0, 0, 0) != 0)
      return 0;
   HChar* rest;
   ULong major = VG_(strtoull10)(names + 2 * 65, &rest);
   ULong minor = *rest == '.' ? VG_(strtoull10)(rest + 1, &rest) : 0;
   return (UInt)(major * 1000 + minor);
}

/* As mmap_base() in arch/x86/mm/mmap.c. */
static Addr measure_mmap_base(void)
{
   struct vki_rlimit stack = {0, 0};
   raw_syscall(__NR_getrlimit, VKI_RLIMIT_STACK, (ULong)(Addr)&stack, 0, 0, 0, 0);
   ULong gap = stack.rlim_cur + STACK_GUARD_GAP;
   if (gap < MINIMUM_STACK_GAP || gap > MMAP_END - MMAP_START - GIB)
      gap = MINIMUM_STACK_GAP;
   return VG_PGROUNDUP(NATIVE_STACK_END - gap) - NATIVE_MMAP_DELTA;
}

static void measure_once(void)
{
   if (mmap_base)
      return;
   HChar answer[64];
   mmap_base = measure_mmap_base();
   vdso_bytes = measure_vdso();
   kernel_version = measure_kernel();
   kernel_has_thp =
      read_file("/sys/kernel/mm/transparent_hugepage/enabled", answer, sizeof answer) > 0;
}

/* ---- the policy ---- */

static void put_vdso_below(Addr end)
{
   vdso_end = end;
   vdso_start = end - vdso_bytes;
}

/* The lowest address of the highest gap below `mmap_base` that holds `bytes`, at the gap's top:
   as vm_unmapped_area() with VM_UNMAPPED_AREA_TOPDOWN. 0 where there is none. */
static Addr highest_gap(SizeT bytes)
{
   static Addr starts[30000];
   Int count = VG_(am_get_segment_starts)(
      SkAnonC | SkAnonV | SkFileC | SkFileV | SkShmC | SkResvn, starts, 30000);
   Addr top = mmap_base;
   Bool vdso_passed = vdso_end == 0;
   for (Int i = count - 1; i >= -1; i--) {
      Addr low = MMAP_START, start = 0;
      if (i >= 0) {
         const NSegment* seg = VG_(am_find_nsegment)(starts[i]);
         start = seg->start;
         if (start >= top)
            continue;
         if (seg->end + 1 > low)
            low = seg->end + 1;
      }
      if (!vdso_passed && vdso_end > low) {
         if (top > vdso_end && top - vdso_end >= bytes)
            return top - bytes;
         top = vdso_start;
         vdso_passed = True;
      }
      if (top > low && top - low >= bytes)
         return top - bytes;
      if (start < MMAP_START)
         return 0;
      top = start;
   }
   return 0;
}

/* As __thp_get_unmapped_area(): 2 MiB of room to spare, then the place in it where `offset` of
   the file and the address agree modulo 2 MiB. */
static Addr huge_aligned_gap(SizeT bytes, ULong offset)
{
   ULong first = (offset + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
   ULong end = offset + bytes;
   if (end <= first || end - first < HUGE_PAGE)
      return 0;
   Addr gap = highest_gap(bytes + HUGE_PAGE);
   if (!gap)
      return 0;
   ULong distance = (offset - gap) & (HUGE_PAGE - 1);
   return gap + (distance ? distance : HUGE_PAGE);
}

/* As hugetlb_get_unmapped_area(): whole pages of `page` bytes. */
static Addr hugetlb_gap(SizeT bytes, SizeT page)
{
   bytes = (bytes + page - 1) & ~(page - 1);
   const SizeT spare = page - VKI_PAGE_SIZE;
   Addr gap = highest_gap(bytes + spare);
   return gap ? (gap + spare) & ~(page - 1) : 0;
}

/* File systems whose files ask for huge-page alignment: ext2-4, xfs, btrfs. */
static Bool aligns_files(Int fd)
{
   ULong answer[16] = {0};
   raw_syscall(__NR_fstatfs, (ULong)fd, (ULong)(Addr)answer, 0, 0, 0, 0);
   return answer[0] == 0xEF53 || answer[0] == 0x58465342 || answer[0] == 0x9123683E;
}

static Bool wants_huge_alignment(SizeT bytes)
{
   if (!kernel_has_thp || pending_number == 0)
      return False;
   if (pending_number == __NR_mmap && !(pending_flags & VKI_MAP_ANONYMOUS))
      return aligns_files(pending_fd);
   if (pending_flags & VKI_MAP_SHARED)
      return False;
   /* Anonymous memory since 6.7; only whole huge pages since 6.12. */
   return kernel_version >= 6012 ? bytes % HUGE_PAGE == 0 : kernel_version >= 6007;
}

/* The core's preload library is not part of the program: it must not take a native place. */
static Bool is_core_preload(void)
{
   HChar link[64], path[512];
   if (pending_number != __NR_mmap || (pending_flags & VKI_MAP_ANONYMOUS))
      return False;
   VG_(snprintf)(link, sizeof link, "/proc/self/fd/%d", pending_fd);
   SSizeT length = VG_(readlink)(link, path, sizeof path - 1);
   if (length <= 0)
      return False;
   path[length] = 0;
   return VG_(strstr)(path, "/vgpreload_") != NULL;
}

/* Where the kernel would put a mapping of `bytes`, or 0 to leave it to the core. */
static Addr place(SizeT bytes)
{
   measure_once();
   bytes = VG_PGROUNDUP(bytes);
   if (is_core_preload())
      return 0;
   if (pending_number == __NR_mmap && (pending_flags & VKI_MAP_32BIT))
      return 0;
   if (!ring_slot) {
      /* The program is being loaded: this is its interpreter. The kernel's own pages follow. */
      Addr interpreter = highest_gap(bytes);
      put_vdso_below(interpreter);
      return interpreter;
   }
   if (!vdso_end)
      put_vdso_below(mmap_base);
   if (pending_number == __NR_shmat && (pending_flags & OCTAVO_MAP_HUGETLB)) {
      ULong log2 = (pending_flags & OCTAVO_MAP_HUGE_MASK) >> OCTAVO_MAP_HUGE_SHIFT;
      return hugetlb_gap(bytes, log2 > 21 ? 1UL << log2 : HUGE_PAGE);
   }
   Addr aligned = wants_huge_alignment(bytes) ? huge_aligned_gap(bytes, pending_offset) : 0;
   return aligned ? aligned : highest_gap(bytes);
}

void placement_syscall(UInt number, const UWord* args)
{
   pending_number =
      number == __NR_mmap || number == __NR_mremap || number == __NR_shmat ? number : 0;
   pending_flags = number == __NR_mmap    ? args[3]
                   : number == __NR_shmat ? VKI_MAP_SHARED | sharing_pages_of(args[0])
                                          : 0;
   pending_fd = number == __NR_mmap ? (Int)args[4] : -1;
   pending_offset =
      number == __NR_mmap && !(pending_flags & VKI_MAP_ANONYMOUS) ? args[5] : 0;
}

/* A message for the consumer, at the first failure only: a program may ask again for less and
   less. */
static void report_lack_of_room(SizeT bytes)
{
   static Bool reported;
   static const HChar* const units[] = {"KiB", "MiB", "GiB", "TiB"};
   ULong size = VG_PGROUNDUP(bytes) / 1024;
   UInt unit = 0;
   for (; unit < 3 && size >= 1024 && size % 1024 == 0; unit++)
      size /= 1024;
   if (!reported)
      VG_(umsg)("octavo tracer: %s asked for %llu %s of address space in one piece and got none: "
                "Valgrind has 128 GiB in all, %s\n", placement_program(), size, units[unit],
                bytes < 64 * GIB ? "and no piece that is free is so large"
                                 : "with its own memory in the middle, so that no piece has 64 GiB");
   reported = True;
}

Addr __wrap_vgPlain_am_get_advisory(const MapRequest* req, Bool for_client, Bool* ok)
{
   if (!for_client || req->rkind == MFixed || req->rkind == MAlign || req->len == 0)
      return __real_vgPlain_am_get_advisory(req, for_client, ok);
   if (req->rkind == MHint) {
      Addr advised = __real_vgPlain_am_get_advisory(req, for_client, ok);
      if (*ok && advised == req->start)
         return advised;
   }
   Addr placed = place(req->len);
   if (placed) {
      *ok = True;
      return placed;
   }
   Addr advised = __real_vgPlain_am_get_advisory(req, for_client, ok);
   if (!*ok)
      report_lack_of_room(req->len);
   return advised;
}

Addr __wrap_vgPlain_am_get_advisory_client_simple(Addr start, SizeT len, Bool* ok)
{
   if (start == 0) {
      /* While the program is being loaded, the core asks only for the brk heap in this way. */
      Addr placed = ring_slot ? place(len) : HEAP_START;
      if (placed) {
         *ok = True;
         return placed;
      }
   }
   return __real_vgPlain_am_get_advisory_client_simple(start, len, ok);
}

/* The core reserves 8 MiB for the brk heap; a native heap grows further. The core first asks for
   room behind the image, which it gets where the image ends above the core's lowest address (64
   MiB). This request is refused, so that the heap of every program starts at the same address. */
Bool __wrap_vgPlain_am_create_reservation(Addr start, SizeT length, ShrinkMode mode, SSizeT extra)
{
   if (mode == SmLower && !heap_start) {
      if (start != HEAP_START + (SizeT)extra)
         return False;
      heap_start = HEAP_START;
      length = HEAP_BYTES - (SizeT)extra;
   }
   return __real_vgPlain_am_create_reservation(start, length, mode, extra);
}

/* The stack grows while a superblock runs, when no record may be written: its growth is recorded
   at the next place where records may be written. */
static Addr stack_grown_from, stack_grown_to;

const NSegment* __wrap_vgPlain_am_extend_into_adjacent_reservation_client(Addr addr, SSizeT delta,
                                                                          Bool* overflow)
{
   const NSegment* seg = VG_(am_find_nsegment)(addr);
   Addr start = seg ? seg->start : 0;
   const NSegment* extended =
      __real_vgPlain_am_extend_into_adjacent_reservation_client(addr, delta, overflow);
   if (extended && delta < 0 && placement_is_stack(start)) {
      if (!stack_grown_to)
         stack_grown_to = start;
      stack_grown_from = start + (Addr)delta;
   }
   return extended;
}

Bool placement_stack_grown(Addr* start, SizeT* bytes)
{
   if (!stack_grown_to)
      return False;
   *start = stack_grown_from;
   *bytes = stack_grown_to - stack_grown_from;
   stack_grown_to = 0;
   return True;
}

/* ---- the layout, for the rest of the tracer ---- */

Addr placement_heap_start(void)
{
   return heap_start;
}

Bool placement_is_heap(Addr addr)
{
   return heap_start && addr >= heap_start && addr < heap_start + HEAP_BYTES;
}

Bool placement_is_stack(Addr addr)
{
   return addr >= STACK_AREA && addr < STACK_AREA_END;
}

/* The program's own image: the client mappings below the tracer's. Its end is only meaningful
   before the program has run. */
static void find_image(Addr* image_start, Addr* image_end, Addr* stack_end)
{
   static Addr starts[1024];
   Int count = VG_(am_get_segment_starts)(SkFileC | SkAnonC, starts, 1024);
   *image_start = *image_end = *stack_end = 0;
   for (Int i = 0; i < count; i++) {
      const NSegment* seg = VG_(am_find_nsegment)(starts[i]);
      if (seg->start < TRACER_TEXT) {
         if (!*image_start)
            *image_start = seg->start;
         *image_end = seg->end + 1;
      } else if (placement_is_stack(seg->start)) {
         *stack_end = seg->end + 1;
      }
   }
}

/* Looked up at the first call, while only the program's own image lies below the tracer's. */
const HChar* placement_program(void)
{
   static HChar program[TRACER_PATH_BYTES];
   static Bool known;
   if (!known) {
      known = True;
      Addr image_start, image_end, stack_end;
      find_image(&image_start, &image_end, &stack_end);
      const NSegment* seg = VG_(am_find_nsegment)(image_start);
      const HChar* path = seg ? VG_(am_get_filename)(seg) : NULL;
      if (path)
         VG_(strncpy)(program, path, sizeof program - 1);
   }
   return program;
}

static void add_range(struct octavo_layout* layout, UInt* used, Addr start, Addr end, ULong delta)
{
   layout->range[*used].start = start;
   layout->range[*used].end = end;
   layout->range[*used].delta = delta;
   (*used)++;
}

void placement_layout(struct octavo_layout* out)
{
   static struct octavo_layout layout;
   static Bool known;
   if (!known) {
      known = True;
      measure_once();
      Addr image_start, image_end, stack_end;
      find_image(&image_start, &image_end, &stack_end);
      UInt used = 0;
      ULong image_delta = image_start == PIE_BASE ? NATIVE_PIE_BASE - PIE_BASE : 0;
      add_range(&layout, &used, image_start, image_end, image_delta);
      if (heap_start)
         add_range(&layout, &used, heap_start, heap_start + HEAP_BYTES,
                   image_end + image_delta - heap_start);
      add_range(&layout, &used, MMAP_START, MMAP_END, NATIVE_MMAP_DELTA);
      add_range(&layout, &used, STACK_AREA, stack_end, NATIVE_STACK_END - stack_end);
      layout.stack_start = STACK_AREA;
      layout.stack_end = stack_end;
   }
   *out = layout;
}
