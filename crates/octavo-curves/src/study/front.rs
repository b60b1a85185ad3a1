//! The front: the base pages used last, as many as the first TLB level holds, up to 64.
//!
//! Nearly all references go to one of these pages, which hits at every page size, and need no other
//! state: a page gets its place in the recency orders only when it leaves the front. Pages leave in
//! order of last use, so that they enter the recency orders in order.
//!
//! Each use writes its time beside its slot, and does nothing else that the next use would have to
//! wait for. The slot used longest ago is looked for when a page has to leave.
//!
//! A page, or stores to it, may be *forbidden*: the next reference then leaves the fast path.

use octavo_trace::RegionId;
use octavo_types::{Compiled, Instructions, OutlinedPage, PageNumber, PageSize, VirtAddr};

use super::pages::Spot;

/// How many pages the front holds at most.
pub const FRONT: usize = 64;
/// How many guesses at a page's slot are kept: one for each hash of a page.
const GUESSES: usize = 1 << PageNumber::HASH_BITS;
/// Places for slots, so that any byte is the number of one.
const PLACES: usize = 256;
/// The time between two uses; below it a last use has the number of its slot.
pub const STEP: u32 = PLACES as u32;
/// The last time that [`Front::reserve`] lets pass: a last use fits in 31 bits.
const LATEST: u32 = (1 << 31) - STEP * (1 << 18) - 1;
/// In how many parts references are counted, one after the other: a count that was just written is
/// slow to add to.
const PARTS: usize = 4;
/// No last use.
const NEVER: i32 = -1;
/// No page begins here, and no reference goes there: the address is not canonical.
const NOWHERE: u64 = 1 << 63;

