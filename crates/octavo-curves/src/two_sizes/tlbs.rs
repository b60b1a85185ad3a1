//! All TLBs for two page sizes, and what is looked up in which.

use octavo_types::Instructions;

use super::by_small::BySmall;
use super::indexed::{Indexed, Located};
use super::stacked::Stacked;
use super::turns::{LookUp, Turns};
use super::{TwoSizesConfig, TwoSizesIndex, TwoSizesSets, TwoSizesStack};

/// A page as it is at the moment, small or large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Tells pages of both sizes apart: an odd one is a large page.
    pub id: u32,
    /// The dense number of the block that is referenced.
    pub block: u32,
    /// The number of that block as an address: the page's own, where it is small.
    pub number: u64,
}

impl Page {
    /// Whether it is a large one.
    #[inline(always)]
    pub fn is_large(self) -> bool {
        self.id % 2 == 1
    }
}

/// All of them for one stream.
///
/// Nearest to the stream stands what cares for the block that is referenced also where that lies
/// in a large page, which is what is indexed by the small page number. What is used in turn there
/// is so everywhere, or is the same page.
pub struct Tlbs {
    turns: Turns<Page>,
    all: All,
}

struct All {
    blocks_log2: u8,
    by_small: BySmall,
    whole: Turns<Located>,
    shared: Shared,
    split: [(Turns<Located>, Indexed); 2],
}

/// What holds pages of both sizes, and finds a large one by nothing that lies in it.
struct Shared {
    blocks_log2: u8,
    stack: Stacked,
    by_large: Indexed,
    exact: Indexed,
}

impl Tlbs {
    /// Empty ones.
    pub fn new(config: &TwoSizesConfig, instructions: Instructions) -> Self {
        let indexed = || Indexed::new(config.max_sets_log2, instructions);
        let blocks_log2 = config.large.log2().saturating_sub(config.small.log2());
        Tlbs {
            turns: Turns::default(),
            all: All {
                blocks_log2,
                by_small: BySmall::new(config.max_sets_log2, blocks_log2, instructions),
                whole: Turns::default(),
                shared: Shared {
                    blocks_log2,
                    stack: Stacked::new(config.max_entries),
                    by_large: indexed(),
                    exact: indexed(),
                },
                split: [(Turns::default(), indexed()), (Turns::default(), indexed())],
            },
        }
    }

    /// Looks a page up, everywhere.
    #[inline(always)]
    pub fn page(&mut self, page: Page) {
        self.turns.page(page, &mut self.all);
    }

    /// To be called before entries are invalidated, and at the end.
    pub fn settle(&mut self) {
        self.turns.end(&mut self.all);
        self.all.whole.end(&mut self.all.shared);
        self.all.split.iter_mut().for_each(|(turns, tlb)| turns.end(tlb));
    }

    /// Invalidates a small page.
    pub fn invalidate_small(&mut self, page: Page) {
        self.all.by_small.invalidate_small(page);
        self.all.invalidate(page);
    }

    /// Invalidates a large page where it is found by one of its blocks: to be called for each
    /// that it was referenced in.
    pub fn invalidate_block(&mut self, page: Page) {
        self.all.by_small.invalidate_block(page);
    }

    /// Invalidates a large page otherwise; any of its blocks will do.
    pub fn invalidate_large(&mut self, page: Page) {
        self.all.by_small.invalidate_large(page);
        self.all.invalidate(page);
    }

    /// Takes all entries out, which is no invalidation.
    pub fn clear(&mut self) {
        self.settle();
        let All { by_small, shared, split, .. } = &mut self.all;
        by_small.clear();
        shared.stack.clear();
        [&mut shared.by_large, &mut shared.exact].into_iter().for_each(Indexed::clear);
        split.iter_mut().for_each(|(_, tlb)| tlb.clear());
    }

    /// What fully associative TLBs did.
    pub fn stack(&self) -> TwoSizesStack {
        self.all.shared.stack.result()
    }

    /// What set-associative ones did.
    pub fn sets(&self) -> Vec<TwoSizesSets> {
        use TwoSizesIndex::*;
        let All { by_small, shared, split, .. } = &self.all;
        let others = [
            (Large, &shared.by_large),
            (Exact, &shared.exact),
            (SplitSmall, &split[0].1),
            (SplitLarge, &split[1].1),
        ];
        let others = others.map(|(index, tlb)| tlb.result(index));
        [by_small.result(Small)].into_iter().chain(others).collect()
    }
}

impl All {
    /// Invalidates a page where it is found by its own number, or not by any.
    fn invalidate(&mut self, page: Page) {
        let own = Located::exact(page, self.blocks_log2);
        self.shared.by_large.invalidate(self.shared.by_large(own), 0);
        self.shared.exact.invalidate(own, 0);
        self.shared.stack.invalidate(own.id);
        self.split[usize::from(page.is_large())].1.invalidate(own, 0);
    }
}

impl LookUp<Page> for All {
    #[inline(never)]
    fn look_up(&mut self, page: Page) {
        self.by_small.look_up(page);
        let page = Located::exact(page, self.blocks_log2);
        self.whole.page(page, &mut self.shared);
        let (turns, tlb) = &mut self.split[usize::from(page.is_large())];
        turns.page(page, tlb);
    }

    #[inline(never)]
    fn in_turn(&mut self, pages: [Page; 2], times: u64) {
        let [one, other] = pages;
        if one.id == other.id {
            return;
        }
        self.by_small.in_turn(pages, times);
        self.whole.in_turn(times);
        if one.is_large() == other.is_large() {
            self.split[usize::from(one.is_large())].0.in_turn(times);
        }
    }
}

impl Shared {
    /// As the large page number indexes it.
    fn by_large(&self, page: Located) -> Located {
        let shift = if page.is_large() { 0 } else { self.blocks_log2 };
        Located { number: page.number >> shift, ..page }
    }
}

impl LookUp<Located> for Shared {
    fn look_up(&mut self, page: Located) {
        self.stack.look_up(page.id);
        self.by_large.look_up(self.by_large(page), true);
        self.exact.look_up(page, true);
    }

    fn in_turn(&mut self, pages: [Located; 2], times: u64) {
        self.stack.in_turn(pages.map(|page| page.id), times);
        self.by_large.in_turn(pages.map(|page| self.by_large(page)), times);
        self.exact.in_turn(pages, times);
    }
}
