/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Properties of memory that the core does not report. Which mappings processes share, and which are
 * of hugetlbfs, is read from /proc/self/maps: the core keeps anonymous memory of all kinds in one
 * segment, so the segments of a forked child do not show which of its memory it shares with the
 * parent. The advice on pages that a child inherits is read from /proc/self/smaps, which takes
 * longer. System V shared memory for which the program asked huge pages is noted at its system
 * calls.
 */
#include "tracer.h"

/* A range with MAP_SHARED, OCTAVO_MAP_HUGETLB or both. */
struct range {
   Addr start, end;
   ULong flags;
};

/* In the order of addresses, as the kernel lists them. */
static struct range* known;
static UInt count, room;

static void add(Addr start, Addr end, ULong flags)
{
   if (count == room) {
      room = room ? 2 * room : 64;
      known = VG_(realloc)("octavo.shared", known, room * sizeof *known);
   }
   known[count++] = (struct range){start, end, flags};
}

/* Reads the range of a line "start-end rwxs … path", in hexadecimal. Returns the rest of the line,
   or NULL if it has no range. */
static const HChar* read_range(const HChar* line, Addr* start, Addr* end)
{
   HChar* rest;
   const Addr first = (Addr)VG_(strtoull16)(line, &rest);
   if (*rest != '-')
      return NULL;
   *start = first;
   *end = (Addr)VG_(strtoull16)(rest + 1, &rest);
   return rest;
}

/* Reads a line of maps; `s` means shared. */
static void read_mapping(const HChar* line)
{
   Addr start, end;
   const HChar* rest = read_range(line, &start, &end);
   if (!rest)
      return;
   ULong flags = VG_(strlen)(rest) > 4 && rest[4] == 's' ? VKI_MAP_SHARED : 0;
   if (VG_(strstr)(rest, "/anon_hugepage"))
      flags |= OCTAVO_MAP_HUGETLB;
   if (flags)
      add(start, end, flags);
}

/* Calls `read_line` for each line of a file, or for the first part of a long line. */
static void read_lines(const HChar* path, void (*read_line)(const HChar* line))
{
   HChar text[4096];
   UInt kept = 0;
   Bool skipping = False;
   /* A filter that forbids opening files would end the process. */
   if (ring_slot->seccomp)
      return;
   Long fd = raw_syscall(__NR_open, (ULong)(Addr)path, VKI_O_RDONLY, 0, 0, 0, 0);
   if (fd < 0)
      return;
   for (;;) {
      Long got = raw_syscall(__NR_read, (ULong)fd, (ULong)(Addr)(text + kept),
                             sizeof text - 1 - kept, 0, 0, 0);
      if (got <= 0)
         break;
      HChar* line = text;
      text[kept + (UInt)got] = 0;
      for (HChar* end; (end = VG_(strchr)(line, '\n')); line = end + 1) {
         *end = 0;
         if (!skipping)
            read_line(line);
         skipping = False;
      }
      kept = (UInt)VG_(strlen)(line);
      if (kept == sizeof text - 1) {
         /* The rest of a long path follows. */
         read_line(line);
         skipping = True;
         kept = 0;
      }
      VG_(memmove)(text, line, kept);
   }
   raw_syscall(__NR_close, (ULong)fd, 0, 0, 0, 0, 0);
}

void sharing_read(void)
{
   count = 0;
   read_lines("/proc/self/maps", read_mapping);
}

static void (*use_advice)(Addr start, SizeT bytes, ULong advice);

/* Reads a line of smaps: the first line of a mapping, or one of the lines after it, of which
   "VmFlags: …" has two letters for each flag. */
static void read_advice(const HChar* line)
{
   static Addr start, end;
   if (read_range(line, &start, &end) || VG_(strncmp)(line, "VmFlags:", 8) != 0)
      return;
   if (VG_(strstr)(line, " hg"))
      use_advice(start, end - start, MADV_HUGEPAGE);
   else if (VG_(strstr)(line, " nh"))
      use_advice(start, end - start, MADV_NOHUGEPAGE);
}

void sharing_read_advice(void (*use)(Addr start, SizeT bytes, ULong advice))
{
   use_advice = use;
   read_lines("/proc/self/smaps", read_advice);
}

ULong sharing_at(Addr addr, Addr* end)
{
   for (UInt i = 0; i < count && known[i].start < *end; i++) {
      if (addr < known[i].start) {
         *end = known[i].start;
         return 0;
      }
      if (addr < known[i].end) {
         *end = known[i].end < *end ? known[i].end : *end;
         return known[i].flags;
      }
   }
   return 0;
}

/* ---- System V shared memory ---- */

/* The core removes SHM_HUGETLB from a program's request, so the mapping does not show it. The pages
   of a segment that another program has made are known only if this program asks for huge pages,
   too. */
struct pair {
   ULong key, value;
};

struct pairs {
   struct pair* all;
   UInt count;
};

/* The pages asked for, as flags of mmap, by the segment's identifier; the identifiers of the
   segments attached, by address. */
static struct pairs pages_of_segment, segment_at;

static struct pair* find(const struct pairs* pairs, ULong key)
{
   for (UInt i = 0; i < pairs->count; i++)
      if (pairs->all[i].key == key)
         return &pairs->all[i];
   return NULL;
}

static void set(struct pairs* pairs, ULong key, ULong value)
{
   struct pair* found = find(pairs, key);
   if (found) {
      found->value = value;
      return;
   }
   pairs->all = VG_(realloc)("octavo.shm", pairs->all, (pairs->count + 1) * sizeof *pairs->all);
   pairs->all[pairs->count++] = (struct pair){key, value};
}

void sharing_made(ULong segment, ULong flags)
{
   /* The flags of shmget and mmap have the binary logarithm of the page size in the same bits. */
   if (flags & VKI_SHM_HUGETLB)
      set(&pages_of_segment, segment, OCTAVO_MAP_HUGETLB | (flags & OCTAVO_MAP_HUGE_MASK));
}

ULong sharing_pages_of(ULong segment)
{
   const struct pair* found = find(&pages_of_segment, segment);
   return found ? found->value : 0;
}

void sharing_attached(Addr start, ULong segment)
{
   if (sharing_pages_of(segment) || find(&segment_at, start))
      set(&segment_at, start, segment);
}

ULong sharing_pages_at(Addr start)
{
   const struct pair* found = find(&segment_at, start);
   return found ? sharing_pages_of(found->value) : 0;
}
