//! All TLBs for two page sizes. Distributes each look-up to the TLBs that it concerns.

use octavo_types::Instructions;

use super::alternation::Steps;
use super::by_small::BySmall;
use super::indexed::{Indexed, Located};
use super::page::Page;
use super::stacked::Stacked;
use super::{TwoSizesConfig, TwoSizesIndex, TwoSizesSets, TwoSizesStack};

/// All TLBs of one stream.
///
/// Each processes many pages at a time, so that its state stays in the processor's caches.
pub struct Tlbs {
    blocks_log2: u8,
    steps: Steps,
    stack: Stacked,
    by_small: BySmall,
    by_large: Indexed,
    exact: Indexed,
    split: [Indexed; 2],
}

impl Tlbs {
    /// Empty TLBs.
    pub fn new(config: &TwoSizesConfig, instructions: Instructions) -> Self {
        let indexed = || Indexed::new(config.max_sets_log2, instructions);
        let blocks_log2 = config.large.log2().saturating_sub(config.small.log2());
        Tlbs {
            blocks_log2,
            steps: Steps::default(),
            stack: Stacked::new(config.max_entries),
            by_small: BySmall::new(config.max_sets_log2, blocks_log2, instructions),
            by_large: indexed(),
            exact: indexed(),
            split: [indexed(), indexed()],
        }
    }

    /// Looks up a page in all TLBs.
    #[inline(always)]
    pub fn page(&mut self, page: Page) {
        if self.steps.push(page) {
            self.process_steps();
        }
    }

    /// Looks up all pending steps. Must be called before entries are invalidated, at the end, and before there are
    /// 2^32 pages.
    #[inline(never)]
    pub fn process_steps(&mut self) {
        let Tlbs { steps, stack, by_small, by_large, exact, split, .. } = self;
        let blocks_log2 = self.blocks_log2;
        let located = |page| Located::exact(page, blocks_log2);
        stack.process(steps);
        by_small.process(steps);
        by_large.process(steps.iter(), |step| {
            (located(step.page).large(blocks_log2), step.alternations_of_pages())
        });
        exact.process(steps.iter(), |step| (located(step.page), step.alternations_of_pages()));
        for (kind, tlb) in split.iter_mut().enumerate() {
            let own_steps = steps.iter().filter(|step| step.kinds()[0] == kind);
            tlb.process(own_steps, |step| {
                // If the two pages are of different kinds, each stays the most recent of its TLB.
                let alternations =
                    if step.kinds()[1] == kind { step.alternations_of_pages() } else { 0 };
                (located(step.page), alternations)
            });
        }
        steps.clear();
    }

    /// Invalidates a small page.
    pub fn invalidate_small(&mut self, page: Page) {
        self.by_small.invalidate_small(page);
        self.invalidate(page);
    }

    /// Invalidates a large page in the TLBs that find it by block. Must be called for each block by which it was
    /// referenced.
    pub fn invalidate_block(&mut self, page: Page) {
        self.by_small.invalidate_block(page);
    }

    /// Invalidates a large page in all other TLBs. `page` may have any of its blocks.
    pub fn invalidate_large(&mut self, page: Page) {
        self.by_small.invalidate_large(page);
        self.invalidate(page);
    }

    /// Removes all entries without counting invalidations.
    pub fn clear(&mut self) {
        self.process_steps();
        self.stack.clear();
        self.by_small.clear();
        let [small, large] = &mut self.split;
        [&mut self.by_large, &mut self.exact, small, large].into_iter().for_each(Indexed::clear);
    }

    /// The results of fully associative TLBs.
    pub fn stack(&self) -> TwoSizesStack {
        self.stack.result()
    }

    /// The results of set-associative TLBs.
    pub fn sets(&self) -> Vec<TwoSizesSets> {
        use TwoSizesIndex::*;
        let others = [
            (Large, &self.by_large),
            (Exact, &self.exact),
            (SplitSmall, &self.split[0]),
            (SplitLarge, &self.split[1]),
        ];
        let others = others.map(|(index, tlb)| tlb.result(index));
        [self.by_small.result(Small)].into_iter().chain(others).collect()
    }

    /// Invalidates a page in the TLBs that find it by its own number, or that are fully associative.
    fn invalidate(&mut self, page: Page) {
        let own = Located::exact(page, self.blocks_log2);
        self.by_large.invalidate(own.large(self.blocks_log2), 0);
        self.exact.invalidate(own, 0);
        self.stack.invalidate(own.id);
        self.split[usize::from(page.is_large())].invalidate(own, 0);
    }
}
