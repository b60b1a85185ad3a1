//! CoLT, coalesced large-reach TLBs (Pham, Vaidyanathan, Jaleel and Bhattacharjee, MICRO 2012), as
//! Tailored Page Sizes tells of it (sections IV-B and V): base pages that lie in memory as they lie in
//! the address space share an entry.
//!
//! - What is coalesced is what a walk shows for nothing: beside the entry that it reads, the others of
//!   an aligned group of eight, 64 bytes. Those that continue it without a gap belong to its run, if they
//!   are present, lie side by side, have the same rights, were accessed (no TLB may hold what was not)
//!   and are as dirty as it is.
//! - *Set-associative* (`colt_sa`): an entry of base pages, in both levels and on both sides, holds a run
//!   inside an aligned group of [`GROUP_PAGES`], and groups choose the set. So pages side by side share a
//!   set even where nothing is coalesced.
//! - *Fully associative* (`colt_fa`): a run goes to a further first-level array of [`RANGE_ENTRIES`]
//!   entries for data, merged with a resident one that it continues, up to [`RANGE_PAGES`]. The second
//!   level gets the page alone that was asked for, so that something is left when the range gives way.
//! - *All* (`colt`): longer runs than a group go to the ranges, others to the sets; the second level gets
//!   what lies in the group.
//!
//! One dirty bit says it of all pages of an entry. So a store to a clean run is not served by it: it goes
//! to the page table, and drops the run. Whatever becomes stale drops the whole entries that it is in,
//! which are not split.
//!
//! What is assumed: the paper on CoLT has the ranges in the fully associative array of the larger pages.
//! Today's machines have sets for those; here they keep them, and the ranges have an array of their own, so
//! that what CoLT gains or loses comes from coalescing alone. Sixteen entries are at the upper end of what
//! such arrays have; sixteen pages are those that Tailored Page Sizes names as usual in section V.

use octavo_os::page_table::PageTable;
use octavo_types::{PageNumber, PageSize};

use crate::env::Env;
use crate::tlb::{Coalescing, LongRuns, Translation};

/// The logarithm of the base pages of a group.
const GROUP_LOG2: u8 = 2;
/// Base pages of a group.
pub const GROUP_PAGES: u64 = 1 << GROUP_LOG2;
/// Entries of the array of ranges.
pub const RANGE_ENTRIES: usize = 16;
/// The most pages of a range.
pub const RANGE_PAGES: u64 = 16;
/// Page-table entries of a group that a walk sees, and their bytes.
const SEEN: u64 = 8;
const ENTRY_BYTES: u64 = 8;

const RANGES: LongRuns =
    LongRuns { name: "ranges", entries: RANGE_ENTRIES, above_pages: 1, limit_pages: RANGE_PAGES };

/// Runs in the sets.
pub const SETS: Coalescing = Coalescing { group_log2: GROUP_LOG2, long_runs: None };
/// Runs in an array of their own.
pub const FULLY_ASSOCIATIVE: Coalescing = Coalescing { group_log2: 0, long_runs: Some(RANGES) };
/// Both.
pub const ALL: Coalescing = Coalescing {
    group_log2: GROUP_LOG2,
    long_runs: Some(LongRuns { above_pages: GROUP_PAGES, ..RANGES }),
};

/// A page that a walk has found, with those of its neighbours that the walk saw and that continue it: in a
/// guest, those that both the guest's line and the host's show.
pub(super) fn coalesced_with_neighbours(
    env: &Env,
    page: PageNumber,
    translation: Translation,
) -> Translation {
    if translation.size > PageSize::BASE {
        return translation;
    }
    let seen = SEEN.min(env.line_bytes() / ENTRY_BYTES) as usize;
    let runs = env.tables(page).map(|(table, page)| run_in(table, page, seen));
    let run = runs.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)));
    let (before, after) = run.unwrap_or((0, 0));
    translation.in_run(before, after)
}

/// How many pages before and after a base page that is mapped continue it, of those that the line of its
/// entry shows; all others where it is part of a larger page.
fn run_in(table: &PageTable, page: PageNumber, seen: usize) -> (u64, u64) {
    let at = page.raw() as usize % seen;
    let Some(entries) = table.beside(page, seen) else {
        let size = table.leaf(page).map_or(PageSize::BASE, |leaf| leaf.size);
        let last = (1 << size.base_shift()) - 1;
        return (page.raw() & last, last - (page.raw() & last));
    };
    let own = entries[at];
    let continues = |number: &usize| {
        let other = entries[*number];
        other.is_page(1)
            && other.size(1) == PageSize::BASE
            && other.frame(1).raw() + at as u64 == own.frame(1).raw() + *number as u64
            && other.rights() == own.rights()
            && other.used() == own.used()
    };
    let before = (0..at).rev().take_while(continues).count();
    let after = (at + 1..seen).take_while(continues).count();
    (before as u64, after as u64)
}
