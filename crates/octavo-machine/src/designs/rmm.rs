//! Redundant Memory Mappings (Karakostas et al., ISCA 2015), as described by Guvenilir and Patt (ISCA 2020,
//! sections IV-B and V): beside its page table an address space has a table of ranges, each a number of pages
//! that are contiguous in memory as in the address space. A *range TLB* beside the second-level TLB caches
//! ranges.
//!
//! - A first-level miss looks up the second level and the range TLB in parallel. A range hit creates an entry
//!   of the page size of the page table for the first level (so that the first level misses no more often
//!   than without ranges), and none for the second. A look-up of the range TLB, hit or miss, takes as long as
//!   the second level's, in parallel with it.
//! - If both miss, the page table is walked. The walk of the range table follows off the critical path: it
//!   fills the range TLB and costs no time. Ranges of a single page are not cached.
//! - An invalidation drops every overlapping range whole.
//!
//! Assumptions: the range TLB has 32 entries (`rmm.range_entries`), fully associative, LRU. The range table is a B-tree of
//! 4 KiB nodes with [`FAN_OUT`] ranges each (32 bytes: base, limit, offset with permissions, child pointer);
//! a walk reads one line per level and bypasses the data caches. Ranges have no accessed and dirty bits: an
//! access through a range sets the page's bits at no cost. Eager paging creates the ranges. In a guest the
//! host does the same with a range table of its own, and the range TLB holds intersections of guest and host
//! ranges.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, DesignTable, InvalidValue, MachineConfig, TlbConfig};
use octavo_hw::Asid;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_types::{Access, FrameNumber, Instructions, PageNumber, PageSize};
use serde::{Deserialize, Serialize};

use super::registry::{Family, MachineResult, NamedDesign, RANGES, Setup, TranslationHardware};
use super::{Conventional, build};
use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::LineAccess;
use crate::tlb::{Lookup, Ranges, TlbEntry, Translation};

/// Redundant Memory Mappings.
#[rustfmt::skip]
pub const FAMILY: Family = Family {
    settings: Some(DesignTable::of::<RmmSettings>()),
    ..Family::new(
    &[TranslationHardware {
        needs: Some(&RANGES),
        ..TranslationHardware::new("rmm", make)
    }],
    &[NamedDesign { name: "rmm", hardware: "rmm", policy: "eager", about: "Redundant Memory Mappings: a range TLB beside the second level", figure: "range-tlb" }],
)};

fn make(config: &MachineConfig, setup: &Setup, os: &OsConfig) -> MachineResult {
    build::machine(config, setup, os, || {
        Rmm::new(&config.tlb, config.designs.get(), setup.instructions)
    })
}

/// `[rmm]`: the settings of the range TLB.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RmmSettings {
    /// Entries of the range TLB.
    pub range_entries: u64,
}

impl Default for RmmSettings {
    fn default() -> Self {
        RmmSettings { range_entries: 32 }
    }
}

impl DesignSettings for RmmSettings {
    const TABLE: &'static str = "rmm";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        check_range("rmm.range_entries", self.range_entries, 1, Ranges::MAX_ENTRIES)
    }
}

/// Ranges of a node of the range table.
pub const FAN_OUT: u64 = 128;

/// Redundant Memory Mappings.
pub struct Rmm {
    conventional: Conventional,
    ranges: Ranges,
    lookups: Lookups,
    walks: u64,
    /// Lines of the range table read.
    reads: u64,
}

impl Rmm {
    /// A unit with empty TLBs.
    pub fn new(
        config: &TlbConfig,
        settings: &RmmSettings,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        Ok(Rmm {
            conventional: Conventional::new(config, instructions)?,
            ranges: Ranges::new(settings.range_entries as usize),
            lookups: Lookups::default(),
            walks: 0,
            reads: 0,
        })
    }

