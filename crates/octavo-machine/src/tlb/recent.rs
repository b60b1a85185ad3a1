//! Which entry of a TLB a base page was found in last: most look-ups are answered here.

use octavo_hw::{Asid, Slot};
use octavo_types::{PageNumber, PageSize};

use super::{TlbEntry, Translation};

/// How many base pages are remembered, as a logarithm.
const PAGES_LOG2: u32 = 8;
const LOW: u64 = (1 << PAGES_LOG2) - 1;

/// How many groups of sets are told apart.
const GROUPS: usize = 64;
/// No place of a page.
const NO_SLOT: u16 = u16::MAX;

/// By the low bits of a base page, where it was found last; for as long as the same search would
/// find it there.
pub struct Recent {
    found: Box<[Found; 1 << PAGES_LOG2]>,
    /// Told apart from what was remembered before everything was forgotten.
    generation: u64,
    /// By group of sets, the place of the page whose entry was the last one there to be used.
    mru: [u16; GROUPS],
}

/// Where a base page was found.
#[derive(Clone, Copy)]
#[repr(align(32))]
pub struct Found {
    /// The address space and the page, whose low bits are replaced by the generation.
    key: u64,
    entry: TlbEntry,
    pub slot: Slot,
    size: PageSize,
    pub array: u8,
    /// That of its set, and maybe of others.
    group: u8,
}

impl Found {
    /// The page that holds it.
    #[inline(always)]
    pub fn translation(&self) -> Translation {
        Translation { size: self.size, entry: self.entry }
    }
}

impl Recent {
    pub fn new() -> Self {
        let Translation { size, entry } = Translation::NOTHING;
        let slot = Slot::default();
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

    /// Where a page is, if that is known.
    #[inline(always)]
    pub fn find(&self, asid: Asid, page: PageNumber) -> Option<&Found> {
        let found = &self.found[Self::place(page)];
        (found.key == self.key(asid, page)).then_some(found)
    }

    /// Whether a page that was found has the entry of its set that was used last. (Nothing else of a
    /// whole group of sets has been used since.)
    #[inline(always)]
    pub fn is_mru(&self, page: PageNumber, found: &Found) -> bool {
        usize::from(self.mru[usize::from(found.group) % GROUPS]) == Self::place(page)
    }

    /// The entry in which a page was found is used.
    #[inline(always)]
    pub fn mark_mru(&mut self, page: PageNumber) {
        let place = Self::place(page);
        self.mru[usize::from(self.found[place].group) % GROUPS] = place as u16;
    }

    /// The entry in which a page was found is used, by a policy that minds when it is used again: so
    /// none of its group is the latest.
    #[inline(always)]
    pub fn clear_mru(&mut self, page: PageNumber) {
        self.mru[usize::from(self.found[Self::place(page)].group) % GROUPS] = NO_SLOT;
    }

    /// A page was found in an array, at a slot, whose entry is used by that.
    #[inline(always)]
    pub fn remember(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation,
        (array, slot): (u8, Slot),
    ) {
        let key = self.key(asid, page);
        let Translation { size, entry } = translation;
        // Sets of all arrays side by side, as far as there are groups.
        let group = array.wrapping_mul(19).wrapping_add(slot.set() as u8);
        self.found[Self::place(page)] = Found { key, entry, slot, size, array, group };
    }

    /// Something else was used, nobody knows where.
    #[inline(always)]
    pub fn clear_all_mru(&mut self) {
        self.mru = [NO_SLOT; GROUPS];
    }

    /// A base page is not there any more.
    #[inline(always)]
    pub fn remove(&mut self, page: PageNumber) {
        self.found[(page.raw() & LOW) as usize].key = u64::MAX;
    }

    /// Nobody knows what is where any more.
    #[inline]
    pub fn clear(&mut self) {
        self.generation = (self.generation + 1) & LOW;
        if self.generation == 0 {
            self.found.iter_mut().for_each(|found| found.key = u64::MAX);
        }
    }
}
