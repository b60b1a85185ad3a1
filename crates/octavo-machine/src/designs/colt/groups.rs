//! A set-associative array whose entries each hold a run of base pages inside an aligned group.

use octavo_config::TlbArray;
use octavo_hw::{Asid, GeometryError, SetArray, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use super::RunEntry;
use crate::tlb::key::{key, parts};
use crate::tlb::{Evicted, Translation, size_of};

/// Indexed by the group of a base page. The key of an entry is the first page of its run; no two runs of an
/// address space overlap. Larger pages are stored as in other arrays.
pub struct Groups {
    /// Page sizes above 4 KiB, smallest first.
    larger: Vec<PageSize>,
    group_log2: u8,
    sets: SetArray<RunEntry>,
    /// Whether it is a victim array. A victim may overlap entries of the array; a page that missed may not.
    holds_victims: bool,
}

impl Groups {
    /// An empty array of groups of 2^`group_log2` base pages, at most 8, and of pages of `sizes`.
    ///
    /// # Errors
    /// If its entries and ways do not fit.
    pub fn new(
        config: &TlbArray,
        (sizes, group_log2): (&[PageSize], u8),
        holds_victims: bool,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        let mut larger = sizes.to_vec();
        larger.retain(|size| *size > PageSize::BASE);
        larger.sort_unstable();
        let sets = SetArray::new(config.geometry()?, config.replacement, instructions);
        Ok(Groups { larger, group_log2, sets, holds_victims })
    }

    /// log2 of the base pages of a group.
    pub fn group_log2(&self) -> u8 {
        self.group_log2
    }

    /// The base pages of the group that holds one.
    pub fn group_of(&self, page: PageNumber) -> Pages {
        let first = page.raw() >> self.group_log2 << self.group_log2;
        first..first + (1 << self.group_log2)
    }

    /// The set of a base page.
    #[inline(always)]
    fn set_of(&self, page: PageNumber) -> usize {
        self.sets.geometry().set_of(page.raw() >> self.group_log2)
    }

    /// The first page of the run that holds a base page, and its slot.
    #[inline(always)]
    fn find(&self, asid: Asid, page: PageNumber) -> Option<(u64, Slot)> {
        let set = self.set_of(page);
        let group = page.raw() >> self.group_log2 << self.group_log2;
        // Whole groups are most frequent, then single pages.
        let others = (group + 1..page.raw() + 1).rev();
        std::iter::once(group).chain(others).find_map(|first| {
            let slot = self.sets.probe_slot(set, key(asid, PageNumber::new(first), 0))?;
            (page.raw() - first <= self.sets.at(slot).run().1).then_some((first, slot))
        })
    }

    /// Looks a base page up: its translation and slot, if present. A hit uses the entry.
    #[inline(always)]
    pub fn look_up(
        &mut self,
        asid: Asid,
        page: PageNumber,
    ) -> Option<(Translation<RunEntry>, Slot)> {
        if self.sets.is_empty() {
            return None;
        }
        if let Some((first, slot)) = self.find(asid, page) {
            self.sets.touch(slot);
            let translation = Translation { size: PageSize::BASE, entry: *self.sets.at(slot) };
            return Some((translation.following(page.raw() - first), slot));
        }
        self.larger.iter().find_map(|&size| {
            let order = size.base_shift();
            let set = self.sets.geometry().set_of(page.raw() >> order);
            let slot = self.sets.look_up_slot(set, key(asid, page, order))?;
            Some((Translation { size, entry: *self.sets.at(slot) }, slot))
        })
    }

    /// Uses the entry of an earlier look-up again; it must still be at `slot`.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot) {
        self.sets.touch(slot);
    }

    /// Fills a larger page, or a run in the group of its base page, and returns the evicted entry. Runs that
    /// overlap the new one are removed.
    pub fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<RunEntry>,
    ) -> Option<Evicted<RunEntry>> {
        let order = translation.size.base_shift();
        let evicted = if order > 0 {
            let set = self.sets.geometry().set_of(page.raw() >> order);
            self.sets.insert(set, key(asid, page, order), translation.entry)
        } else {
            let (before, first) = translation.first_of_run();
            let (set, start) = (self.set_of(page), page.raw() - before);
            let last = start + first.entry.run().1;
            // A page that missed is in no run; its neighbours may be.
            let from = match start == last && !self.holds_victims {
                true => start,
                false => start >> self.group_log2 << self.group_log2,
            };
            for old in from..=last {
                let old_key = key(asid, PageNumber::new(old), 0);
                // A run with the same first page is replaced in place.
                if old != start
                    && let Some(entry) = self.sets.probe(set, old_key)
                    && old + entry.run().1 >= start
                {
                    self.sets.invalidate(set, old_key);
                }
            }
            self.sets.insert(set, key(asid, PageNumber::new(start), 0), first.entry)
        };
        let (key, entry) = evicted?;
        let (first, order) = parts(key);
        Some((Asid::of(key), first, Translation { size: size_of(order), entry }))
    }

    /// Removes the entry that covers a base page, with its whole run.
    pub fn remove(&mut self, asid: Asid, page: PageNumber) {
        if let Some((first, _)) = self.find(asid, page) {
            let set = self.set_of(page);
            self.sets.invalidate(set, key(asid, PageNumber::new(first), 0));
        }
        for size in &self.larger {
            let order = size.base_shift();
            let set = self.sets.geometry().set_of(page.raw() >> order);
            self.sets.invalidate(set, key(asid, page, order));
        }
    }

    /// Removes the entries that overlap any of these base pages, with their whole runs, and returns their
    /// number.
    pub fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        self.sets.invalidate_if(|key, entry| {
            let (first, order) = parts(key);
            let end = first.raw() + (1 << order) + entry.run().1;
            Asid::of(key) == asid && first.raw() < pages.end && pages.start < end
        })
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.sets.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_config::{PageSizes, Ways};
    use octavo_hw::Replacement;
    use octavo_types::FrameNumber;

    use crate::tlb::{Entry, TlbEntry};

    /// Runs may overlap: an instruction TLB still holds a run after a store has changed one of its pages.
    #[test]
    fn fill_removes_overlapping_runs() {
        let config = TlbArray {
            entries: 8,
            ways: Ways::Of(4),
            page_sizes: PageSizes::List(vec![PageSize::BASE]),
            replacement: Replacement::Lru,
        };
        let mut groups =
            Groups::new(&config, (&[PageSize::BASE], 2), false, Instructions::PORTABLE).unwrap();
        let page = PageNumber::new;
        let translation = |number: u64, before, after| {
            let entry = TlbEntry::new(FrameNumber::new(100 + number), PageSize::BASE, true, false);
            let entry = RunEntry::of_page(entry);
            Translation { size: PageSize::BASE, entry }.in_run(before, after)
        };
        let frame = |groups: &mut Groups, number: u64| {
            let (translation, _) = groups.look_up(Asid::ONLY, page(number))?;
            Some(translation.frame_of(page(number)).raw())
        };
        groups.fill(Asid::ONLY, page(8), translation(8, 0, 1));
        assert_eq!([8, 9, 10].map(|at| frame(&mut groups, at)), [Some(108), Some(109), None]);
        groups.fill(Asid::ONLY, page(10), translation(10, 1, 1));
        let all = [8, 9, 10, 11].map(|at| frame(&mut groups, at));
        assert_eq!(all, [None, Some(109), Some(110), Some(111)]);
        groups.fill(Asid::ONLY, page(8), translation(8, 0, 3));
        groups.remove(Asid::ONLY, page(11));
        assert!(groups.sets.is_empty());
    }
}