    /// Serves a first-level miss.
    #[inline(never)]
    fn serve_l1_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        // Both are looked up in parallel; the second level's latency covers both.
        let in_second = self.conventional.look_up_l2(env, page, access);
        let is_in_range = self.look_up(env.asid(), page, access);
        if let Lookup::Hit(translation) = in_second {
            return Some(translation);
        }
        let translation = if is_in_range {
            self.resolve(env, page, access)?
        } else {
            self.walk_page_and_range_tables(env, page, access, in_second)?
        };
        self.conventional.fill_l1(env.asid(), page, translation, access);
        Some(translation)
    }

    /// Replaces a first-level entry that does not permit the access, by a range or a walk.
    #[inline(never)]
    fn serve_permission_miss(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_first: Lookup,
    ) -> Option<Translation> {
        let is_in_range = self.look_up(env.asid(), page, access);
        env.charge_l2_lookup(self.conventional.l2_latency_cycles(), is_in_range);
        let translation = if is_in_range {
            self.resolve(env, page, access)?
        } else {
            self.walk_page_and_range_tables(env, page, access, in_first)?
        };
        self.conventional.replace_l1(env.asid(), page, translation, access);
        Some(translation)
    }

    /// Looks a page up in the range TLB. Returns whether a range permits the access.
    fn look_up(&mut self, asid: Asid, page: PageNumber, access: LineAccess) -> bool {
        let translation = self.ranges.look_up(asid, page);
        self.lookups.hits += u64::from(translation.is_some());
        self.lookups.misses += u64::from(translation.is_none());
        translation.is_some_and(|(translation, _)| {
            translation.entry.permits(access.kind() == Access::Store)
        })
    }

    /// Walks the page table and then the range table.
    fn walk_page_and_range_tables(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        held: Lookup,
    ) -> Option<Translation> {
        let translation = self.walk(env, page, access, held.is_clean())?;
        let asid = env.asid();
        self.conventional.fill_l2(asid, page, translation, held);
        if let Some((ranges, host_ranges)) = env.ranges() {
            self.walks += 1;
            self.reads += references(ranges, host_ranges);
            if let Some(range) = env.range(page)
                && range.pages.end - range.pages.start > 1
            {
                let write = range.rights.write;
                let first = TlbEntry::new(range.frame, PageSize::BASE, write, write);
                self.ranges.put(asid, range.pages, first);
            }
        }
        Some(translation)
    }
}

/// Lines that a walk of the range table reads. In a guest, each of these lines, and finally the page, is translated
/// through the host's range table.
fn references(ranges: u64, host_ranges: Option<u64>) -> u64 {
    let backing = host_ranges.map_or(0, levels);
    (levels(ranges) + 1) * (backing + 1) - 1
}

/// The levels of a B-tree of `ranges` ranges.
fn levels(ranges: u64) -> u64 {
    let mut levels = 1;
    while FAN_OUT.saturating_pow(levels) < ranges {
        levels += 1;
    }
    u64::from(levels)
}

impl Design for Rmm {
    #[inline(always)]
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.conventional.look_up_l1(env, page, access) {
            Lookup::Hit(translation) => translation,
            Lookup::Miss => self.serve_l1_miss(env, page, access)?,
            held => self.serve_permission_miss(env, page, access, held)?,
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
        self.ranges.invalidate(space.asid, pages);
    }

    fn flush(&mut self) {
        self.conventional.flush();
        self.ranges.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        self.lookups.report("tlb.range", counters);
        counters.add("range_walker", "walks", self.walks);
        counters.add("range_walker", "references", self.reads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn range_table_has_minimal_levels() {
        let ranges = [0, 1, 128, 129, 128 * 128, 128 * 128 + 1];
        assert_eq!(ranges.map(levels), [1, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn nested_range_walk_reads_each_level_through_the_host() {
        let cases = [(1, None), (129, None), (1, Some(1)), (129, Some(1)), (129, Some(129))];
        assert_eq!(cases.map(|(own, host)| references(own, host)), [1, 2, 3, 5, 8]);
    }
}
