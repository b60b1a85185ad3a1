//! A TLB level: arrays that are looked up together, each for pages of some sizes.

mod array;
mod entry;
pub(crate) mod key;
mod l1;
mod part_bits;
mod ranges;
mod recent;

use octavo_config::{Fill, PageSizes, TlbArray, TlbLevel};
use octavo_hw::{Asid, GeometryError, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use crate::counters::{Counters, Lookups};
use recent::Recent;

pub use array::{EntryArray, EntrySettings, Evicted, PageArray};
pub use entry::{Entry, TlbEntry, Translation};
pub use l1::{L1Tlb, Lookup};
pub(crate) use part_bits::KnownPartBits;
pub use ranges::Ranges;

/// Number of page-size orders, from 4 KiB up.
const ORDERS: usize = (PageSize::LARGEST.base_shift() + 1) as usize;

/// An array and its name.
struct Array<A> {
    name: String,
    /// Whether its replacement policy reacts to a repeated use of the most recent entry of a set.
    retouch_changes: bool,
    entries: A,
}

/// A TLB level whose entries have the format `E`.
///
/// A page is filled into the array that holds the largest size up to its own. If that size is smaller, only
/// the part with the requested base page is filled.
pub struct Tlb<E: Entry = TlbEntry> {
    arrays: Vec<Array<E::Array>>,
    /// Hits, by array.
    hits: Box<[u64]>,
    /// By the order of a page's size: the array it is filled into, and the size of its entry there.
    places: [Option<(u8, PageSize)>; ORDERS],
    misses: u64,
    /// Repeats of references whose page no array can hold. They count as hits.
    uncached: u64,
    recent: Recent<E>,
    fill: Fill,
    hit_latency_cycles: u32,
}

impl<E: Entry> Tlb<E> {
    /// An empty level.
    ///
    /// # Errors
    /// If an array's entries and ways do not fit.
    pub fn new(
        config: &TlbLevel,
        settings: EntrySettings<E>,
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
            let entries = E::Array::new(config, settings, holds_victims, instructions)?;
            let retouch_changes = config.replacement.retouch_changes();
            Ok(Array { name: name.clone(), retouch_changes, entries })
        };
        let arrays = arrays.iter().map(array).collect::<Result<Vec<_>, _>>()?;
        Ok(Tlb {
            hits: vec![0; arrays.len()].into(),
            arrays,
            places,
            misses: 0,
            uncached: 0,
            recent: Recent::new(),
            fill: config.fill,
            hit_latency_cycles: config.hit_latency_cycles,
        })
    }

    /// The level with the [additional](EntryArray::additional) array of its entries, if they have one.
    pub(crate) fn with_additional(mut self, settings: EntrySettings<E>) -> Self {
        if let Some((name, entries)) = E::Array::additional(settings) {
            self.arrays.push(Array { name: name.to_owned(), retouch_changes: false, entries });
            self.hits = vec![0; self.arrays.len()].into();
        }
        self
    }

    /// The array that pages of a size are filled into, if it holds that size.
    pub fn array_of(&self, size: PageSize) -> Option<&E::Array> {
        let (number, _) = self.place_of(size)?;
        Some(&self.arrays[number].entries)
    }

    /// As [`Tlb::array_of`], to fill or use entries that are not pages.
    pub fn array_of_mut(&mut self, size: PageSize) -> Option<&mut E::Array> {
        let (number, _) = self.place_of(size)?;
        self.recent.clear();
        Some(&mut self.arrays[number].entries)
    }

    fn place_of(&self, size: PageSize) -> Option<(usize, PageSize)> {
        let (number, entry_size) = self.places[usize::from(size.base_shift())]?;
        (entry_size == size).then_some((usize::from(number), size))
    }

    /// All arrays.
    pub fn arrays(&self) -> impl Iterator<Item = &E::Array> {
        self.arrays.iter().map(|array| &array.entries)
    }

    /// Latency of a look-up, hit or miss, in addition to the previous level.
    #[inline(always)]
    pub fn hit_latency_cycles(&self) -> u32 {
        self.hit_latency_cycles
    }

    /// The size of the entry that is filled for a page of this size, if any array holds it.
    pub fn entry_size(&self, size: PageSize) -> Option<PageSize> {
        self.places[usize::from(size.base_shift())].map(|(_, size)| size)
    }

    /// Whether this is a victim level: filled by evictions of the previous level only.
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
    ) -> Option<Translation<E>> {
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
        array.entries.touch(slot);
        if !array.retouch_changes {
            self.recent.mark_mru(page);
        }
    }

    /// Searches a page that is not remembered, and remembers its entry.
    #[inline(never)]
    fn search(&mut self, asid: Asid, page: PageNumber, references: u32) -> Option<Translation<E>> {
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
    ) -> Option<Translation<E>> {
        self.find(asid, page, references).map(|(_, translation, _)| translation)
    }

    /// Searches the arrays in order: array number, translation and slot of the first hit.
    #[inline(always)]
    fn find(
        &mut self,
        asid: Asid,
        page: PageNumber,
        references: u32,
    ) -> Option<(usize, Translation<E>, Slot)> {
        for number in 0..self.arrays.len() {
            if let Some((translation, slot)) = self.arrays[number].entries.look_up(asid, page) {
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
        translation: Translation<E>,
        references: u32,
    ) -> Option<Evicted<E>> {
        let claims = self.arrays.last().is_some_and(|array| array.entries.claims(&translation));
        let (number, translation) = if claims {
            (self.arrays.len() - 1, translation)
        } else {
            let Some((number, size)) = self.places[usize::from(translation.size.base_shift())]
            else {
                self.uncached += u64::from(references.saturating_sub(1));
                return None;
            };
            let translation =
                if size < translation.size { translation.part(page, size) } else { translation };
            (usize::from(number), translation)
        };
        self.hits[number] += u64::from(references.saturating_sub(1));
        let array = &mut self.arrays[number].entries;
        let evicted = array.fill(asid, page, translation);
        self.recent.clear_all_mru();
        // The new entry may precede a remembered entry in the search, or may have replaced it.
        let is_base_page = |entry: &Translation<E>| entry.size == PageSize::BASE;
        let gone = evicted.as_ref().map(|(_, first, entry)| (*first, is_base_page(entry)));
        let changed = [Some((page, is_base_page(&translation))), gone];
        for (first, is_base_page) in changed.into_iter().flatten() {
            match array.affected(first).filter(|_| is_base_page) {
                Some(pages) => {
                    pages.for_each(|page| self.recent.remove(PageNumber::new(page)));
                }
                None => self.recent.clear(),
            }
        }
        evicted
    }

    /// Removes all entries that overlap any of these base pages, and returns their number.
    pub fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        self.recent.clear();
        self.arrays.iter_mut().map(|array| array.entries.invalidate(asid, pages)).sum()
    }

    /// Removes all entries that cover a base page.
    pub fn remove(&mut self, asid: Asid, page: PageNumber) {
        self.recent.clear();
        self.arrays.iter_mut().for_each(|array| array.entries.remove(asid, page));
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.recent.clear();
        self.arrays.iter_mut().for_each(|array| array.entries.clear());
    }

    /// Reports accesses, hits and misses of the level as `component`, and of each array as `component.NAME`.
    pub fn report(&self, component: &str, counters: &mut Counters) {
        let hits = self.uncached + self.hits.iter().sum::<u64>();
        Lookups { hits, misses: self.misses }.report(component, counters);
        let accesses = hits + self.misses;
        for (array, &hits) in self.arrays.iter().zip(&self.hits) {
            let lookups = Lookups { hits, misses: accesses - hits };
            let component = format!("{component}.{}", array.name);
            lookups.report(&component, counters);
            array.entries.report(&component, counters);
        }
    }
}

