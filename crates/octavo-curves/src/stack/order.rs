//! An order of last use that gives each page's depth.
//!
//! Pages enter at the recent end and leave from the middle, when they are used again, or from the
//! old end, when there are too many. So the order is a queue with gaps: a page's *slot* is its
//! position, a bitmap marks the slots in use, and nothing is moved or searched. A page's depth is
//! the number of slots in use from its own on; counts of the slots in use in newer words, and in
//! newer groups of words, give it in constant time. `study::recency` is a similar order without
//! depths.

mod counts;
#[cfg(test)]
mod tests;

use counts::Counts;

/// Slots in a word of the bitmap.
const WORD_SLOTS: u32 = 64;
/// Words in a group, and number of groups.
const GROUP_WORDS: usize = 16;
const GROUPS: usize = 16;
const GROUP_SLOTS: u32 = WORD_SLOTS * GROUP_WORDS as u32;
/// Slots in all: four times as many as there can be pages, so that closing the gaps is rare.
pub const SLOTS: u32 = GROUP_SLOTS * GROUPS as u32;

/// The most pages in an order.
pub const MAX_PAGES: u32 = SLOTS / 4;
/// No page has this id; a slot that it holds counts like any other.
pub const NO_ID: u32 = u32::MAX;

/// The stamp of a page that was never in the order, of a page that has left it, and the first stamp of a slot.
const NEVER: u32 = 0;
const LONG_AGO: u32 = 1;
const FIRST_STAMP: u32 = 2;
/// From this stamp on pages are renumbered at the next opportunity. Stamps of some more slots still fit.
const LATE_STAMP: u32 = u32::MAX - 4 * SLOTS;

/// An order of last use of at most `capacity` pages.
pub struct Order {
    /// A page's stamp is the sum of its slot and this.
    base: u32,
    /// The slot that is used next.
    next: u32,
    /// The oldest slot that may still be in use.
    oldest: u32,
    /// Slots in use.
    len: u32,
    capacity: u32,
    /// The slot at which gaps are closed, so that few pages stay within few slots, and in the first-level cache.
    limit: u32,
    /// A bitmap of the slots in use.
    taken: Box<[u64; SLOTS as usize / 64]>,
    /// The page of each slot.
    owners: Box<[u32; SLOTS as usize]>,
    /// Slots in use in the groups after each group, and in the words of the same group after each word. Not
    /// maintained for words before `oldest`, which are never read.
    newer_groups: Counts,
    newer_words: [Counts; GROUPS],
    /// The stamp of each page, by id. A stamp from `base + oldest` on is a slot in use, except for a page
    /// that was removed without [`Order::disown`].
    stamps: Vec<u32>,
}

impl Order {
    /// An empty order that keeps at most `capacity` (up to [`MAX_PAGES`]) pages.
    pub fn new(capacity: u32) -> Self {
        assert!(capacity <= MAX_PAGES, "an order has at most {MAX_PAGES} pages");
        Order {
            base: FIRST_STAMP,
            next: 0,
            oldest: 0,
            len: 0,
            capacity,
            limit: GROUP_SLOTS,
            taken: Box::new([0; SLOTS as usize / 64]),
            owners: vec![NO_ID; SLOTS as usize].into_boxed_slice().try_into().expect("as long"),
            newer_groups: Counts::default(),
            newer_words: [Counts::default(); GROUPS],
            stamps: Vec::new(),
        }
    }

    /// Makes room for ids below `ids`.
    #[inline(always)]
    pub fn grow(&mut self, ids: u32) {
        if ids as usize > self.stamps.len() {
            self.stamps.resize(ids as usize, NEVER);
        }
    }

    /// Makes a page not [new](Order::is_new), even if it was never in the order.
    pub fn remember(&mut self, id: u32) {
        let stamp = &mut self.stamps[id as usize];
        *stamp = LONG_AGO.max(*stamp);
    }

    /// Whether the page has never been in the order.
    #[inline(always)]
    pub fn is_new(&self, id: u32) -> bool {
        self.stamps[id as usize] == NEVER
    }

    /// The slot of a page, if it is in the order. The page must not have been [freed](Order::free).
    #[inline(always)]
    pub fn slot(&self, id: u32) -> Option<u32> {
        let slot = self.stamps[id as usize].wrapping_sub(self.base);
        // A stamp before `base` wraps around to a slot after `next`.
        (slot >= self.oldest && slot < self.next).then_some(slot)
    }

    /// The depth of a taken slot: 1 is the newest.
    #[inline(always)]
    pub fn depth(&self, slot: u32) -> u32 {
        let word = word_of(slot);
        let group = word / GROUP_WORDS;
        let newer = self.newer_groups.get(group) + self.newer_words[group].get(word % GROUP_WORDS);
        newer + (self.taken[word] >> (slot % WORD_SLOTS)).count_ones()
    }

    /// Frees a taken slot.
    #[inline(always)]
    pub fn free(&mut self, slot: u32) {
        self.taken[word_of(slot)] &= !(1 << (slot % WORD_SLOTS));
        let (group, word) = (word_of(slot) / GROUP_WORDS, word_of(slot) % GROUP_WORDS);
        self.newer_words[group].decrement_before(word);
        if group > 0 {
            self.newer_groups.decrement_before(group);
        }
        self.len -= 1;
    }

    /// Makes a taken slot a hole: it stays taken but has no page.
    #[inline(always)]
    pub fn disown(&mut self, slot: u32) {
        let owner = std::mem::replace(&mut self.owners[slot as usize], NO_ID);
        self.stamps[owner as usize] = LONG_AGO;
    }

