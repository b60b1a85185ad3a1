/* SPDX-License-Identifier: Apache-2.0
 *
 * A mapping is advised (MADV_HUGEPAGE) only after the kernel has accepted MADV_COLLAPSE on a part
 * of it: advice alone would override the MADV_NOHUGEPAGE of the program and of thread stacks,
 * which collapse respects.
 */
#include "collapse.h"

#include <linux/types.h>

#include "mappings.h"
#include "syscalls.h"

#define HUGE_PAGE (2UL << 20)
#define BASE_PAGE 4096UL
enum { BASE_PAGES = HUGE_PAGE / BASE_PAGE };

enum { MOST_AT_ONCE = 16 }; /* some tens of milliseconds */
enum { ADVISE_HUGEPAGE = 14, ADVISE_COLLAPSE = 25 };
enum { NO_MEMORY = -12, BUSY = -16 /* a memory cgroup's limit */ };

/* Entries of /proc/self/pagemap: Documentation/admin-guide/mm/pagemap.rst. */
#define PAGEMAP_PRESENT (1UL << 63)
#define PAGEMAP_EXCLUSIVE (1UL << 56)

/* PAGEMAP_SCAN of <linux/fs.h>, since Linux 6.7. */
struct scan {
    __u64 size, flags, start, end, walk_end, vector, vector_length, most_pages;
    __u64 inverted, all_of, any_of, returned;
};
struct scanned {
    __u64 start, end, categories;
};
#define SCAN_REQUEST 0xc0606610UL
#define SCAN_PRESENT (1UL << 3)
#define SCAN_HUGE (1UL << 6)

static unsigned long resume_at;
static __u64 entries[BASE_PAGES];

void restart_pass(void)
{
    resume_at = 0;
}

/* Finds the first page in use from `start` on. Returns 0 if there is none before `end`. If the
 * kernel cannot search, `start` is taken for a small page in use. */
static int find_used(int pagemap, unsigned long start, unsigned long end, unsigned long *found,
                     int *is_huge)
{
    struct scanned page = {0, 0, 0};
    struct scan scan = {.size = sizeof scan, .start = start, .end = end,
                        .vector = (unsigned long)&page, .vector_length = 1, .most_pages = 1,
                        .all_of = SCAN_PRESENT, .returned = SCAN_PRESENT | SCAN_HUGE};
    long count = kernel(SYS_ioctl, (unsigned)pagemap, SCAN_REQUEST, (unsigned long)&scan, 0, 0);
    if (count == 0)
        return 0;
    *found = count > 0 ? page.start : start;
    *is_huge = count > 0 && (page.categories & SCAN_HUGE) != 0;
    return 1;
}

/* Whether enough of a range is in use, by this process alone unless the memory is shared: a
 * collapse would copy pages that a fork shares. */
static int is_filled(const struct settings *settings, int pagemap, enum kind kind,
                     unsigned long range)
{
    unsigned long wanted = PAGEMAP_PRESENT | (kind == SHARED ? 0 : PAGEMAP_EXCLUSIVE);
    long got = kernel(SYS_pread64, (unsigned)pagemap, (unsigned long)entries, sizeof entries,
                      range / BASE_PAGE * sizeof entries[0], 0);
    if (got != (long)sizeof entries)
        return 0;
    unsigned long pages = 0;
    for (int i = 0; i < BASE_PAGES; i++)
        pages += (entries[i] & wanted) == wanted;
    return 100 * pages >= settings->fill_percent * BASE_PAGES;
}

/* Collapses adjacent ranges: by one call, since each call makes all processors empty their lists of
 * new pages, and one by one if this call fails. Returns 0 if every other range would be refused
 * too. */
static int collapse(unsigned long start, unsigned long end, struct outcome *outcome)
{
    if (start == end)
        return 1;
    if (kernel(SYS_madvise, start, end - start, ADVISE_COLLAPSE, 0, 0) == 0) {
        outcome->made += (end - start) / HUGE_PAGE;
        return 1;
    }
    for (; start < end; start += HUGE_PAGE) {
        long result = kernel(SYS_madvise, start, HUGE_PAGE, ADVISE_COLLAPSE, 0, 0);
        if (result == 0) {
            outcome->made++;
        } else {
            outcome->refused++;
            outcome->error = result;
            if (result == NO_MEMORY || result == BUSY)
                return 0;
        }
    }
    return 1;
}

/* Collapses the ranges of one mapping that are in use. Returns 0 if no other mapping should be
 * tried. */
static int collapse_mapping(const struct settings *settings, const struct files *files,
                            const struct mapping *mapping, struct budget *budget,
                            struct outcome *outcome)
{
    unsigned long at = (mapping->start + HUGE_PAGE - 1) & ~(HUGE_PAGE - 1);
    unsigned long end = mapping->end & ~(HUGE_PAGE - 1);
    unsigned long used, first, last; /* ranges that are to be collapsed together */
    int is_huge;
    if (at < resume_at)
        at = resume_at;
    first = last = at;
    while (at < end && find_used(files->pagemap, at, end, &used, &is_huge)) {
        at = used & ~(HUGE_PAGE - 1);
        int is_candidate = !is_huge && is_filled(settings, files->pagemap, mapping->kind, at);
        if (at != last || !is_candidate || last - first == MOST_AT_ONCE * HUGE_PAGE) {
            if (!collapse(first, last, outcome))
                return 0;
            first = last = at;
        }
        at += HUGE_PAGE;
        if (is_candidate)
            last = at;
        else
            first = last = at;
        if (is_spent(budget)) {
            resume_at = first;
            outcome->is_unfinished = 1;
            return 0;
        }
    }
    return collapse(first, last, outcome);
}

struct outcome make_pass(const struct settings *settings, const struct files *files,
                         struct budget *budget)
{
    struct outcome outcome = {0, 0, 0, 0};
    struct mapping mapping;
    if (!first_mapping(files->maps))
        return outcome;
    while (next_mapping(&mapping)) {
        unsigned long bytes = mapping.end - mapping.start;
        if (!wants(settings, mapping.kind, bytes))
            continue;
        unsigned long made = outcome.made;
        int may_go_on = collapse_mapping(settings, files, &mapping, budget, &outcome);
        /* A heap is not advised: the memory that it grows by would become a mapping of its own, and
         * the range that lies in both would keep small pages. */
        if (outcome.made != made && mapping.kind != HEAP)
            kernel(SYS_madvise, mapping.start, bytes, ADVISE_HUGEPAGE, 0, 0);
        if (!may_go_on)
            break;
    }
    if (!outcome.is_unfinished)
        restart_pass();
    return outcome;
}
