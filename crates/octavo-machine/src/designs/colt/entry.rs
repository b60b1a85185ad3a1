//! Entries that hold a run of base pages, and the arrays that merge them.

use octavo_config::{PageSizes, TlbArray};
use octavo_hw::{Asid, GeometryError, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber, PageSize};

use super::groups::Groups;
use crate::tlb::{Entry, EntryArray, Evicted, PageArray, Ranges, TlbEntry, Translation};

/// Settings of the levels of a machine; off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalescing {
    /// log2 of the base pages of an aligned group, at most 3. Set-associative arrays of base pages hold runs
    /// inside such groups and are indexed by group. 0: they hold single pages.
    pub group_log2: u8,
    /// An additional array of the first-level data TLB, for longer runs.
    pub long_runs: Option<LongRuns>,
}

impl Coalescing {
    /// The settings of the second level, which has no array for longer runs.
    pub fn of_second_level(self) -> Self {
        Coalescing { long_runs: None, ..self }
    }
}

/// A fully associative array of runs of base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LongRuns {
    /// Its name.
    pub name: &'static str,
    /// Number of runs it holds.
    pub entries: usize,
    /// Longer runs than this many pages go there, and to no other array of the level.
    pub above_pages: u64,
    /// Maximum length to which runs are merged, in pages.
    pub limit_pages: u64,
}

/// A page and, if it is a base page, the numbers of neighbours before and after it that continue it: contiguous
/// in memory as in the address space, with equal permissions. The numbers are in the spare bits of the page's
/// entry, so that both fit one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RunEntry(TlbEntry);

/// Bits of the number of neighbours on either side.
const SIDE_BITS: u32 = 3;
const SIDE_MASK: u64 = (1 << SIDE_BITS) - 1;
const _: () = assert!(2 * SIDE_BITS <= TlbEntry::SPARE_BITS);

impl Entry for RunEntry {
    type Array = RunArray;

    #[inline(always)]
    fn of_page(page: TlbEntry) -> Self {
        RunEntry(page)
    }

    #[inline(always)]
    fn page(self) -> TlbEntry {
        self.0.with_spare(0)
    }

    #[inline(always)]
    fn with_page(self, page: TlbEntry) -> Self {
        RunEntry(page.with_spare(self.0.spare()))
    }
}

impl RunEntry {
    /// The number of neighbours before and after the page, each at most 7.
    #[inline(always)]
    pub fn run(self) -> (u64, u64) {
        let sides = self.0.spare();
        (sides & SIDE_MASK, sides >> SIDE_BITS)
    }
}

impl Translation<RunEntry> {
    /// This base page as part of a run with `before` and `after` neighbours.
    #[inline(always)]
    pub fn in_run(&self, before: u64, after: u64) -> Self {
        debug_assert!(before <= SIDE_MASK);
        let sides = before | after << SIDE_BITS;
        Translation { entry: RunEntry(self.entry.0.with_spare(sides)), ..*self }
    }

    /// This page with its run cut to the aligned group of 2^`group_log2` base pages.
    fn in_group(&self, page: PageNumber, group_log2: u8) -> Self {
        let (before, after) = self.entry.run();
        let last = (1 << group_log2) - 1;
        let at = page.raw() & last;
        self.in_run(before.min(at), after.min(last - at))
    }

    /// The page at position `number` of the run that this page begins.
    #[inline(always)]
    pub(super) fn following(&self, number: u64) -> Self {
        let (before, after) = self.entry.run();
        self.at(self.entry.0.frame().plus(number)).in_run(before + number, after - number)
    }

    /// The first page of its run: its distance in pages, and its translation.
    pub(super) fn first_of_run(&self) -> (u64, Self) {
        let (before, after) = self.entry.run();
        let first = FrameNumber::new(self.entry.0.frame().raw() - before);
        (before, self.at(first).in_run(0, before + after))
    }

    #[inline(always)]
    fn at(&self, frame: FrameNumber) -> Self {
        Translation { entry: RunEntry(self.entry.0.at(frame)), ..*self }
    }
}

/// An array of runs.
pub enum RunArray {
    /// Single pages, without their runs: an invalidation would not find the runs.
    Pages(PageArray<RunEntry>),
    Groups(Groups),
    /// Runs of any length, merged with runs that they continue. An evicted run is lost: no other array could
    /// hold it.
    Ranges {
        ranges: Ranges,
        settings: LongRuns,
    },
}

impl EntryArray<RunEntry> for RunArray {
    type Settings = Coalescing;

