//! The front: the base pages used last, as many as the first TLB level holds, up to 64.
//!
//! Nearly all references are to one of these pages, hit at every page size, and need no other state: a
//! page enters the recency orders only when it leaves the front. Pages leave in order of last use, so that
//! they enter the recency orders in order.
//!
//! Each use writes its time for its slot, and nothing else that the next use would have to wait for. The
//! least recently used slot is searched only when a page must leave.
//!
//! A page, or stores to it, may be *forbidden*: the next reference then leaves the fast path.

use octavo_trace::RegionId;
use octavo_types::{Compiled, Instructions, OutlinedPage, PageNumber, PageSize, VirtAddr};

use super::pages::Spot;

/// Maximum number of pages in the front.
pub const FRONT: usize = 64;
/// Guesses of a page's slot: one for each hash of a page.
const GUESSES: usize = 1 << PageNumber::HASH_BITS;
/// Length of arrays by slot, so that a byte needs no bounds check.
const PLACES: usize = 256;
/// The time between two uses. The bits below are the number of the slot.
pub const STEP: u32 = PLACES as u32;
/// The last time at which [`Front::reserve`] does not renumber, so that times fit in 31 bits.
const LATEST: u32 = (1 << 31) - STEP * (1 << 18) - 1;
/// Number of partial counts of references, used in turn: adding to a count that was just written is slow.
const PARTS: usize = 4;
/// No last use.
const NEVER: i32 = -1;
/// The start of no page and the address of no reference: it is not canonical.
const NOWHERE: u64 = 1 << 63;

/// The base pages used last.
pub struct Front {
    /// The start address of each page as traced, for fetches and loads, and for stores. `NOWHERE` for an
    /// empty slot, after a change of the mapping, and if forbidden.
    starts: [[u64; PLACES]; 2],
    /// A bit for each slot: whether its page is forbidden, and whether stores to its page are.
    forbidden: [u64; 2],
    /// References to each slot that have not been credited to a region, in [`PARTS`] partial counts: by the
    /// lowest bits of a last use.
    references: [u64; PLACES * PARTS],
    /// The last use of each slot: its time, and below it the slot's number. `i32::MAX` for an unused slot.
    used: [i32; PLACES],
    /// The least last use, or one that was the least until its slot was used again. The search waits for the
    /// last uses to be written, so that it is made before the result is needed.
    least: i32,
    /// The slot in which a page was last found, by the page's hash.
    guesses: [u8; GUESSES],
    /// The time of the last use. Each use adds [`STEP`].
    now: u32,
    /// Number of uses before times were last renumbered from 0.
    epoch: u64,
    /// Slots in use.
    taken: usize,
    /// Capacity in slots.
    slots: usize,
    pages: [Page; FRONT],
    instructions: Instructions,
}

/// A page in the front.
#[derive(Clone, Copy, Default)]
pub struct Page {
    /// Its relocated number.
    pub number: u64,
    /// The location of its state.
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

    /// The slot of a traced page, if it is in the slot where it was last found and the use is not forbidden.
    /// Otherwise it may still be in the front.
    #[inline(always)]
    pub fn guess(&self, traced: u64, stores: bool) -> Option<usize> {
        self.guess_data(VirtAddr::new(start_of(traced)), stores, 0)
    }

    /// As [`Front::guess`], for a page that a segment fetches from.
    #[inline(always)]
    pub fn guess_outlined(&self, page: OutlinedPage) -> Option<usize> {
        let slot = usize::from(self.guesses[page.hash % GUESSES]);
        (self.starts[0][slot] == page.start.raw()).then_some(slot)
    }

    /// As [`Front::guess`], for the page of an address at most `last` bytes behind the start of the page.
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

    /// Starts shortly before times are renumbered, for tests.
    #[cfg(test)]
    pub fn start_late(&mut self) {
        self.now = LATEST / STEP * STEP - 1000 * STEP;
    }

    /// Sets the time of the last use that was made with [`Front::use_at`].
    #[inline(always)]
    pub fn set_now(&mut self, now: u32) {
        self.now = now;
    }

