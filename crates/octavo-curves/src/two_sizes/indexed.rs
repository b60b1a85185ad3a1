//! Set-associative TLBs of all sets and ways, with one index: what they hold and what was found.

use octavo_types::Instructions;

use super::tlbs::Page;
use super::turns::LookUp;
use super::{TwoSizesIndex, TwoSizesSets};
use crate::sets::{HoleSets, Misses};

/// A page, and the number that it is indexed by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// As [`Page::id`].
    pub id: u32,
    /// What it is indexed by.
    pub number: u64,
}

impl Located {
    /// Indexed by its own number.
    #[inline(always)]
    pub fn exact(page: Page, blocks_log2: u8) -> Self {
        let shift = if page.is_large() { blocks_log2 } else { 0 };
        Located { id: page.id, number: page.number >> shift }
    }

    /// Whether it is a large page.
    #[inline(always)]
    pub fn is_large(self) -> bool {
        self.id % 2 == 1
    }
}

/// The TLBs.
pub struct Indexed {
    max_sets_log2: u8,
    sets: HoleSets,
    /// Of small pages and of large ones.
    misses: [Misses; 2],
}

impl Indexed {
    /// Empty ones.
    pub fn new(max_sets_log2: u8, instructions: Instructions) -> Self {
        Indexed {
            max_sets_log2,
            sets: HoleSets::new(max_sets_log2, instructions),
            misses: Default::default(),
        }
    }

    /// Looks a page up; `refines` where it always has the same number.
    #[inline(always)]
    pub fn look_up(&mut self, page: Located, refines: bool) {
        let misses = &mut self.misses[usize::from(page.is_large())];
        self.sets.access(page.id, page.number, refines, misses);
    }

    /// Two different pages, the last two that were looked up, come in turn, each so many times:
    /// each is the second of the sets that they share, and the first of its own.
    pub fn in_turn(&mut self, pages: [Located; 2], times: u64) {
        let common = (pages[0].number ^ pages[1].number).trailing_zeros();
        for level in 0..=common.min(u32::from(self.max_sets_log2)) as usize {
            for page in pages {
                self.misses[usize::from(page.is_large())].add(level, 1, times);
            }
        }
    }

    /// Invalidates a page, which may have been looked up by any of so many numbers, as a logarithm.
    pub fn invalidate(&mut self, first: Located, numbers_log2: u8) {
        self.sets.invalidate(first.id, first.number, numbers_log2);
    }

    /// Takes all entries out, which is no invalidation.
    pub fn clear(&mut self) {
        self.sets.clear();
    }

    /// What came of it.
    pub fn result(&self, index: TwoSizesIndex) -> TwoSizesSets {
        let [small_misses, large_misses] =
            [0, 1].map(|kind: usize| self.misses[kind].missed(self.max_sets_log2));
        TwoSizesSets { index, small_misses, large_misses, invalidated: self.sets.invalidated() }
    }
}

impl LookUp<Located> for Indexed {
    fn look_up(&mut self, page: Located) {
        self.look_up(page, true);
    }

    fn in_turn(&mut self, pages: [Located; 2], times: u64) {
        self.in_turn(pages, times);
    }
}
