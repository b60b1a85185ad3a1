//! The front: the base pages used last, as many as the first TLB level holds, up to 64.
//!
//! Nearly all references go to one of these pages, which hits at every page size, and need no other
//! state: a page gets its place in the recency orders only when it leaves the front. Pages leave in
//! order of last use, so that they enter the recency orders in order.
//!
//! Each use writes its number into a ring, so that the least recently used slot is the first number
//! in it that is still its slot's last use.
//!
//! A page, or stores to it, may be *forbidden*: the next reference then leaves the fast path.

use octavo_trace::RegionId;

use super::pages::Spot;

/// How many pages the front holds at most.
pub const FRONT: usize = 64;
/// How many guesses at a page's slot are kept.
const GUESSES: usize = 4096;
/// How many uses the ring holds before it is closed up.
const USES: usize = 4096;
/// How many uses may follow one [`Front::reserve`]: what the slow path adds to 1024 comes to less
/// than as many again.
const RESERVED_USES: usize = 2048;
/// No page has this number.
const NONE: u64 = u64::MAX;

/// The base pages used last.
pub struct Front {
    /// The pages as traced, which fetches and loads are compared with, and stores; `NONE` for an empty
    /// slot, for one whose mapping has changed and for what is forbidden.
    traced: [[u64; FRONT]; 2],
    /// By slot, a bit each: whether its page is forbidden, and whether stores to it are.
    forbidden: [u64; 2],
    /// References to each since they were last taken away.
    references: [u64; FRONT],
    /// The number of each slot's last use.
    used: [u64; FRONT],
    /// The slot of each use, by its number modulo the ring's length.
    uses: [u8; USES],
    /// By a traced page's low bits, the slot that it was last found in.
    guesses: [u8; GUESSES],
    /// The number of the last use, and of the oldest that may still be a slot's last.
    now: u64,
    oldest: u64,
    /// The slot used last.
    current: usize,
    /// Slots taken so far, of so many.
    taken: usize,
    slots: usize,
    pages: [Page; FRONT],
}

/// A page in the front.
#[derive(Clone, Copy, Default)]
pub struct Page {
    /// Its relocated number.
    pub number: u64,
    /// Where its data lie.
    pub spot: Spot,
    /// The region that its references are counted for.
    pub region: RegionId,
}

impl Front {
    /// An empty front of `slots` pages, at least 1 and at most [`FRONT`].
    pub fn new(slots: usize) -> Self {
        Front {
            traced: [[NONE; FRONT]; 2],
            forbidden: [0; 2],
            references: [0; FRONT],
            used: [0; FRONT],
            uses: [0; USES],
            guesses: [0; GUESSES],
            now: 0,
            oldest: 1,
            current: FRONT,
            taken: 0,
            slots: slots.clamp(1, FRONT),
            pages: [Page::default(); FRONT],
        }
    }

    /// The slot of a traced page, if it is where it was last found and may be used so. If not, it may
    /// still be in the front.
    #[inline(always)]
    pub fn guess(&self, traced: u64, stores: bool) -> Option<usize> {
        let slot = usize::from(self.guesses[guess_of(traced)]) % FRONT;
        (self.traced[usize::from(stores)][slot] == traced).then_some(slot)
    }

    /// Makes room for 1024 uses.
    #[inline(always)]
    pub fn reserve(&mut self) {
        if self.now + 1 - self.oldest > (USES - RESERVED_USES) as u64 {
            self.close_up();
        }
    }

    /// A page in a slot is used. Written without a branch on whether it is the one used last:
    /// programs alternate between pages in ways that no processor foretells.
    #[inline(always)]
    pub fn use_slot(&mut self, slot: usize, references: u64) {
        let another = u64::from(slot != self.current);
        self.current = slot;
        self.now += another;
        self.used[slot] = self.now;
        self.uses[self.now as usize % USES] = slot as u8;
        self.references[slot] += references;
    }

    /// Numbers the last uses anew, without others between.
    #[cold]
    #[inline(never)]
    fn close_up(&mut self) {
        let mut slots: [usize; FRONT] = std::array::from_fn(|slot| slot);
        let slots = &mut slots[..self.taken];
        slots.sort_unstable_by_key(|slot| self.used[*slot]);
        self.oldest = self.now + 1;
        for &slot in slots.iter() {
            self.now += 1;
            self.used[slot] = self.now;
            self.uses[self.now as usize % USES] = slot as u8;
        }
    }

