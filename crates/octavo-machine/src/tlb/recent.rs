//! Remembers the TLB entry in which a base page was found last: answers most look-ups without a search.

use octavo_hw::{Asid, Slot};
use octavo_types::{PageNumber, PageSize};

use super::{Entry, Translation};

/// log2 of the number of remembered base pages.
const PAGES_LOG2: u32 = 8;
const LOW: u64 = (1 << PAGES_LOG2) - 1;

/// Number of groups of sets.
const GROUPS: usize = 64;
/// No remembered page.
const NO_SLOT: u16 = u16::MAX;

/// Direct-mapped by the low bits of the base page: the entry found last, for as long as the same search would
/// find it again.
pub struct Recent<E> {
    found: Box<[Found<E>; 1 << PAGES_LOG2]>,
    /// Part of each key; a new generation invalidates all remembered pages at once.
    generation: u64,
    /// The most recently used page of each group of sets: index of its remembered entry.
    mru: [u16; GROUPS],
}

/// The entry in which a base page was found.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub struct Found<E> {
    /// Address space and page number, whose low bits are replaced by the generation.
    key: u64,
    entry: E,
    pub slot: Slot,
    size: PageSize,
    pub array: u8,
    /// The group of its set.
    group: u8,
}

impl<E: Entry> Found<E> {
    /// The translation of the page.
    #[inline(always)]
    pub fn translation(&self) -> Translation<E> {
        Translation { size: self.size, entry: self.entry }
    }
}

impl<E: Entry> Recent<E> {
    pub fn new() -> Self {
        let (size, entry, slot) = (PageSize::BASE, E::default(), Slot::default());
        let nothing = Found { key: u64::MAX, entry, slot, size, array: 0, group: 0 };
        Recent {
            found: Box::new([nothing; 1 << PAGES_LOG2]),
            generation: 0,
            mru: [NO_SLOT; GROUPS],
        }
    }

    #[inline(always)]
    fn key(&self, asid: Asid, page: PageNumber) -> u64 {
        page.raw() & !LOW | asid.tag(0) | self.generation
    }

    #[inline(always)]
    fn place(page: PageNumber) -> usize {
        (page.raw() & LOW) as usize
    }

    /// The remembered entry of a page, if there is one.
    #[inline(always)]
    pub fn find(&self, asid: Asid, page: PageNumber) -> Option<&Found<E>> {
        let found = &self.found[Self::place(page)];
        (found.key == self.key(asid, page)).then_some(found)
    }

    /// Whether the entry of a remembered page is the most recently used one of its set. It is if no other
    /// entry of the whole group of sets has been used since.
    #[inline(always)]
    pub fn is_mru(&self, page: PageNumber, found: &Found<E>) -> bool {
        usize::from(self.mru[usize::from(found.group) % GROUPS]) == Self::place(page)
    }

    /// Marks the entry of a remembered page as most recently used.
    #[inline(always)]
    pub fn mark_mru(&mut self, page: PageNumber) {
        let place = Self::place(page);
        self.mru[usize::from(self.found[place].group) % GROUPS] = place as u16;
    }

    /// Clears the MRU marker of the page's group: its replacement policy reacts to a repeated use, so that
    /// the next use must reach the array.
    #[inline(always)]
    pub fn clear_mru(&mut self, page: PageNumber) {
        self.mru[usize::from(self.found[Self::place(page)].group) % GROUPS] = NO_SLOT;
    }

    /// Remembers the entry of a page that a search has found and used.
    #[inline(always)]
    pub fn remember(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<E>,
        (array, slot): (u8, Slot),
    ) {
        let key = self.key(asid, page);
        let Translation { size, entry } = translation;
        // Spreads the sets of all arrays over the groups.
        let group = array.wrapping_mul(19).wrapping_add(slot.set() as u8);
        self.found[Self::place(page)] = Found { key, entry, slot, size, array, group };
    }

    /// An unknown entry was used: clears the MRU markers.
    #[inline(always)]
    pub fn clear_all_mru(&mut self) {
        self.mru = [NO_SLOT; GROUPS];
    }

    /// Drops a page, whose entry may have been removed or replaced.
    #[inline(always)]
    pub fn remove(&mut self, page: PageNumber) {
        self.found[Self::place(page)].key = u64::MAX;
    }

    /// Drops all pages.
    #[inline]
    pub fn clear(&mut self) {
        self.generation = (self.generation + 1) & LOW;
        if self.generation == 0 {
            self.found.iter_mut().for_each(|found| found.key = u64::MAX);
        }
    }
}
