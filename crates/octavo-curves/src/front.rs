//! The front: the few base pages used last, exactly.
//!
//! Nearly all references that leave a page come back to one of these, and for them nothing else is
//! touched: a page among them hits at every page size, and its place in the recency orders behind
//! is settled only when it leaves the front. Pages leave in order of last use, so what is put
//! behind arrives in order.

use octavo_trace::RegionId;

use crate::pages::Spot;

/// How many pages the front holds at most.
pub const FRONT: usize = 16;
/// No page has this number.
const NONE: u64 = u64::MAX;

/// The base pages used last.
pub struct Front {
    /// The pages as traced, which references are compared with; `NONE` for an empty slot and for
    /// one whose mapping has changed.
    traced: [u64; FRONT],
    /// The same pages relocated; `NONE` for an empty slot.
    pages: [u64; FRONT],
    /// When each was last used; empty slots are oldest, unused ones never.
    used: [u64; FRONT],
    /// References to each since they were last taken away.
    references: [u64; FRONT],
    spots: [Spot; FRONT],
    regions: [RegionId; FRONT],
    /// The slot of the page at hand.
    current: usize,
    now: u64,
}

/// A page that leaves the front.
pub struct Leaver {
    pub page: u64,
    pub spot: Spot,
    pub region: RegionId,
    pub references: u64,
}

impl Front {
    /// An empty front of `slots` pages, at least 1 and at most [`FRONT`].
    pub fn new(slots: usize) -> Self {
        let mut used = [u64::MAX; FRONT];
        used[..slots.clamp(1, FRONT)].fill(0);
        Front {
            traced: [NONE; FRONT],
            pages: [NONE; FRONT],
            used,
            references: [0; FRONT],
            spots: [Spot::default(); FRONT],
            regions: [RegionId::default(); FRONT],
            current: 0,
            now: 1,
        }
    }

    /// Counts references to the page at hand.
    #[inline(always)]
    pub fn count(&mut self, references: u64) {
        self.references[self.current] += references;
    }

    /// Makes a traced page the one at hand, if it is in the front.
    #[inline(always)]
    pub fn find(&mut self, traced: u64) -> bool {
        let mut found = 0u32;
        for slot in 0..FRONT {
            found |= u32::from(self.traced[slot] == traced) << slot;
        }
        if found == 0 {
            return false;
        }
        self.take_up(found.trailing_zeros() as usize);
        true
    }

    #[inline(always)]
    fn take_up(&mut self, slot: usize) {
        self.current = slot;
        self.used[slot] = self.now;
        self.now += 1;
    }

    /// How close the closest page of the front is to `page`: the least exclusive or of their
    /// numbers, `u64::MAX` where the front is empty, 0 where it is there itself.
    #[inline(always)]
    pub fn nearest(&self, page: u64) -> u64 {
        let mut least = u64::MAX;
        for slot in 0..FRONT {
            least = least.min(self.pages[slot] ^ page);
        }
        // An empty slot's number differs from every page's in its highest bit.
        if least >> 63 != 0 { u64::MAX } else { least }
    }

    /// Takes the page used longest ago out, if every slot is taken.
    #[inline(always)]
    pub fn make_room(&mut self) -> Option<Leaver> {
        let mut slot = 0;
        for other in 1..FRONT {
            if self.used[other] < self.used[slot] {
                slot = other;
            }
        }
        self.current = slot;
        let page = self.pages[slot];
        if page == NONE {
            return None;
        }
        let references = std::mem::take(&mut self.references[slot]);
        self.pages[slot] = NONE;
        self.traced[slot] = NONE;
        Some(Leaver { page, spot: self.spots[slot], region: self.regions[slot], references })
    }

    /// Puts a page into the slot that [`Front::make_room`] left free, as the page at hand.
    #[inline(always)]
    pub fn put(&mut self, traced: u64, page: u64, spot: Spot, region: RegionId) {
        let slot = self.current;
        self.traced[slot] = traced;
        self.pages[slot] = page;
        self.spots[slot] = spot;
        self.regions[slot] = region;
        self.take_up(slot);
    }

    /// The slot of a relocated page.
    pub fn slot_of(&self, page: u64) -> Option<usize> {
        self.pages.iter().position(|other| *other == page)
    }

    /// Makes the page in `slot`, whose mapping had changed, the one at hand; returns the
    /// references that its old region is owed.
    pub fn renew(&mut self, slot: usize, traced: u64, region: RegionId) -> (RegionId, u64) {
        let owed = (self.regions[slot], std::mem::take(&mut self.references[slot]));
        self.traced[slot] = traced;
        self.regions[slot] = region;
        self.take_up(slot);
        owed
    }

    /// Forgets which traced pages in `first..end` are here: the next reference asks anew.
    pub fn forget(&mut self, first: u64, end: u64) {
        for traced in &mut self.traced {
            if (first..end).contains(traced) {
                *traced = NONE;
            }
        }
    }

    /// References counted here that no region has got yet.
    pub fn owed(&self) -> impl Iterator<Item = (RegionId, u64)> + '_ {
        self.regions.iter().copied().zip(self.references.iter().copied())
    }
}
