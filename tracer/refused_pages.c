/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * Mappings that the kernel refuses since hugetlbfs has too few free pages. The first one of each
 * page size is reported at once, so that it is known of a program that is killed; the totals are
 * reported at the end of the image.
 */
#include "tracer.h"

/* By the binary logarithm of the page size; 0 is the default size of the kernel. */
static struct refused {
   ULong count, bytes, largest;
} refused[64];

static void report(UInt log2)
{
   const struct refused* r = &refused[log2];
   HChar size[40] = "of the default size";
   if (log2)
      VG_(sprintf)(size, "%llu KiB each", 1ULL << log2 >> 10);
   VG_(umsg)("octavo tracer: %s got no pages of hugetlbfs (%s): mappings refused: %llu, with %llu "
             "bytes in all, %llu in the largest\n",
             placement_program(), size, r->count, r->bytes, r->largest);
}

void refused_pages_note(SizeT bytes, ULong flags)
{
   if (!(flags & OCTAVO_MAP_HUGETLB))
      return;
   const UInt log2 = (flags & OCTAVO_MAP_HUGE_MASK) >> OCTAVO_MAP_HUGE_SHIFT;
   struct refused* r = &refused[log2];
   r->count++;
   r->bytes += bytes;
   if (bytes > r->largest)
      r->largest = bytes;
   if (r->count == 1)
      report(log2);
}

void refused_pages_finished(void)
{
   for (UInt log2 = 0; log2 < 64; log2++)
      if (refused[log2].count > 1)
         report(log2);
}

void refused_pages_forked(void)
{
   VG_(memset)(refused, 0, sizeof refused);
}