    /// Whether the next page needs [`Order::close_gaps`] first.
    #[inline(always)]
    pub fn is_full(&self) -> bool {
        self.next == self.limit
    }

    /// Inserts a page that is not in the order as the newest. Drops the oldest slot if the order is full, and returns
    /// it.
    #[inline(always)]
    pub fn push(&mut self, id: u32) -> Option<u32> {
        if self.is_full() {
            self.close_gaps();
        }
        let word = word_of(self.next);
        self.taken[word] |= 1 << (self.next % WORD_SLOTS);
        let group = word / GROUP_WORDS;
        self.newer_words[group].increment_before(word % GROUP_WORDS);
        if group > 0 {
            self.newer_groups.increment_before(group);
        }
        self.own_next(id);
        self.len += 1;
        (self.len > self.capacity).then(|| self.drop_oldest())
    }

    /// [Frees](Order::free) a slot and [pushes](Order::push) a page.
    #[inline(always)]
    pub fn replace(&mut self, slot: u32, id: u32) {
        let (from, to) = (word_of(slot), word_of(self.next));
        if self.is_full() || from / GROUP_WORDS != to / GROUP_WORDS {
            self.free(slot);
            self.push(id);
            return;
        }
        self.taken[from] &= !(1 << (slot % WORD_SLOTS));
        self.taken[to] |= 1 << (self.next % WORD_SLOTS);
        let newer = &mut self.newer_words[to / GROUP_WORDS];
        newer.increment_between(from % GROUP_WORDS, to % GROUP_WORDS);
        self.own_next(id);
    }

    /// Makes a page the owner of the next slot, which is taken.
    #[inline(always)]
    fn own_next(&mut self, id: u32) {
        self.stamps[id as usize] = self.base + self.next;
        self.owners[self.next as usize % SLOTS as usize] = id;
        self.next += 1;
    }

    /// Drops the oldest slot; the stamp of its page then lies before `oldest`. There must be one. Returns it.
    #[inline(always)]
    fn drop_oldest(&mut self) -> u32 {
        let mut ahead = self.taken[word_of(self.oldest)] >> (self.oldest % WORD_SLOTS);
        while ahead == 0 {
            self.oldest += WORD_SLOTS - self.oldest % WORD_SLOTS;
            debug_assert!(self.oldest < self.next, "no slot is taken");
            ahead = self.taken[word_of(self.oldest)];
        }
        self.oldest += ahead.trailing_zeros();
        self.taken[word_of(self.oldest)] &= !(1 << (self.oldest % WORD_SLOTS));
        self.oldest += 1;
        self.len -= 1;
        self.oldest - 1
    }

    /// Moves all taken slots to the front, with no free one between.
    #[cold]
    #[inline(never)]
    pub fn close_gaps(&mut self) {
        if self.base > LATE_STAMP {
            let seen = self.stamps.iter_mut().filter(|stamp| **stamp != NEVER);
            seen.for_each(|stamp| *stamp = LONG_AGO);
            self.base = FIRST_STAMP;
        } else {
            // All earlier stamps lie before the new base.
            self.base += self.next;
        }
        let mut to = 0;
        for word in word_of(self.oldest)..(self.next as usize).div_ceil(WORD_SLOTS as usize) {
            let mut rest = self.taken[word];
            while rest != 0 {
                let owner =
                    self.owners[word * WORD_SLOTS as usize + rest.trailing_zeros() as usize];
                self.owners[to as usize] = owner;
                if owner != NO_ID {
                    self.stamps[owner as usize] = self.base + to;
                }
                to += 1;
                rest &= rest - 1;
            }
        }
        debug_assert_eq!(to, self.len);
        (self.oldest, self.next) = (0, to);
        self.limit = (to * 4).next_multiple_of(WORD_SLOTS).clamp(GROUP_SLOTS, SLOTS);
        for (word, taken) in (0..).zip(self.taken.iter_mut()) {
            let here = to.saturating_sub(word * WORD_SLOTS).min(WORD_SLOTS);
            *taken = u64::MAX.checked_shr(WORD_SLOTS - here).unwrap_or(0);
        }
        let newer_than = |slots: u32| to - to.min(slots);
        self.newer_groups = Counts::new(|group| newer_than((group + 1) * GROUP_SLOTS));
        for (group, newer) in (0..).zip(&mut self.newer_words) {
            let (first, end) = (group * GROUP_SLOTS, (group + 1) * GROUP_SLOTS);
            *newer =
                Counts::new(|word| newer_than(first + (word + 1) * WORD_SLOTS) - newer_than(end));
        }
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        self.taken.fill(0);
        self.len = 0;
        // All earlier stamps lie before the new base.
        self.close_gaps();
    }

    /// The slots without a page, oldest first.
    pub fn disowned(&self) -> impl Iterator<Item = u32> + '_ {
        (self.oldest..self.next).filter(|slot| {
            self.owners[*slot as usize] == NO_ID
                && self.taken[word_of(*slot)] & (1 << (slot % WORD_SLOTS)) != 0
        })
    }

    /// For tests: an empty order whose first stamp is `base`.
    #[cfg(test)]
    pub fn start_at(&mut self, base: u32) {
        self.base = base;
    }
}

/// The word of a slot, with a modulo that removes the bounds check.
#[inline(always)]
fn word_of(slot: u32) -> usize {
    (slot / WORD_SLOTS) as usize % (GROUPS * GROUP_WORDS)
}
