//! A TLB level: arrays that are looked up together, each for pages of some sizes.

mod array;
mod entry;
mod groups;
mod key;
mod l1;
mod part_bits;
mod perforated;
mod ranges;
mod recent;

use octavo_config::{Fill, PageSizes, TlbArray, TlbLevel};
use octavo_hw::{Asid, GeometryError, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use crate::counters::{Counters, Lookups};
use array::Array;
use recent::Recent;

pub use entry::{TlbEntry, Translation};
pub use l1::{L1Tlb, Lookup};
pub(crate) use part_bits::KnownPartBits;
pub(crate) use perforated::{BITMAP_WORD_PAGES, EntryKinds};
pub use ranges::Ranges;

/// Number of page-size orders, from 4 KiB up.
const ORDERS: usize = (PageSize::LARGEST.base_shift() + 1) as usize;

/// A TLB level.
///
/// A page is filled into the array that holds the largest size up to its own. If that size is smaller, only
/// the part with the requested base page is filled.
pub struct Tlb {
    arrays: Vec<Array>,
    /// Hits, by array.
    hits: Box<[u64]>,
    /// By the order of a page's size: the array it is filled into, and the size of its entry there.
    places: [Option<(u8, PageSize)>; ORDERS],
    misses: u64,
    /// Repeats of references whose page no array can hold. They count as hits.
    uncached: u64,
    recent: Recent,
    fill: Fill,
    hit_latency_cycles: u32,
    coalescing: Coalescing,
}

/// Coalescing settings of a TLB level; off by default.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Coalescing {
    /// log2 of the base pages of an aligned group, at most 3. Set-associative arrays of base pages hold runs
    /// inside such groups and are indexed by group. 0: they hold single pages.
    pub group_log2: u8,
    /// An additional array for longer runs.
    pub long_runs: Option<LongRuns>,
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

impl Tlb {
    /// An empty level.
    pub fn new(
        config: &TlbLevel,
        coalescing: Coalescing,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        let arrays = &config.arrays;
        let mut places = [None; ORDERS];
        for (order, place) in places.iter_mut().enumerate() {
            for (number, config) in arrays.values().enumerate() {
                let best = match &config.page_sizes {
                    PageSizes::Any => PageSize::from_log2(order as u8 + PageSize::BASE.log2()),
                    PageSizes::List(sizes) => {
                        let fits = |size: &&PageSize| usize::from(size.base_shift()) <= order;
                        sizes.iter().filter(fits).max().copied()
                    }
                };
                if let Some(size) = best
                    && place.is_none_or(|(_, before): (u8, PageSize)| before < size)
                {
                    *place = Some((number as u8, size));
                }
            }
        }
        let holds_victims = config.fill == Fill::Victim;
        let array = |(name, config): (&String, &TlbArray)| {
            if coalescing.group_log2 > 0 && holds_base_pages(config) {
                let kind = (coalescing.group_log2, holds_victims);
                return Array::of_groups(name, config, kind, instructions);
            }
            Array::new(name, config, instructions)
        };
        let long_runs = coalescing.long_runs.as_ref().map(|runs| Ok(Array::of_ranges(runs)));
        // The array of long runs comes last.
        let arrays = arrays.iter().map(array).chain(long_runs).collect::<Result<Vec<_>, _>>()?;
        Ok(Tlb {
            hits: vec![0; arrays.len()].into(),
            arrays,
            places,
            misses: 0,
            uncached: 0,
            recent: Recent::new(),
            fill: config.fill,
            hit_latency_cycles: config.hit_latency_cycles,
            coalescing,
        })
    }

    /// Latency of a look-up, hit or miss, in addition to the previous level.
    #[inline(always)]
    pub fn hit_latency_cycles(&self) -> u32 {
        self.hit_latency_cycles
    }

    /// The size of the entry that a page of this size is filled into, if any array holds it.
    pub fn entry_size(&self, size: PageSize) -> Option<PageSize> {
        self.places[usize::from(size.base_shift())].map(|(_, size)| size)
    }

    /// Whether it is a victim level: filled by evictions of the previous level only.
    #[inline(always)]
    pub fn holds_victims(&self) -> bool {
        self.fill == Fill::Victim
    }

    /// Looks a base page up for `references` references. The first hits or misses; the others hit, at the
    /// latest after the fill.
    #[inline(always)]
    pub fn look_up(
        &mut self,
        asid: Asid,
        page: PageNumber,
        references: u32,
    ) -> Option<Translation> {
        if let Some(found) = self.recent.find(asid, page) {
            let translation = found.translation();
            self.hits[usize::from(found.array)] += u64::from(references);
            if !self.recent.is_mru(page, found) {
                let (array, slot) = (found.array, found.slot);
                self.touch(page, array, slot);
            }
            return Some(translation);
        }
        self.search(asid, page, references)
    }

    /// Uses the remembered entry of a page.
    #[inline(always)]
    fn touch(&mut self, page: PageNumber, array: u8, slot: Slot) {
        let array = &mut self.arrays[usize::from(array)];
        array.touch(slot);
        if !array.retouch_changes {
            self.recent.mark_mru(page);
        }
    }

    /// Searches a page that is not remembered, and remembers its entry.
    #[inline(never)]
    fn search(&mut self, asid: Asid, page: PageNumber, references: u32) -> Option<Translation> {
        let (number, translation, slot) = self.find(asid, page, references)?;
        self.recent.remember(asid, page, translation, (number as u8, slot));
        if self.arrays[number].retouch_changes {
            self.recent.clear_mru(page);
        } else {
            self.recent.mark_mru(page);
        }
        Some(translation)
    }

    /// Looks a base page up without remembering its entry: for levels that rarely see the same page again
    /// soon.
    #[inline(never)]
    pub fn look_up_rarely(
        &mut self,
        asid: Asid,
        page: PageNumber,
        references: u32,
    ) -> Option<Translation> {
        self.find(asid, page, references).map(|(_, translation, _)| translation)
    }

    /// Searches the arrays in order: array number, translation and slot of the first hit.
    #[inline(always)]
    fn find(
        &mut self,
        asid: Asid,
        page: PageNumber,
        references: u32,
    ) -> Option<(usize, Translation, Slot)> {
        for number in 0..self.arrays.len() {
            if let Some((translation, slot)) = self.arrays[number].look_up(asid, page) {
                self.hits[number] += u64::from(references);
                return Some((number, translation, slot));
            }
        }
        // The first reference misses; its repeats will hit after the fill.
        self.misses += u64::from(references.min(1));
        None
    }

    /// Takes back the hits of all but the first of `references` references to the entry just found, because
    /// it does not permit the access. The fill that follows counts them, possibly in another array.
    pub fn retract(&mut self, asid: Asid, page: PageNumber, references: u32) {
        if let Some(found) = self.recent.find(asid, page) {
            self.hits[usize::from(found.array)] -= u64::from(references.max(1) - 1);
        }
    }

    /// Fills the page that holds a base page, after a look-up for `references` references has not sufficed.
    /// Returns the evicted page, if any: address space, a base page of it, and its translation.
    pub fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation,
        references: u32,
    ) -> Option<(Asid, PageNumber, Translation)> {
        if self.coalescing != Coalescing::default() {
            return self.fill_coalescing(asid, page, translation, references);
        }
        let Some((number, size)) = self.places[usize::from(translation.size.base_shift())] else {
            self.uncached += u64::from(references.saturating_sub(1));
            return None;
        };
        let translation =
            if size < translation.size { translation.part(page, size) } else { translation };
        // It may come from a level that coalesces.
        let translation = translation.in_group(page, 0);
        let number = usize::from(number);
        self.hits[number] += u64::from(references.saturating_sub(1));
        let evicted = self.arrays[number].fill(asid, page, translation);
        self.recent.clear_all_mru();
        // The new entry may precede a remembered entry in the search, or may have replaced it.
        self.recent.remove(page);
        match evicted {
            None if size == PageSize::BASE => {}
            Some((_, gone, of)) if size == PageSize::BASE && of.size == size => {
                self.recent.remove(gone);
            }
            _ => self.recent.clear(),
        }
        evicted
    }

    /// [`Tlb::fill`] of a level that coalesces.
    fn fill_coalescing(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation,
        references: u32,
    ) -> Option<(Asid, PageNumber, Translation)> {
        let (before, after) = translation.entry.run();
        let group_log2 = self.coalescing.group_log2;
        let (number, translation, is_long) = match self.coalescing.long_runs {
            Some(runs) if before + 1 + after > runs.above_pages => {
                (self.arrays.len() - 1, translation, true)
            }
            _ => {
                let Some((number, size)) = self.places[usize::from(translation.size.base_shift())]
                else {
                    self.uncached += u64::from(references.saturating_sub(1));
                    return None;
                };
                let translation = if size < translation.size {
                    translation.part(page, size)
                } else {
                    translation
                };
                (usize::from(number), translation.in_group(page, group_log2), false)
            }
        };
        self.hits[number] += u64::from(references.saturating_sub(1));
        let evicted = self.arrays[number].fill(asid, page, translation);
        self.recent.clear_all_mru();
        // The new entry may replace overlapping entries of its group.
        match &evicted {
            _ if is_long || translation.size > PageSize::BASE => self.recent.clear(),
            Some((_, _, gone)) if gone.size > PageSize::BASE => self.recent.clear(),
            evicted => {
                let gone = evicted.as_ref().map(|(_, first, _)| *first);
                for of in [Some(page), gone].into_iter().flatten() {
                    let first = of.raw() >> group_log2 << group_log2;
                    for page in first..first + (1 << group_log2) {
                        self.recent.remove(PageNumber::new(page));
                    }
                }
            }
        }
        evicted
    }

    /// Removes all entries that overlap any of these base pages, and returns their number.
    pub fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        self.recent.clear();
        self.arrays.iter_mut().map(|array| array.invalidate(asid, pages)).sum()
    }

    /// Removes all entries that cover a base page.
    pub fn remove(&mut self, asid: Asid, page: PageNumber) {
        self.recent.clear();
        self.arrays.iter_mut().for_each(|array| array.remove(asid, page));
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.recent.clear();
        self.arrays.iter_mut().for_each(Array::clear);
    }

    /// Reports accesses, hits and misses of the level as `component`, and of each array as `component.NAME`.
    pub fn report(&self, component: &str, counters: &mut Counters) {
        let hits = self.uncached + self.hits.iter().sum::<u64>();
        Lookups { hits, misses: self.misses }.report(component, counters);
        let accesses = hits + self.misses;
        for (array, &hits) in self.arrays.iter().zip(&self.hits) {
            let lookups = Lookups { hits, misses: accesses - hits };
            lookups.report(&format!("{component}.{}", array.name), counters);
        }
    }
}

/// Whether an array is set-associative and holds base pages.
fn holds_base_pages(config: &TlbArray) -> bool {
    matches!(&config.page_sizes, PageSizes::List(sizes) if sizes.contains(&PageSize::BASE))
}

/// The page size of 2^`order` base pages.
#[inline(always)]
fn size_of(order: u8) -> PageSize {
    PageSize::from_log2(order + PageSize::BASE.log2()).expect("an order of a size")
}