    /// Uses the page of a slot.
    #[inline(always)]
    pub fn use_slot(&mut self, slot: usize, references: u64) {
        self.now += STEP;
        self.use_at(self.now, slot, references);
    }

    /// As [`Front::use_slot`], at a time [`STEP`] later than the last use, which the caller keeps in a register.
    /// The caller must call [`Front::set_now`] before any other method.
    #[inline(always)]
    pub fn use_at(&mut self, time: u32, slot: usize, references: u64) {
        let used = time | slot as u32;
        self.used[slot] = used as i32;
        self.references[used as usize % (PLACES * PARTS)] += references;
    }

    /// Renumbers the last uses consecutively from 1.
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

    /// Returns and resets the references to a slot that have not been credited to a region.
    fn take_references(&mut self, slot: usize) -> u64 {
        let part = |part: usize| std::mem::take(&mut self.references[part * PLACES + slot]);
        (0..PARTS).map(part).sum()
    }

    /// Records that a traced page, which was not guessed, is in `slot`. If its mapping has changed, returns the
    /// old region with the references to credit to it.
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

    /// Frees a slot: an unused one, or the slot of the least recently used page, which is returned with the
    /// references to credit to its region.
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

    /// Searches the least recently used slot in advance. [`Front::make_room`] repeats the search only if that
    /// slot is used before.
    #[inline(always)]
    pub fn find_least(&mut self) {
        let used: &[i32; FRONT] =
            self.used.first_chunk().expect("there are more places than slots");
        self.least = self.instructions.run(Least { used });
    }

    /// The time of the last use of a slot.
    #[inline(always)]
    pub fn used(&self, slot: usize) -> u64 {
        self.epoch + u64::from(self.used[slot] as u32 / STEP)
    }

    /// The relocated pages, each with the time of its last use.
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

    /// Whether stores to the page of a slot are forbidden.
    #[inline(always)]
    pub fn is_store_forbidden(&self, slot: usize) -> bool {
        self.forbidden[1] >> slot & 1 != 0
    }

    /// Forbids all pages.
    pub fn forbid_all(&mut self) {
        self.starts = [[NOWHERE; PLACES]; 2];
        // A one for each slot in use, at most 64.
        let taken = (1u128 << self.taken) - 1;
        self.forbidden = [taken as u64; 2];
    }

    /// Forbids all base pages of the page with number `number` and base-page shift `shift`.
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

    /// Allows all references to the page of a slot, whose traced number is `traced`.
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

    /// Drops the traced pages in `first..end`. The next reference to one looks it up again.
    pub fn invalidate(&mut self, first: u64, end: u64) {
        for start in self.starts.iter_mut().flatten() {
            if *start != NOWHERE && (first..end).contains(&(*start >> PageSize::BASE.log2())) {
                *start = NOWHERE;
            }
        }
    }

    /// Returns and resets the references that have not been credited to a region.
    pub fn take_owed(&mut self) -> Vec<(RegionId, u64)> {
        let owed = self.owed().filter(|(_, references)| *references > 0).collect();
        self.references.fill(0);
        owed
    }

    /// The references of each page that have not been credited to its region.
    pub fn owed(&self) -> impl Iterator<Item = (RegionId, u64)> + '_ {
        let references = |slot: usize| self.references.iter().skip(slot).step_by(PLACES).sum();
        self.pages.iter().enumerate().map(move |(slot, page)| (page.region, references(slot)))
    }
}

/// The search of the least of the last uses.
struct Least<'a> {
    used: &'a [i32; FRONT],
}

impl Compiled for Least<'_> {
    type Output = i32;

    #[inline(always)]
    fn run(self) -> i32 {
        self.used.iter().copied().fold(i32::MAX, i32::min)
    }
}

/// The start address of a traced page.
#[inline(always)]
fn start_of(traced: u64) -> u64 {
    traced << PageSize::BASE.log2()
}

/// The address by which a traced page is found: [`NOWHERE`] for page 0, since an address in it may belong to a guarded
/// item that did not execute.
#[inline(always)]
fn found_at(traced: u64) -> u64 {
    if traced == 0 { NOWHERE } else { start_of(traced) }
}
