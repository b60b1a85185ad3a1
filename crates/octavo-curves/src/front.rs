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
/// How many guesses at a page's slot are kept.
const GUESSES: usize = 256;
/// No page has this number.
const NONE: u64 = u64::MAX;

/// The base pages used last.
pub struct Front {
    /// The pages as traced, which references are compared with; `NONE` for an empty slot and for
    /// one whose mapping has changed.
    traced: [u64; FRONT],
    /// The same pages relocated; `NONE` for an empty slot.
    pages: [u64; FRONT],
    /// When each was last used, times [`FRONT`], plus its slot; empty slots are oldest, slots not
    /// used at all are never oldest.
    used: [u64; FRONT],
    /// By a traced page's low bits, the slot that it was last found in.
    guesses: [u8; GUESSES],
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
        for (slot, used) in used.iter_mut().enumerate().take(slots.clamp(1, FRONT)) {
            *used = slot as u64;
        }
        Front {
            traced: [NONE; FRONT],
            pages: [NONE; FRONT],
            used,
            guesses: [0; GUESSES],
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
        let guess = usize::from(self.guesses[traced as usize % GUESSES]) % FRONT;
        if self.traced[guess] == traced {
            self.take_up(guess);
            return true;
        }
        let found = self.traced.iter().position(|other| *other == traced);
        if let Some(slot) = found {
            self.guesses[traced as usize % GUESSES] = slot as u8;
            self.take_up(slot);
        }
        found.is_some()
    }

    #[inline(always)]
    fn take_up(&mut self, slot: usize) {
        self.current = slot;
        self.used[slot] = self.now * FRONT as u64 + slot as u64;
        self.now += 1;
    }

    /// How close the closest page of the front, but for the one that leaves, is to `page`: the
    /// least exclusive or of their numbers; `u64::MAX` where there is none.
    #[inline(always)]
    pub fn nearest(&self, page: u64, leaving: usize) -> u64 {
        let mut slot = 0;
        let least = least(self.pages.map(|other| {
            let distance = if slot == leaving { u64::MAX } else { other ^ page };
            slot += 1;
            distance
        }));
        // An empty slot's number differs from every page's in its highest bit.
        if least >> 63 != 0 { u64::MAX } else { least }
    }

    /// The slot of the page used longest ago, or an empty one.
    #[inline(always)]
    pub fn oldest(&self) -> usize {
        least(self.used) as usize % FRONT
    }

    /// The page in a slot, that will leave it, if there is one; takes its references away.
    #[inline(always)]
    pub fn leaver(&mut self, slot: usize) -> Option<Leaver> {
        let page = self.pages[slot];
        if page == NONE {
            return None;
        }
        let references = std::mem::take(&mut self.references[slot]);
        Some(Leaver { page, spot: self.spots[slot], region: self.regions[slot], references })
    }

    /// Puts a page into a slot, as the page at hand.
    #[inline(always)]
    pub fn put(&mut self, slot: usize, traced: u64, page: u64, spot: Spot, region: RegionId) {
        self.guesses[traced as usize % GUESSES] = slot as u8;
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

/// The least of some numbers, by halves: that needs no number to wait for the one before it.
#[inline(always)]
fn least(mut numbers: [u64; FRONT]) -> u64 {
    let mut half = FRONT / 2;
    while half > 0 {
        for index in 0..half {
            numbers[index] = numbers[index].min(numbers[index + half]);
        }
        half /= 2;
    }
    numbers[0]
}
