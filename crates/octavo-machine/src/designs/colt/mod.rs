//! CoLT, coalesced large-reach TLBs (Pham, Vaidyanathan, Jaleel and Bhattacharjee, MICRO 2012), as described
//! by Guvenilir and Patt (ISCA 2020, sections IV-B and V): base pages that are contiguous in memory as in the
//! address space share a TLB entry.
//!
//! - A walk sees, at no cost, the aligned group of eight entries (64 bytes) around the entry that it reads.
//!   Neighbours that continue the page without a gap belong to its run if they are present, contiguous in
//!   memory, accessed (no TLB may hold a page that was not), have the same permissions and the same dirty
//!   bit.
//! - *Set-associative* (`colt_sa`): an entry of base pages, in both levels and on both sides, holds a run
//!   inside an aligned group of [`GROUP_PAGES`], and the group selects the set. Adjacent pages therefore
//!   share a set even where nothing is coalesced.
//! - *Fully associative* (`colt_fa`): a run is filled into an additional first-level data array of
//!   16 entries (`colt.range_entries`) and merged with a resident run that it continues, up to 16 pages
//!   (`colt.range_pages`). The
//!   second level receives only the requested page, which survives an eviction of the run.
//! - *All* (`colt`): runs longer than a group go to the array of ranges, others to the sets; the second level
//!   receives the part of the run in its group.
//!
//! An entry has one dirty bit for all its pages. A store to a clean run therefore walks the page table and
//! drops the run. An invalidation drops every overlapping entry whole.
//!
//! Assumptions: CoLT's paper puts the ranges into the fully associative array of larger pages. Current
//! machines have set-associative arrays for those; here they keep them, and the ranges have an array of their
//! own, so that coalescing is the only difference. Sixteen entries are at the upper end of such arrays;
//! sixteen pages are the usual range of Guvenilir and Patt (section V).

mod entry;
mod groups;
mod settings;

use octavo_config::{DesignTable, MachineConfig};
use octavo_os::page_table::PageTable;
use octavo_os::policy::OsConfig;
use octavo_types::{PageNumber, PageSize};

use super::conventional::OfWalk;
use super::registry::{Family, MachineResult, NamedDesign, Setup, TranslationHardware};
use super::{Conventional, build};
use crate::env::Env;
use crate::tlb::{Entry, Translation};
pub use entry::{Coalescing, LongRuns, RunEntry};
pub use settings::ColtSettings;

/// CoLT and its two halves.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<ColtSettings>()),
    ..Family::new(
    &[
        TranslationHardware::new("colt", |config, setup, os| make(config, setup, os, ALL)),
        TranslationHardware { unused_settings: &["colt"], ..TranslationHardware::new("colt_sa", |config, setup, os| make(config, setup, os, SETS)) },
        TranslationHardware::new("colt_fa", |config, setup, os| make(config, setup, os, FULLY_ASSOCIATIVE)),
    ],
    &[
        NamedDesign { name: "colt", hardware: "colt", policy: "base", about: "CoLT: entries that hold several contiguous 4 KiB pages", figure: "coalescing" },
        NamedDesign { name: "colt_sa", hardware: "colt_sa", policy: "base", about: "CoLT in set-associative arrays only", figure: "coalescing" },
        NamedDesign { name: "colt_fa", hardware: "colt_fa", policy: "base", about: "CoLT in a fully associative array only", figure: "coalescing" },
    ],
)};

fn make(
    config: &MachineConfig,
    setup: &Setup,
    os: &OsConfig,
    coalescing: Coalescing,
) -> MachineResult {
    let coalescing = config.designs.get::<ColtSettings>().applied_to(coalescing);
    build::machine(config, setup, os, || {
        let second = coalescing.of_second_level();
        Conventional::<RunEntry>::with_settings(&config.tlb, coalescing, second, setup.instructions)
    })
}

/// log2 of the base pages of a group.
const GROUP_LOG2: u8 = 2;
/// Base pages of a group.
pub const GROUP_PAGES: u64 = 1 << GROUP_LOG2;
/// Page-table entries that a walk sees at once, and their size.
const SEEN: u64 = 8;
const ENTRY_BYTES: u64 = 8;

const RANGES: LongRuns = LongRuns { name: "ranges", entries: 16, above_pages: 1, limit_pages: 16 };

/// `colt_sa`: runs in set-associative arrays.
pub const SETS: Coalescing = Coalescing { group_log2: GROUP_LOG2, long_runs: None };
/// `colt_fa`: runs in an array of their own.
pub const FULLY_ASSOCIATIVE: Coalescing = Coalescing { group_log2: 0, long_runs: Some(RANGES) };
/// `colt`: both.
pub const ALL: Coalescing = Coalescing {
    group_log2: GROUP_LOG2,
    long_runs: Some(LongRuns { above_pages: GROUP_PAGES, ..RANGES }),
};

impl OfWalk for RunEntry {
    /// Adds the run of neighbours that the walk has seen to a walked page; in a guest, the neighbours that
    /// both the guest's line and the host's show.
    fn of_walk(
        _: Coalescing,
        env: &Env,
        page: PageNumber,
        walked: Translation,
    ) -> Translation<Self> {
        let entry = RunEntry::of_page(walked.entry);
        let translation = Translation { size: walked.size, entry };
        if translation.size > PageSize::BASE {
            return translation;
        }
        let seen = SEEN.min(env.line_bytes() / ENTRY_BYTES) as usize;
        let runs = env.tables(page).map(|(table, page)| run_in(table, page, seen));
        let run = runs.reduce(|one, other| (one.0.min(other.0), one.1.min(other.1)));
        let (before, after) = run.unwrap_or((0, 0));
        translation.in_run(before, after)
    }
}

/// The number of neighbours before and after a mapped base page that continue it, among those in the line of
/// its entry; for a part of a larger page, the rest of that page.
fn run_in(table: &PageTable, page: PageNumber, seen: usize) -> (u64, u64) {
    let at = page.raw() as usize % seen;
    let Some(entries) = table.neighbour_entries(page, seen) else {
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
