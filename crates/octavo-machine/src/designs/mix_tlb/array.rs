//! The array of a level: pages of all sizes in the sets of their base pages.

use octavo_config::TlbArray;
use octavo_hw::{Asid, GeometryError, SetArray, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber, PageSize};

use super::entry::MixEntry;
use super::settings::{MixFill, MixTlbSettings};
use crate::counters::Counters;
use crate::tlb::key::{key, parts};
use crate::tlb::{EntryArray, Evicted, Translation, size_of};

/// The settings of a level.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub settings: MixTlbSettings,
    /// Whether a bundle must be a run of superpages, or may be any superpages of its group.
    pub has_runs: bool,
}

/// An array of pages of all sizes. The key of a bundle is its first superpage; no two bundles of a set have a superpage
/// of an address space in common.
pub struct MixArray {
    sets: SetArray<MixEntry>,
    mix: Mix,
    /// The number of superpages of the aligned group that holds a bundle.
    group: u64,
    fills: u64,
    filled_pages: u64,
    mirrors: u64,
}

impl MixArray {
    #[inline(always)]
    fn set_of(&self, page: u64) -> usize {
        self.sets.geometry().set_of(page)
    }

    /// The key of the bundle that holds a base page, in the page's set.
    fn bundle_of(&self, asid: Asid, page: PageNumber) -> Option<u64> {
        let end = PageNumber::new(page.raw() + 1);
        let is_match = |&(key, entry): &(u64, &MixEntry)| holds(key, entry, asid, page, end);
        self.sets.set(self.set_of(page.raw())).find(is_match).map(|(key, _)| key)
    }

    /// The sets of the base pages between the first and the last superpage of a bundle, each once.
    fn mirrors_of(
        &self,
        entry: MixEntry,
        first: u64,
        order: u8,
    ) -> impl Iterator<Item = usize> + use<> {
        let geometry = self.sets.geometry();
        let superpages =
            u128::BITS - entry.members.leading_zeros() - entry.members.trailing_zeros();
        let pages = (u64::from(superpages) << order).min(geometry.sets() as u64);
        let start = first << order;
        (start..start + pages).map(move |page| geometry.set_of(page))
    }

    /// Fills a bundle, whose first superpage is `first`, into a set.
    fn fill_set(
        &mut self,
        set: usize,
        asid: Asid,
        order: u8,
        (mut first, mut entry): (u64, MixEntry),
    ) {
        let group = first / self.group;
        let distance =
            |first: u64, entry: MixEntry| entry.page.frame().raw().wrapping_sub(first << order);
        let kind = |first, entry: MixEntry| {
            (distance(first, entry), entry.page.is_writable(), entry.page.is_dirty())
        };
        let others: Vec<_> = self
            .sets
            .set(set)
            .filter(|(key, _)| Asid::of(*key) == asid && parts(*key).1 == order)
            .map(|(key, other)| (key, parts(key).0.raw() >> order, *other))
            .filter(|(_, start, _)| start / self.group == group)
            .collect();
        for (key, start, other) in others {
            let union = entry.members | other.members;
            let merges = kind(start, other) == kind(first, entry)
                && (!self.mix.has_runs || MixEntry::is_run(union));
            if merges {
                if start < first {
                    (first, entry.page) = (start, other.page);
                }
                entry.members = union;
            }
            if merges || entry.members & other.members != 0 {
                self.sets.invalidate(set, key);
            }
        }
        let page = PageNumber::new(first << order);
        self.sets.insert_missed(set, key(asid, page, order), entry);
        self.mirrors += 1;
    }
}

/// Whether an entry has a page of an address space that overlaps a range of base pages.
#[inline(always)]
fn holds(key: u64, entry: &MixEntry, asid: Asid, from: PageNumber, end: PageNumber) -> bool {
    let (first, order) = parts(key);
    Asid::of(key) == asid
        && match order {
            0 => from <= first && first < end,
            _ => entry.overlaps(first.raw() >> order, order, from, end),
        }
}

impl EntryArray<MixEntry> for MixArray {
    type Settings = Mix;

    fn new(
        config: &TlbArray,
        mix: Mix,
        _: bool,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        let geometry = config.geometry()?;
        let sets = SetArray::new(geometry, config.replacement, instructions);
        let group = mix.settings.bundle_pages.min(1 << geometry.sets().ilog2());
        Ok(MixArray { sets, mix, group, fills: 0, filled_pages: 0, mirrors: 0 })
    }

    #[inline(always)]
    fn look_up(&mut self, asid: Asid, page: PageNumber) -> Option<(Translation<MixEntry>, Slot)> {
        let set = self.set_of(page.raw());
        if let Some(slot) = self.sets.look_up_slot(set, key(asid, page, 0)) {
            return Some((Translation { size: PageSize::BASE, entry: *self.sets.at(slot) }, slot));
        }
        let key = self.bundle_of(asid, page)?;
        let slot = self.sets.look_up_slot(set, key)?;
        let mut entry = *self.sets.at(slot);
        let (first, order) = parts(key);
        let from_first = (page.raw() >> order << order) - first.raw();
        entry.page = entry.page.at(entry.page.frame().plus(from_first));
        Some((Translation { size: size_of(order), entry }, slot))
    }

    #[inline(always)]
    fn touch(&mut self, slot: Slot) {
        self.sets.touch(slot);
    }

    /// Fills a base page, or a superpage with its bundle. Returns only an entry that a base page has evicted: no level
    /// holds victims of this one, and a level drops all remembered pages when a superpage is filled.
    fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        Translation { size, mut entry }: Translation<MixEntry>,
    ) -> Option<Evicted<MixEntry>> {
        let order = size.base_shift();
        if order == 0 {
            let (key, entry) =
                self.sets.insert(self.set_of(page.raw()), key(asid, page, 0), entry)?;
            let (first, order) = parts(key);
            return Some((Asid::of(key), first, Translation { size: size_of(order), entry }));
        }
        let number = page.raw() >> order;
        entry = entry.cut(number, self.group, self.mix.has_runs);
        let first = entry.first(number);
        let before = (number - first) << order;
        entry.page = entry.page.at(FrameNumber::new(entry.page.frame().raw() - before));
        self.fills += 1;
        self.filled_pages += u64::from(entry.members.count_ones());
        match self.mix.settings.fill {
            MixFill::All => {
                for set in self.mirrors_of(entry, first, order) {
                    self.fill_set(set, asid, order, (first, entry));
                }
            }
            MixFill::Probed => self.fill_set(self.set_of(page.raw()), asid, order, (first, entry)),
        }
        None
    }

    fn remove(&mut self, asid: Asid, page: PageNumber) {
        self.invalidate(asid, &(page.raw()..page.raw() + 1));
    }

    fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        let (from, end) = (PageNumber::new(pages.start), PageNumber::new(pages.end));
        self.sets.invalidate_if(|key, entry| holds(key, entry, asid, from, end))
    }

    fn clear(&mut self) {
        self.sets.clear();
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        counters.add(component, "fills", self.fills);
        counters.add(component, "filled_pages", self.filled_pages);
        counters.add(component, "mirrors", self.mirrors);
        let bundles = self.sets.iter().filter(|(_, key, _)| parts(*key).1 > 0);
        counters.add_level(component, "bundles", bundles.count() as u64);
    }
}
