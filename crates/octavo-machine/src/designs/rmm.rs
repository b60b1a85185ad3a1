//! Redundant Memory Mappings (Karakostas et al., ISCA 2015), as Tailored Page Sizes tells of it (sections
//! IV-B and V): beside its page table an address space has a table of ranges, pages of any number that
//! lie in memory as they lie in the address space; a *range TLB* beside the second level holds some of
//! them.
//!
//! - What misses the first level looks up the second level and the range TLB at once. A hit in a range
//!   makes the page's entry, of the size that the page table has (so that the first level misses no more
//!   often than the machine without ranges does), for the first level; not for the second, which need not
//!   hold what the range TLB beside it does. A look-up of the range TLB, hit or miss, takes the time of the
//!   second level's, and with that no further time.
//! - Where neither serves, a page walk does. The range table is walked behind it, off the critical path:
//!   that fills the range TLB and costs no time. A range of a single page is not kept.
//! - What becomes stale drops the ranges that it is in, whole.
//!
//! What is assumed: the range TLB has [`ENTRIES`] entries, fully associative, LRU. The range table is a
//! B-tree whose nodes, of 4 KiB, have [`FAN_OUT`] ranges (32 bytes: base, limit, offset with rights, and a
//! way down); a walk reads one line of each level, and does not pass the data caches. Ranges have no
//! accessed and dirty bits: what is served by one sets the page's own, at no cost. The operating system is
//! to make ranges that are worth it, by eager paging. In a guest the host does so, too, has a range table
//! of its own, and what the range TLB holds is what a range of each have in common.

use octavo_config::TlbConfig;
use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber, PageSize};

use super::Conventional;
use crate::config::ConfigError;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::env::Env;
use crate::front::{Kind, LineAccess};
use crate::tlb::{Lookup, Ranges, TlbEntry, Translation};

/// Entries of the range TLB.
pub const ENTRIES: usize = 32;
/// Ranges of a node of the range table.
pub const FAN_OUT: u64 = 128;

/// Redundant Memory Mappings.
pub struct Rmm {
    paged: Conventional,
    ranges: Ranges,
    lookups: Lookups,
    walks: u64,
    /// Lines of the range table.
    reads: u64,
}

impl Rmm {
    /// One that knows nothing.
    pub fn new(config: &TlbConfig, instructions: Instructions) -> Result<Self, ConfigError> {
        Ok(Rmm {
            paged: Conventional::new(config, instructions)?,
            ranges: Ranges::new(ENTRIES),
            lookups: Lookups::default(),
            walks: 0,
            reads: 0,
        })
    }

    /// The first level has missed.
    #[inline(never)]
    fn missed(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        // The two are looked up together, in the time of the second level.
        let in_second = self.paged.second(env, page, access);
        let is_in_range = self.look_up(env.asid(), page, access);
        if let Lookup::Hit(translation) = in_second {
            return Some(translation);
        }
        let translation = if is_in_range {
            self.resolve(env, page, access)?
        } else {
            self.walk_both(env, page, access, in_second)?
        };
        self.paged.fill_first(env.asid(), page, translation, access);
        Some(translation)
    }

    /// What the first level holds is not sufficient: it is replaced by what a range or a walk says.
    #[inline(never)]
    fn insufficient(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
    ) -> Option<Translation> {
        let is_in_range = self.look_up(env.asid(), page, access);
        env.add_lookup(self.paged.second_latency_cycles(), is_in_range);
        let translation = if is_in_range {
            self.resolve(env, page, access)?
        } else {
            self.walk_both(env, page, access, Lookup::PermissionMiss)?
        };
        self.paged.replace_first(env.asid(), page, translation, access);
        Some(translation)
    }

    /// Looks a page up in the range TLB, and says whether a range serves the reference.
    fn look_up(&mut self, asid: Asid, page: PageNumber, access: LineAccess) -> bool {
        let translation = self.ranges.look_up(asid, page);
        self.lookups.hits += u64::from(translation.is_some());
        self.lookups.misses += u64::from(translation.is_none());
        translation
            .is_some_and(|(translation, _)| translation.entry.serves(access.kind() == Kind::Store))
    }

    /// Walks the page table, and behind it the range table.
    fn walk_both(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_second: Lookup,
    ) -> Option<Translation> {
        let translation = self.walk(env, page, access)?;
        let asid = env.asid();
        self.paged.fill_second(asid, page, translation, in_second);
        if let Some((ranges, of_host)) = env.ranges() {
            self.walks += 1;
            self.reads += references(ranges, of_host);
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

/// Lines that a walk of the range table reads: in a guest, each of them, and the page at last, through the
/// host's range table.
fn references(ranges: u64, of_host: Option<u64>) -> u64 {
    let backing = of_host.map_or(0, levels);
    (levels(ranges) + 1) * (backing + 1) - 1
}

/// The levels of a tree that holds so many ranges.
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
        let translation = match self.paged.first(env, page, access) {
            Lookup::Hit(translation) => translation,
            Lookup::PermissionMiss => self.insufficient(env, page, access)?,
            Lookup::Miss => self.missed(env, page, access)?,
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, of: AddressSpace, pages: &Pages) {
        self.paged.invalidate(of, pages);
        self.ranges.invalidate(of.asid, pages);
    }

    fn flush(&mut self) {
        self.paged.flush();
        self.ranges.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.paged.report(counters);
        self.lookups.report("tlb.range", counters);
        counters.add("range_walker", "walks", self.walks);
        counters.add("range_walker", "references", self.reads);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_has_the_levels_that_its_ranges_need() {
        let ranges = [0, 1, 128, 129, 128 * 128, 128 * 128 + 1];
        assert_eq!(ranges.map(levels), [1, 1, 1, 2, 2, 3]);
    }

    #[test]
    fn ranges_of_a_guest_are_found_through_those_of_its_host() {
        let of = [(1, None), (129, None), (1, Some(1)), (129, Some(1)), (129, Some(129))];
        assert_eq!(of.map(|(own, host)| references(own, host)), [1, 2, 3, 5, 8]);
    }
}
