//! The four pages used last, in registers.

use std::hint::select_unpredictable as select;

use super::misses::Counts;
use super::pages::Page;
use crate::lanes::{LEVELS, TOP};

/// By the place of the page found: all bits of the pages that are not before it.
pub(crate) const NOT_BEFORE: [u32; TOP] = [0xfff, 0xff0, 0xf00, 0];
/// Not found in the top.
const NOWHERE: u32 = 1 << 12;

/// The four pages used last, the last one first.
#[derive(Clone, Copy, Debug)]
pub(super) struct Top(pub [Page; TOP]);

impl Top {
    /// Uses a page. If it is present, returns the number of index bits, at most 10, in common with each of the
    /// first three pages: four bits each, 15 for pages that are not before it.
    #[inline(always)]
    pub fn find(&mut self, page: Page) -> Option<usize> {
        let [a, b, c, d] = self.0;
        let (is_a, is_b, is_c, is_d) = (page == a, page == b, page == c, page == d);
        // Without branches, since the place of the page cannot be predicted.
        let at = select(is_c, NOT_BEFORE[2], select(is_d, NOT_BEFORE[3], NOWHERE));
        let at = select(is_b, NOT_BEFORE[1], select(is_a, NOT_BEFORE[0], at));
        if at == NOWHERE {
            return None;
        }
        let common = a.in_common(page) | b.in_common(page) << 4 | c.in_common(page) << 8;
        let (b, c, d) = (select(is_a, b, a), select(is_c | is_d, b, c), select(is_d, c, d));
        self.0 = [page, b, c, d];
        Some((common | at) as usize)
    }

    /// Uses the last two pages in alternation, the second of them first, `times` times in all. Returns the
    /// result that [`Top::find`] would have for each of these uses.
    #[inline(always)]
    pub fn alternate(&mut self, times: u32) -> usize {
        let [a, b, ..] = self.0;
        let is_odd = times % 2 == 1;
        (self.0[0], self.0[1]) = (select(is_odd, b, a), select(is_odd, a, b));
        (a.in_common(b) | NOT_BEFORE[1]) as usize
    }

    /// The pages, without empty places.
    pub fn pages(&self) -> impl Iterator<Item = Page> {
        self.0.into_iter().filter(|page| *page != Page::NONE)
    }

    /// The index bits of the pages, 16 bits each, the most recently used page lowest.
    #[inline(always)]
    pub fn bits(&self) -> u64 {
        let [a, b, c, d] = self.0.map(|page| u64::from(page.index_bits() as u16));
        a | b << 16 | c << 32 | d << 48
    }

    /// Inserts a page at the front. Returns the last page, which leaves the top.
    #[inline(always)]
    pub fn push(&mut self, page: Page) -> Page {
        let [a, b, c, d] = self.0;
        self.0 = [page, a, b, c];
        d
    }
}

/// Counts of look-ups of one of the four pages used last, by what it has in common with those before it: the result of
/// [`Top::find`].
#[derive(Clone, Debug)]
pub(crate) struct AtTop([u64; NOWHERE as usize]);

impl Default for AtTop {
    fn default() -> Self {
        AtTop([0; NOWHERE as usize])
    }
}

impl AtTop {
    /// Counts `times` look-ups with this result.
    #[inline(always)]
    pub fn add(&mut self, found: usize, times: u64) {
        self.0[found % self.0.len()] += times;
    }

    /// The look-ups by the number of pages that were used since.
    pub fn by_place(&self) -> [u64; TOP] {
        let mut by_place = [0; TOP];
        for (found, times) in self.0.iter().enumerate() {
            by_place[(0..3).filter(|other| found >> (4 * other) & 15 != 15).count()] += times;
        }
        by_place
    }

    /// Adds the look-ups to counts by position.
    pub fn add_to(&self, counts: &mut Counts) {
        for (found, times) in self.0.iter().enumerate().filter(|(_, times)| **times > 0) {
            for level in 0..LEVELS {
                let common = (0..3).map(|other| found >> (4 * other) & 15);
                let share = |common: &usize| *common != 15 && *common >= level;
                counts.add(level, common.filter(share).count(), *times);
            }
        }
    }
}