    fn new(
        config: &TlbArray,
        Coalescing { group_log2, .. }: Coalescing,
        holds_victims: bool,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        if group_log2 > 0
            && let PageSizes::List(sizes) = &config.page_sizes
            && sizes.contains(&PageSize::BASE)
        {
            let groups = Groups::new(config, (sizes, group_log2), holds_victims, instructions)?;
            return Ok(RunArray::Groups(groups));
        }
        Ok(RunArray::Pages(PageArray::new(config, (), holds_victims, instructions)?))
    }

    fn additional(settings: Coalescing) -> Option<(&'static str, Self)> {
        let settings = settings.long_runs?;
        let ranges = Ranges::new(settings.entries);
        Some((settings.name, RunArray::Ranges { ranges, settings }))
    }

    fn claims(&self, translation: &Translation<RunEntry>) -> bool {
        let (before, after) = translation.entry.run();
        let RunArray::Ranges { settings, .. } = self else { return false };
        before + 1 + after > settings.above_pages
    }

    fn affected(&self, page: PageNumber) -> Option<Pages> {
        match self {
            RunArray::Pages(_) => Some(page.raw()..page.raw() + 1),
            RunArray::Groups(groups) => Some(groups.group_of(page)),
            RunArray::Ranges { .. } => None,
        }
    }

    #[inline(always)]
    fn look_up(&mut self, asid: Asid, page: PageNumber) -> Option<(Translation<RunEntry>, Slot)> {
        match self {
            RunArray::Pages(pages) => pages.look_up(asid, page),
            RunArray::Groups(groups) => groups.look_up(asid, page),
            RunArray::Ranges { ranges, .. } => {
                let (Translation { size, entry }, at) = ranges.look_up(asid, page)?;
                let entry = RunEntry::of_page(entry);
                Some((Translation { size, entry }, Slot::of_only_set(at as u32)))
            }
        }
    }

    #[inline(always)]
    fn touch(&mut self, slot: Slot) {
        match self {
            RunArray::Pages(pages) => pages.touch(slot),
            RunArray::Groups(groups) => groups.touch(slot),
            RunArray::Ranges { ranges, .. } => ranges.touch(slot.at()),
        }
    }

    fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<RunEntry>,
    ) -> Option<Evicted<RunEntry>> {
        match self {
            RunArray::Pages(pages) => pages.fill(asid, page, translation.in_group(page, 0)),
            RunArray::Groups(groups) => {
                let translation = translation.in_group(page, groups.group_log2());
                groups.fill(asid, page, translation)
            }
            RunArray::Ranges { ranges, settings } => {
                let (before, first) = translation.first_of_run();
                let pages = first.entry.run().1 + 1;
                let start = page.raw() - before;
                let run = start..start + pages;
                ranges.merge(asid, run, first.entry.page(), settings.limit_pages);
                None
            }
        }
    }

    fn remove(&mut self, asid: Asid, page: PageNumber) {
        match self {
            RunArray::Pages(pages) => pages.remove(asid, page),
            RunArray::Groups(groups) => groups.remove(asid, page),
            RunArray::Ranges { ranges, .. } => {
                ranges.invalidate(asid, &(page.raw()..page.raw() + 1));
            }
        }
    }

    fn invalidate(&mut self, asid: Asid, range: &Pages) -> usize {
        match self {
            RunArray::Pages(pages) => pages.invalidate(asid, range),
            RunArray::Groups(groups) => groups.invalidate(asid, range),
            RunArray::Ranges { ranges, .. } => ranges.invalidate(asid, range),
        }
    }

    fn clear(&mut self) {
        match self {
            RunArray::Pages(pages) => pages.clear(),
            RunArray::Groups(groups) => groups.clear(),
            RunArray::Ranges { ranges, .. } => ranges.clear(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_and_run_do_not_change_each_other() {
        assert_eq!(size_of::<RunEntry>(), size_of::<TlbEntry>());
        // Frames have at most 48 bits.
        let page = |frame| TlbEntry::new(FrameNumber::new(frame), PageSize::BASE, true, true);
        let (low, high) = (page(100), page((1 << 48) - 1));
        for (before, after) in (0..8).flat_map(|before| (0..8).map(move |after| (before, after))) {
            let single = Translation { size: PageSize::BASE, entry: RunEntry::of_page(high) };
            assert_eq!(single.entry.run(), (0, 0));
            let entry = single.in_run(before, after).entry;
            assert_eq!((entry.page(), entry.run()), (high, (before, after)));
            let moved = entry.with_page(low);
            assert_eq!((moved.page(), moved.run()), (low, (before, after)));
        }
        let run = Translation { size: PageSize::BASE, entry: RunEntry::of_page(low) }.in_run(2, 4);
        let (before, first) = run.first_of_run();
        assert_eq!((before, first.entry.page(), first.entry.run()), (2, page(98), (0, 6)));
        assert_eq!(first.following(2), run);
    }
}