    /// Notes that a traced page, which its guess did not find, is in `slot`. If its mapping has
    /// changed, returns the references that its old region is owed.
    pub fn find(&mut self, slot: usize, traced: u64, region: RegionId) -> Option<(RegionId, u64)> {
        self.guesses[guess_of(traced)] = slot as u8;
        if self.traced[0][slot] == traced {
            return None;
        }
        for (traced_as, forbidden) in self.traced.iter_mut().zip(self.forbidden) {
            traced_as[slot] = if forbidden >> slot & 1 == 0 { traced } else { NONE };
        }
        let old = std::mem::replace(&mut self.pages[slot].region, region);
        Some((old, std::mem::take(&mut self.references[slot])))
    }

    /// Frees a slot: one never used, or that of the page used longest ago, which is returned with
    /// the references that its region is owed.
    #[inline(always)]
    pub fn make_room(&mut self) -> (usize, Option<(Page, u64)>) {
        if self.taken < self.slots {
            self.taken += 1;
            return (self.taken - 1, None);
        }
        loop {
            let slot = usize::from(self.uses[self.oldest as usize % USES]) % FRONT;
            self.oldest += 1;
            if self.used[slot] == self.oldest - 1 {
                let references = std::mem::take(&mut self.references[slot]);
                return (slot, Some((self.pages[slot], references)));
            }
        }
    }

    /// When the page of a slot was used last.
    #[inline(always)]
    pub fn used(&self, slot: usize) -> u64 {
        self.used[slot]
    }

    /// The pages, relocated, and when each was used last.
    pub fn uses(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let pages = self.pages[..self.taken].iter().map(|page| page.number);
        pages.zip(self.used[..self.taken].iter().copied())
    }

    /// Whether any page is forbidden.
    #[inline(always)]
    pub fn forbids_any(&self) -> bool {
        self.forbidden[0] != 0
    }

    /// Whether the page of a slot is forbidden.
    #[inline(always)]
    pub fn is_forbidden(&self, slot: usize) -> bool {
        self.forbidden[0] >> slot & 1 != 0
    }

    /// Whether stores to the page of a slot are.
    #[inline(always)]
    pub fn is_store_forbidden(&self, slot: usize) -> bool {
        self.forbidden[1] >> slot & 1 != 0
    }

    /// Forbids all pages.
    pub fn forbid_all(&mut self) {
        self.traced = [[NONE; FRONT]; 2];
        // As many ones as slots are taken, 64 at most.
        let taken = (1u128 << self.taken) - 1;
        self.forbidden = [taken as u64; 2];
    }

    /// Forbids all base pages of a larger page, the one of base-page shift `shift` and number `number`.
    #[inline(never)]
    pub fn forbid_pages(&mut self, number: u64, shift: u8) {
        for slot in 0..self.taken {
            if self.pages[slot].number >> shift == number {
                self.forbid(slot);
            }
        }
    }

    /// Forbids the page of a slot.
    #[inline(always)]
    pub fn forbid(&mut self, slot: usize) {
        self.traced[0][slot] = NONE;
        self.traced[1][slot] = NONE;
        self.forbidden.iter_mut().for_each(|slots| *slots |= 1 << slot);
    }

    /// Forbids stores to the page of a slot.
    #[inline(always)]
    pub fn forbid_stores(&mut self, slot: usize) {
        self.traced[1][slot] = NONE;
        self.forbidden[1] |= 1 << slot;
    }

    /// Allows all references to the page of a slot, which is the traced one.
    #[inline(always)]
    pub fn allow(&mut self, slot: usize, traced: u64) {
        self.traced[0][slot] = traced;
        self.traced[1][slot] = traced;
        self.forbidden.iter_mut().for_each(|slots| *slots &= !(1 << slot));
    }

    /// Puts a page into a free slot, to be used at once.
    #[inline(always)]
    pub fn put(&mut self, slot: usize, traced: u64, page: Page) {
        self.guesses[guess_of(traced)] = slot as u8;
        self.allow(slot, traced);
        self.pages[slot] = page;
        // A slot that was the last one used has a new page now.
        self.current = FRONT;
    }

    /// Drops the traced pages in `first..end`: the next reference to one looks it up again.
    pub fn invalidate(&mut self, first: u64, end: u64) {
        for traced in self.traced.iter_mut().flatten() {
            if (first..end).contains(traced) {
                *traced = NONE;
            }
        }
    }

    /// Returns the references counted here that no region has got yet; they are no longer owed.
    pub fn take_owed(&mut self) -> Vec<(RegionId, u64)> {
        let owed = self.owed().filter(|(_, references)| *references > 0).collect();
        self.references.fill(0);
        owed
    }

    /// References counted here that no region has got yet.
    pub fn owed(&self) -> impl Iterator<Item = (RegionId, u64)> + '_ {
        self.pages.iter().map(|page| page.region).zip(self.references)
    }
}

/// Neighbouring pages, and pages far apart in the same place of their area, get places of their own.
#[inline(always)]
fn guess_of(traced: u64) -> usize {
    (traced ^ traced >> 12) as usize % GUESSES
}
