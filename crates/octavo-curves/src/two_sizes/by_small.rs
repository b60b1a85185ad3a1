//! Set-associative TLBs indexed by the small page number, where a large page may be in several sets.
//!
//! If there are at least as many sets as blocks in a chunk, a large page has an independent entry in the
//! set of each block: it behaves as a separate page for each block, always found by the same number. Only
//! with fewer sets do blocks share entries.

use octavo_types::Instructions;

use super::alternation::Steps;
use super::indexed::{Indexed, Located};
use super::page::Page;
use super::{TwoSizesIndex, TwoSizesSets};

/// The TLBs.
pub struct BySmall {
    blocks_log2: u8,
    max_sets_log2: u8,
    /// TLBs with fewer sets than chunks have blocks.
    few: Indexed,
    /// The others, if there are any.
    many: Option<Indexed>,
}

impl BySmall {
    /// Empty TLBs.
    pub fn new(max_sets_log2: u8, blocks_log2: u8, instructions: Instructions) -> Self {
        let few = max_sets_log2.min(blocks_log2.saturating_sub(1));
        let has_many = max_sets_log2 >= blocks_log2;
        BySmall {
            blocks_log2,
            max_sets_log2,
            few: Indexed::new(few, instructions),
            many: has_many.then(|| Indexed::new(max_sets_log2, instructions)),
        }
    }

    /// Looks pages up.
    pub fn process(&mut self, steps: &Steps) {
        self.few.process_any(steps.iter(), by_page);
        if let Some(many) = &mut self.many {
            many.process(steps.iter(), |step| (by_block(step.page), step.alternations));
        }
    }

    /// Invalidates a small page.
    pub fn invalidate_small(&mut self, page: Page) {
        self.few.invalidate(by_page(page), 0);
        self.invalidate_block(page);
    }

    /// Invalidates a page in the TLBs in which each block has an entry of its own.
    pub fn invalidate_block(&mut self, page: Page) {
        if let Some(many) = &mut self.many {
            many.invalidate(by_block(page), 0);
        }
    }

    /// Invalidates a large page in the TLBs in which blocks share its entries.
    pub fn invalidate_large(&mut self, page: Page) {
        let first = page.number >> self.blocks_log2 << self.blocks_log2;
        self.few.invalidate(Located { id: page.id, number: first }, self.blocks_log2);
    }

    /// Removes all entries without counting invalidations.
    pub fn clear(&mut self) {
        self.few.clear();
        self.many.iter_mut().for_each(Indexed::clear);
    }

    /// The results.
    pub fn result(&self, index: TwoSizesIndex) -> TwoSizesSets {
        let few = self.few.result(index);
        let Some(many) = self.many.as_ref().map(|many| many.result(index)) else { return few };
        let levels = usize::from(self.max_sets_log2) + 1;
        let joined = |few: Vec<_>, many: Vec<_>| {
            let many = many.into_iter().skip(usize::from(self.blocks_log2));
            few.into_iter().chain(many).take(levels).collect()
        };
        TwoSizesSets {
            index,
            small_misses: joined(few.small_misses, many.small_misses),
            large_misses: joined(few.large_misses, many.large_misses),
            invalidated: joined(few.invalidated, many.invalidated),
        }
    }
}

/// Tags a page by its id, the same for all its blocks.
fn by_page(page: Page) -> Located {
    Located { id: page.id, number: page.number }
}

/// Tags a page by its block.
fn by_block(page: Page) -> Located {
    Located { id: 2 * page.block + page.id % 2, number: page.number }
}
