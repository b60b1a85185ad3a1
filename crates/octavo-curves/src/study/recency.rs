//! The recency order of pages.
//!
//! Pages enter at the recent end and leave from the middle, when they are used again, or from the
//! old end, when there are too many. So the order is a queue with gaps: a page's *stamp* is its
//! position, a bitmap marks the positions in use, and nothing is moved or searched. A page whose
//! stamp lies before the old end is not in the order, so that dropping the oldest page needs no write
//! to its stamp.

use super::pages::{Place, Stamps};

/// From this stamp on an order should be renumbered; some 16 million more stamps still fit.
const LATE_STAMP: u32 = u32::MAX - (1 << 24);

/// A recency order of pages, identified by their places.
pub struct Recency {
    /// The next stamp. 0 is not a stamp.
    next: u32,
    /// The oldest stamp that may be in use.
    oldest: u32,
    /// A bitmap of the stamps in use, modulo the length of the ring.
    taken: Box<[u64]>,
    /// The page of each stamp in use.
    places: Box<[Place]>,
    /// The length of the ring, a power of two, less one.
    mask: u32,
}

impl Recency {
    /// An empty order of at most `capacity` pages.
    pub fn new(capacity: u32) -> Self {
        // Room for four times as many stamps makes closing the holes rare.
        let ring = (capacity as usize * 4).next_power_of_two().max(256);
        Recency {
            next: 1,
            oldest: 1,
            taken: vec![0; ring / 64].into(),
            places: vec![Place::default(); ring].into(),
            mask: ring as u32 - 1,
        }
    }

    /// Whether the page at `place` is in the order.
    #[inline(always)]
    pub fn contains(&self, place: Place, stamps: &Stamps) -> bool {
        stamps[place] >= self.oldest
    }

    /// Removes a page that is in the order.
    #[inline(always)]
    pub fn remove(&mut self, place: Place, stamps: &Stamps) {
        let bit = stamps[place] & self.mask;
        debug_assert!(self.taken[bit as usize / 64] & (1 << (bit % 64)) != 0);
        self.taken[bit as usize / 64] &= !(1 << (bit % 64));
    }

    /// Inserts a page that is not in the order as the most recent.
    #[inline(always)]
    pub fn push(&mut self, place: Place, stamps: &mut Stamps) {
        if self.next - self.oldest > self.mask {
            self.close_holes(stamps);
        }
        stamps[place] = self.next;
        let bit = self.next & self.mask;
        self.taken[bit as usize / 64] |= 1 << (bit % 64);
        self.places[bit as usize] = place;
        self.next += 1;
    }

    /// Drops the oldest page. There must be one.
    #[inline(always)]
    pub fn drop_oldest(&mut self) {
        let mut bit = self.oldest & self.mask;
        let mut ahead = self.taken[bit as usize / 64] >> (bit % 64);
        while ahead == 0 {
            self.oldest += 64 - bit % 64;
            debug_assert!(self.oldest < self.next, "no page is in the order");
            bit = self.oldest & self.mask;
            ahead = self.taken[bit as usize / 64];
        }
        self.oldest += ahead.trailing_zeros();
        bit = self.oldest & self.mask;
        self.taken[bit as usize / 64] &= !(1 << (bit % 64));
        self.oldest += 1;
    }

    /// Gives the pages new stamps without holes between.
    #[cold]
    #[inline(never)]
    fn close_holes(&mut self, stamps: &mut Stamps) {
        let pages = self.pages();
        self.taken.fill(0);
        self.oldest = self.next;
        for place in pages {
            self.push(place, stamps);
        }
    }

    /// Whether stamps are running out: see [`Recency::renumber`].
    pub fn is_late(&self) -> bool {
        self.next >= LATE_STAMP
    }

    /// Renumbers `pages`, the result of [`Recency::pages`], from 1. All stamps of this order must have been set
    /// to 0 since.
    pub fn renumber(&mut self, pages: Vec<Place>, stamps: &mut Stamps) {
        self.taken.fill(0);
        (self.oldest, self.next) = (1, 1);
        for place in pages {
            self.push(place, stamps);
        }
    }

    /// The pages, oldest first.
    pub fn pages(&self) -> Vec<Place> {
        (self.oldest..self.next)
            .map(|stamp| stamp & self.mask)
            .filter(|bit| self.taken[*bit as usize / 64] & (1 << (bit % 64)) != 0)
            .map(|bit| self.places[bit as usize])
            .collect()
    }

    /// Sets the next stamp of an empty order, for tests.
    #[cfg(test)]
    pub fn start_at(&mut self, next: u32) {
        (self.oldest, self.next) = (next, next);
    }
}

#[cfg(test)]
mod tests {
    use super::super::pages::Pages;
    use super::*;
    use crate::sizes::Sizes;
    use octavo_types::PageSize;
    use proptest::prelude::*;

    fn place(pages: &mut Pages, page: u64) -> Place {
        let spot = pages.spot(page);
        pages.place(spot, page, 0, 0)
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        /// Random uses of few pages in an order of few entries, with holes, long-lived pages and wrap-arounds of
        /// the ring, compared with a list.
        #[test]
        fn an_order_is_a_list(
            uses in prop::collection::vec(0u64..24, 1..3000), entries in 1u32..20, start in 1u32..500,
        ) {
            let mut pages = Pages::new(&Sizes::new(vec![PageSize::BASE]), 1);
            let mut order = Recency::new(entries);
            order.start_at(start);
            let mut list: Vec<u64> = Vec::new();
            for page in uses {
                let place = place(&mut pages, page);
                prop_assert_eq!(order.contains(place, &pages.stamps), list.contains(&page));
                if let Some(at) = list.iter().position(|other| *other == page) {
                    list.remove(at);
                    order.remove(place, &pages.stamps);
                } else if list.len() == entries as usize {
                    list.remove(0);
                    order.drop_oldest();
                }
                list.push(page);
                order.push(place, &mut pages.stamps);
            }
            let expected: Vec<Place> = list.iter().map(|page| place(&mut pages, *page)).collect();
            prop_assert_eq!(order.pages(), expected);
        }
    }
}