impl<E: Entry<Array = PageArray<E>>> Tlb<E> {
    /// Whether an entry covers a base page. This is not a look-up: it is not counted, and is not a use of the entry.
    pub fn holds(&self, asid: Asid, page: PageNumber) -> bool {
        self.arrays.iter().any(|array| array.entries.holds(asid, page))
    }

    /// Whether pages of a size are filled whole into an array with sets.
    pub fn has_sets_of(&self, size: PageSize) -> bool {
        self.array_of(size).is_some_and(PageArray::has_sets)
    }

    /// Looks up an entry of another kind, by which a base page can be translated whose look-up has just missed
    /// ([`PageArray::look_up_kind_if`]). A hit counts in place of that miss.
    pub fn look_up_kind_after_miss(
        &mut self,
        asid: Asid,
        page: PageNumber,
        order: u8,
        suffices: impl FnOnce(&E) -> bool,
    ) -> Option<E> {
        let (number, _) = self.place_of(PageSize::BASE)?;
        let array = &mut self.arrays[number].entries;
        let found = array.look_up_kind_if(asid, page, order, suffices)?;
        self.hits[number] += 1;
        self.misses -= 1;
        Some(found)
    }
}

/// The page size of 2^`order` base pages.
#[inline(always)]
pub(crate) fn size_of(order: u8) -> PageSize {
    PageSize::from_log2(order + PageSize::BASE.log2()).expect("an order of a size")
}
