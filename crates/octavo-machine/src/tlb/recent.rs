//! Which entry of a TLB a base page was found in last: most look-ups are answered here.

use octavo_hw::{Asid, Slot};
use octavo_types::PageNumber;

use super::Held;

/// How many base pages are remembered, as a logarithm.
const PAGES_LOG2: u32 = 8;
const LOW: u64 = (1 << PAGES_LOG2) - 1;

/// By the low bits of a base page, where it was found last; for as long as the same search would
/// find it there.
pub struct Recent {
    found: Box<[Found; 1 << PAGES_LOG2]>,
    /// Told apart from what was remembered before everything was forgotten.
    generation: u64,
}

/// Where a base page was found.
#[derive(Clone, Copy)]
pub struct Found {
    /// The address space and the page, whose low bits are replaced by the generation.
    key: u64,
    pub held: Held,
    pub slot: Slot,
    pub array: u8,
}

impl Recent {
    pub fn new() -> Self {
        let nothing = Found { key: u64::MAX, held: Held::NOTHING, slot: Slot::default(), array: 0 };
        Recent { found: Box::new([nothing; 1 << PAGES_LOG2]), generation: 0 }
    }

    #[inline(always)]
    fn key(&self, asid: Asid, page: PageNumber) -> u64 {
        asid.tag(page.raw()) & !LOW | self.generation
    }

    /// Where a page is, if that is known.
    #[inline(always)]
    pub fn find(&self, asid: Asid, page: PageNumber) -> Option<&Found> {
        let found = &self.found[(page.raw() & LOW) as usize];
        (found.key == self.key(asid, page)).then_some(found)
    }

    /// A page was found.
    #[inline(always)]
    pub fn remember(
        &mut self,
        asid: Asid,
        page: PageNumber,
        held: Held,
        (array, slot): (u8, Slot),
    ) {
        let key = self.key(asid, page);
        self.found[(page.raw() & LOW) as usize] = Found { key, held, slot, array };
    }

    /// A base page is not there any more.
    #[inline(always)]
    pub fn forget(&mut self, page: PageNumber) {
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
