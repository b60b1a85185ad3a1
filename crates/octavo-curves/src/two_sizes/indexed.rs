//! Set-associative TLBs of all sets and ways with one index: their contents and misses.

use octavo_types::Instructions;

use super::alternation::Step;
use super::page::Page;
use super::{TwoSizesIndex, TwoSizesSets};
use crate::sets::{HoleSets, Misses};

/// A page, and the page number that indexes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Located {
    /// As [`Page::id`].
    pub id: u32,
    /// The number that indexes it.
    pub number: u64,
}

impl Located {
    /// A page indexed by its own number.
    #[inline(always)]
    pub fn exact(page: Page, blocks_log2: u8) -> Self {
        let shift = if page.is_large() { blocks_log2 } else { 0 };
        Located { id: page.id, number: page.number >> shift }
    }

    /// The page of [`Located::exact`], indexed by the large page number.
    #[inline(always)]
    pub fn large(self, blocks_log2: u8) -> Self {
        let shift = if self.is_large() { 0 } else { blocks_log2 };
        Located { number: self.number >> shift, ..self }
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
    /// Misses on small pages and on large pages.
    misses: [Misses; 2],
}

impl Indexed {
    /// Empty TLBs.
    pub fn new(max_sets_log2: u8, instructions: Instructions) -> Self {
        Indexed {
            max_sets_log2,
            sets: HoleSets::new(max_sets_log2, instructions),
            misses: Default::default(),
        }
    }

    /// Looks up steps of pages that always have the same number. `located` returns the page, and the number of
    /// uses of the previous page and this one in alternation.
    #[inline(always)]
    pub fn process<'a>(
        &mut self,
        steps: impl Iterator<Item = &'a Step>,
        located: impl Fn(&Step) -> (Located, u32),
    ) {
        let ids = steps.map(|step| {
            let (page, alternations) = located(step);
            (page.id, page.number, step.kinds(), alternations)
        });
        self.sets.look_up_alternations(ids, &mut self.misses);
    }

    /// Looks up steps of pages that may have several numbers.
    #[inline(always)]
    pub fn process_any<'a>(
        &mut self,
        steps: impl Iterator<Item = &'a Step>,
        located: impl Fn(Page) -> Located,
    ) {
        for step in steps {
            self.look_up(located(step.page));
            let alternations = step.alternations_of_pages();
            if alternations > 1 {
                self.alternate([step.page, step.before].map(&located), u64::from(alternations / 2));
            }
            if alternations % 2 == 1 {
                self.look_up(located(step.before));
            }
        }
    }

    fn look_up(&mut self, page: Located) {
        let misses = &mut self.misses[usize::from(page.is_large())];
        // Index bits of a large page vary: the most recent of a set may be older in smaller sets.
        self.sets.access(page.id, page.number, !page.is_large(), misses);
    }

    /// Looks up two different pages, the last two, in alternation, `times` times each. Each is the second most
    /// recent in sets that both share, and the most recent in other sets.
    fn alternate(&mut self, pages: [Located; 2], times: u64) {
        let common = (pages[0].number ^ pages[1].number).trailing_zeros();
        for level in 0..=common.min(u32::from(self.max_sets_log2)) as usize {
            for page in pages {
                self.misses[usize::from(page.is_large())].add(level, 1, times);
            }
        }
    }

    /// Invalidates a page, which may have been looked up by any of 2^`numbers_log2` numbers from that of `first`.
    pub fn invalidate(&mut self, first: Located, numbers_log2: u8) {
        self.sets.invalidate(first.id, first.number, numbers_log2);
    }

    /// Removes all entries without counting invalidations.
    pub fn clear(&mut self) {
        self.sets.clear();
    }

    /// The results.
    pub fn result(&self, index: TwoSizesIndex) -> TwoSizesSets {
        let [small_misses, large_misses] =
            [0, 1].map(|kind: usize| self.misses[kind].missed(self.max_sets_log2));
        TwoSizesSets { index, small_misses, large_misses, invalidated: self.sets.invalidated() }
    }
}