/// The base pages used last.
pub struct Front {
    /// Where the pages begin as traced, which fetches and loads are compared with, and stores; `NOWHERE`
    /// for an empty slot, for one whose mapping has changed and for what is forbidden.
    starts: [[u64; PLACES]; 2],
    /// By slot, a bit each: whether its page is forbidden, and whether stores to it are.
    forbidden: [u64; 2],
    /// References to each since they were last taken away, in parts that add up: by a last use's
    /// lowest bits.
    references: [u64; PLACES * PARTS],
    /// The last use of each slot: its time, and below it the slot's number. Of a slot that is not
    /// taken, the greatest number.
    used: [i32; PLACES],
    /// The least last use, or one that was the least until its slot was used again. To look for the least
    /// takes long, as it waits for the last uses to be written; so it is looked for before it is wanted.
    least: i32,
    /// By a traced page's hash, the slot that it was last found in.
    guesses: [u8; GUESSES],
    /// The time of the last use: a step for each.
    now: u32,
    /// The time that was 0 when times were last renumbered.
    epoch: u64,
    /// Slots taken so far, of so many.
    taken: usize,
    slots: usize,
    pages: [Page; FRONT],
    instructions: Instructions,
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
            starts: [[NOWHERE; PLACES]; 2],
            forbidden: [0; 2],
            references: [0; PLACES * PARTS],
            used: [i32::MAX; PLACES],
            least: NEVER,
            guesses: [0; GUESSES],
            now: 0,
            epoch: 0,
            taken: 0,
            slots: slots.clamp(1, FRONT),
            pages: [Page::default(); FRONT],
            instructions: Instructions::best(),
        }
    }

    /// The slot of a traced page, if it is where it was last found and may be used so. If not, it may
    /// still be in the front.
    #[inline(always)]
    pub fn guess(&self, traced: u64, stores: bool) -> Option<usize> {
        self.guess_data(VirtAddr::new(start_of(traced)), stores, 0)
    }

    /// As [`Front::guess`], of a page that a segment fetches from.
    #[inline(always)]
    pub fn guess_outlined(&self, page: OutlinedPage) -> Option<usize> {
        let slot = usize::from(self.guesses[page.hash % GUESSES]);
        (self.starts[0][slot] == page.start.raw()).then_some(slot)
    }

    /// As [`Front::guess`], of the page of an address at most `last` bytes behind its beginning.
    #[inline(always)]
    pub fn guess_data(&self, addr: VirtAddr, stores: bool, last: u16) -> Option<usize> {
        let slot = usize::from(self.guesses[addr.page(PageSize::BASE).hash()]);
        let offset = addr.raw().wrapping_sub(self.starts[usize::from(stores)][slot]);
        (offset <= last.into()).then_some(slot)
    }

    /// Makes room for the times of 2^18 uses.
    #[inline(always)]
    pub fn reserve(&mut self) {
        if self.now > LATEST {
            self.renumber();
        }
    }

    /// The time of the last use.
    #[inline(always)]
    pub fn now(&self) -> u32 {
        self.now
    }

    /// For tests: numbers times again after so few uses that a test comes to it.
    #[cfg(test)]
    pub fn start_late(&mut self) {
        self.now = LATEST / STEP * STEP - 1000 * STEP;
    }

    /// Uses up to this time have been made with [`Front::use_at`].
    #[inline(always)]
    pub fn set_now(&mut self, now: u32) {
        self.now = now;
    }

    /// A page in a slot is used.
    #[inline(always)]
    pub fn use_slot(&mut self, slot: usize, references: u64) {
        self.now += STEP;
        self.use_at(self.now, slot, references);
    }

    /// The same at a time that is [`STEP`] later than that of the last use. The caller says
    /// [`Front::set_now`] before anything else is asked of the front, so that it can keep the time in
    /// a register.
    #[inline(always)]
    pub fn use_at(&mut self, time: u32, slot: usize, references: u64) {
        let used = time | slot as u32;
        self.used[slot] = used as i32;
        self.references[used as usize % (PLACES * PARTS)] += references;
    }

    /// Numbers the last uses again, without others between, from 1 on.
    #[cold]
    #[inline(never)]
    fn renumber(&mut self) {
        self.epoch += u64::from(self.now / STEP);
        self.now = 0;
        self.least = NEVER;
        let mut in_order = self.used;
        let in_order = &mut in_order[..self.taken];
        in_order.sort_unstable();
        for used in in_order {
            self.now += STEP;
            let slot = *used as usize % PLACES;
            self.used[slot] = self.now as i32 | slot as i32;
        }
    }

    /// The references to a slot since this was last asked.
    fn take_references(&mut self, slot: usize) -> u64 {
        let part = |part: usize| std::mem::take(&mut self.references[part * PLACES + slot]);
        (0..PARTS).map(part).sum()
    }

    /// Notes that a traced page, which its guess did not find, is in `slot`. If its mapping has
    /// changed, returns the references that its old region is owed.
    pub fn find(&mut self, slot: usize, traced: u64, region: RegionId) -> Option<(RegionId, u64)> {
        self.guesses[PageNumber::new(traced).hash()] = slot as u8;
        if self.starts[0][slot] == start_of(traced) {
            return None;
        }
        for (starts, forbidden) in self.starts.iter_mut().zip(self.forbidden) {
            starts[slot] = if forbidden >> slot & 1 == 0 { found_at(traced) } else { NOWHERE };
        }
        let old = std::mem::replace(&mut self.pages[slot].region, region);
        Some((old, self.take_references(slot)))
    }

    /// Frees a slot: one never used, or that of the page used longest ago, which is returned with
    /// the references that its region is owed.
    #[inline(always)]
    pub fn make_room(&mut self) -> (usize, Option<(Page, u64)>) {
        if self.taken < self.slots {
            self.taken += 1;
            return (self.taken - 1, None);
        }
        if self.used[self.least as usize % PLACES] != self.least {
            self.find_least();
        }
        let slot = self.least as usize % PLACES;
        let references = self.take_references(slot);
        (slot, Some((self.pages[slot], references)))
    }

    /// Looks for the slot that was used longest ago: it need not be looked for when room is made, if it is
    /// not used before.
    #[inline(always)]
    pub fn find_least(&mut self) {
        let of: &[i32; FRONT] = self.used.first_chunk().expect("there are more places than slots");
        self.least = self.instructions.run(Least { of });
    }

    /// When the page of a slot was used last.
    #[inline(always)]
    pub fn used(&self, slot: usize) -> u64 {
        self.epoch + u64::from(self.used[slot] as u32 / STEP)
    }

    /// The pages, relocated, and when each was used last.
    pub fn uses(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        (0..self.taken).map(|slot| (self.pages[slot].number, self.used(slot)))
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
        self.starts = [[NOWHERE; PLACES]; 2];
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
        self.starts[0][slot] = NOWHERE;
        self.starts[1][slot] = NOWHERE;
        self.forbidden.iter_mut().for_each(|slots| *slots |= 1 << slot);
    }

    /// Forbids stores to the page of a slot.
    #[inline(always)]
    pub fn forbid_stores(&mut self, slot: usize) {
        self.starts[1][slot] = NOWHERE;
        self.forbidden[1] |= 1 << slot;
    }

    /// Allows all references to the page of a slot, which is the traced one.
    #[inline(always)]
    pub fn allow(&mut self, slot: usize, traced: u64) {
        self.starts[0][slot] = found_at(traced);
        self.starts[1][slot] = found_at(traced);
        self.forbidden.iter_mut().for_each(|slots| *slots &= !(1 << slot));
    }

    /// Puts a page into a free slot, and uses it.
    #[inline(always)]
    pub fn put(&mut self, slot: usize, traced: u64, page: Page, references: u64) {
        self.guesses[PageNumber::new(traced).hash()] = slot as u8;
        self.allow(slot, traced);
        self.pages[slot] = page;
        self.use_slot(slot, references);
    }

    /// Drops the traced pages in `first..end`: the next reference to one looks it up again.
    pub fn invalidate(&mut self, first: u64, end: u64) {
        for start in self.starts.iter_mut().flatten() {
            if *start != NOWHERE && (first..end).contains(&(*start >> PageSize::BASE.log2())) {
                *start = NOWHERE;
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
        let references = |slot: usize| self.references.iter().skip(slot).step_by(PLACES).sum();
        self.pages.iter().enumerate().map(move |(slot, page)| (page.region, references(slot)))
    }
}

/// The least of the last uses.
struct Least<'a> {
    of: &'a [i32; FRONT],
}

impl Compiled for Least<'_> {
    type Output = i32;

    #[inline(always)]
    fn run(self) -> i32 {
        self.of.iter().copied().fold(i32::MAX, i32::min)
    }
}

/// Where a traced page begins.
#[inline(always)]
fn start_of(traced: u64) -> u64 {
    traced << PageSize::BASE.log2()
}

/// Where a traced page is found: nowhere for page 0, as an address there may be that of a guarded item
/// that did not execute.
#[inline(always)]
fn found_at(traced: u64) -> u64 {
    if traced == 0 { NOWHERE } else { start_of(traced) }
}
