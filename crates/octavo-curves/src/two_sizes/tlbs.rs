//! All TLBs for two page sizes; sends each look-up to the TLBs that it concerns.

use octavo_types::Instructions;

use super::alternation::Steps;
use super::by_small::BySmall;
use super::indexed::{Indexed, Located};
use super::page::Page;
use super::stacked::Stacked;
use super::{TwoSizesConfig, TwoSizesIndex, TwoSizesSets, TwoSizesStack};

/// All of them for one stream.
///
/// Each takes many pages at a time, one after the other: so what it holds and what it foresees stays
/// in the processor's caches.
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
    /// Empty ones.
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

    /// Looks a page up, everywhere.
    #[inline(always)]
    pub fn page(&mut self, page: Page) {
        if self.steps.push(page) {
            self.process_steps();
        }
    }

    /// Looks up all pending steps. To be called before entries are invalidated, at the end, and
    /// before there are 2^32 pages.
    #[inline(never)]
    pub fn process_steps(&mut self) {
        let Tlbs { steps, stack, by_small, by_large, exact, split, .. } = self;
        let blocks_log2 = self.blocks_log2;
        let located = |page| Located::exact(page, blocks_log2);
        stack.take(steps);
        by_small.take(steps);
        by_large.take(steps.iter(), |step| {
            (located(step.page).large(blocks_log2), step.alternations_of_pages())
        });
        exact.take(steps.iter(), |step| (located(step.page), step.alternations_of_pages()));
        for (kind, tlb) in split.iter_mut().enumerate() {
            let of_kind = steps.iter().filter(|step| step.kinds()[0] == kind);
            tlb.take(of_kind, |step| {
                // Each stays the first of its half where only one of them is in it.
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

    /// Invalidates a large page where it is found by one of its blocks: to be called for each
    /// that it was referenced in.
    pub fn invalidate_block(&mut self, page: Page) {
        self.by_small.invalidate_block(page);
    }

    /// Invalidates a large page otherwise; any of its blocks will do.
    pub fn invalidate_large(&mut self, page: Page) {
        self.by_small.invalidate_large(page);
        self.invalidate(page);
    }

    /// Takes all entries out, which is not an invalidation.
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

    /// Invalidates a page where it is found by its own number, or not by any.
    fn invalidate(&mut self, page: Page) {
        let own = Located::exact(page, self.blocks_log2);
        self.by_large.invalidate(own.large(self.blocks_log2), 0);
        self.exact.invalidate(own, 0);
        self.stack.invalidate(own.id);
        self.split[usize::from(page.is_large())].invalidate(own, 0);
    }
}
