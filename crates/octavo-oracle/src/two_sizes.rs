//! Two page sizes under the dynamic policy of Talluri et al., "Tradeoffs in supporting two page
//! sizes", by a list of the blocks in the window.

use std::collections::BTreeSet;
use std::ops::Range;

use octavo_types::{PageNumber, PageSize};

use crate::{NaiveSets, NaiveTlb};

/// How a set-associative TLB for two page sizes is indexed (section 2.2 of the paper).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveTwoSizesIndex {
    /// By the number of the small page that is referenced, whatever it belongs to.
    Small,
    /// By the number of the large page that it lies in, whether it is one or not.
    Large,
    /// By the number of the page as it is.
    Exact,
    /// It holds small pages only, indexed by their number.
    SplitSmall,
    /// It holds large pages only, indexed by their number.
    SplitLarge,
}

/// A page as it is at the moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Small(u64),
    Large(u64),
}

impl Page {
    /// A tag that tells pages of both sizes apart.
    fn tag(self) -> PageNumber {
        PageNumber::new(match self {
            Page::Small(block) => 2 * block,
            Page::Large(chunk) => 2 * chunk + 1,
        })
    }
}

/// One TLB, with what became of it.
#[derive(Clone, Debug)]
pub struct NaiveTwoSizesTlb {
    entries: Entries,
    /// Misses on small pages.
    pub small_misses: u64,
    /// Misses on large pages.
    pub large_misses: u64,
    /// Entries that changes of page size invalidated.
    pub invalidated: u64,
}

#[derive(Clone, Debug)]
enum Entries {
    Fully(NaiveTlb),
    Sets { tlb: NaiveSets, index: NaiveTwoSizesIndex, sets: u64 },
}

impl NaiveTwoSizesTlb {
    /// A fully associative TLB with the page size in the tag.
    pub fn fully(entries: usize) -> Self {
        Self::new(Entries::Fully(NaiveTlb::new(entries)))
    }

    /// A set-associative one, with so many sets of so many ways.
    pub fn sets(index: NaiveTwoSizesIndex, sets: usize, ways: usize) -> Self {
        Self::new(Entries::Sets { tlb: NaiveSets::new(sets, ways), index, sets: sets as u64 })
    }

    fn new(entries: Entries) -> Self {
        NaiveTwoSizesTlb { entries, small_misses: 0, large_misses: 0, invalidated: 0 }
    }

    /// Block `block` of chunk `chunk` is referenced, on `page`.
    fn access(&mut self, page: Page, block: u64, chunk: u64) {
        use NaiveTwoSizesIndex::*;
        let hit = match &mut self.entries {
            Entries::Fully(tlb) => tlb.access(page.tag()),
            Entries::Sets { tlb, index, sets } => {
                let number = match (index, page) {
                    (SplitSmall, Page::Large(_)) | (SplitLarge, Page::Small(_)) => return,
                    (Small, _) => block,
                    (Large, _) => chunk,
                    (
                        Exact | SplitSmall | SplitLarge,
                        Page::Small(number) | Page::Large(number),
                    ) => number,
                };
                tlb.access((number % *sets) as usize, page.tag())
            }
        };
        match page {
            Page::Small(_) => self.small_misses += u64::from(!hit),
            Page::Large(_) => self.large_misses += u64::from(!hit),
        }
    }

    /// Takes all entries out, which is no invalidation.
    pub fn flush(&mut self) {
        match &mut self.entries {
            Entries::Fully(tlb) => tlb.flush(),
            Entries::Sets { tlb, .. } => tlb.flush(),
        }
    }

    fn invalidate(&mut self, page: Page) {
        self.invalidated += match &mut self.entries {
            Entries::Fully(tlb) => u64::from(tlb.invalidate(page.tag())),
            Entries::Sets { tlb, .. } => tlb.invalidate(page.tag()),
        };
    }
}

/// The policy of section 3.4 with the TLBs that it acts upon, one reference at a time.
///
/// "During the simulation we maintain a list of all the blocks accessed in the last T references.
/// We map each chunk as either one large page or small pages." A reference first makes the blocks
/// leave that were last referenced before the window began (its own is not one of them), then
/// enters its block, and then is looked up. One that spans two blocks does so twice.
#[derive(Clone, Debug)]
pub struct NaiveTwoSizes {
    small: PageSize,
    large: PageSize,
    window_refs: u64,
    threshold_blocks: u64,
    refs: u64,
    /// The blocks in the window and when they were last referenced, the latest last.
    window: Vec<(u64, u64)>,
    /// The blocks referenced so far.
    touched: BTreeSet<u64>,
    /// The chunks that are large pages.
    large_chunks: BTreeSet<u64>,
    /// The TLBs.
    pub tlbs: Vec<NaiveTwoSizesTlb>,
    /// Which of them are looked up: those of the core that runs. All, where there is one core.
    pub running: Range<usize>,
    /// Look-ups of small pages.
    pub small_lookups: u64,
    /// Look-ups of large pages.
    pub large_lookups: u64,
    /// Chunks that became large pages.
    pub promotions: u64,
    /// Large pages that became small ones.
    pub demotions: u64,
    /// Blocks of promoted chunks that had been referenced before.
    pub blocks_copied: u64,
    /// Blocks of promoted chunks that had not.
    pub blocks_zeroed: u64,
    /// The bytes of the working set, summed over all references.
    pub working_set_byte_refs: u128,
}

impl NaiveTwoSizes {
    /// Nothing referenced yet. A chunk is large while `threshold_blocks` of its blocks are in the
    /// window of `window_refs` references.
    pub fn new(
        (small, large): (PageSize, PageSize),
        window_refs: u64,
        threshold_blocks: u32,
        tlbs: Vec<NaiveTwoSizesTlb>,
    ) -> Self {
        NaiveTwoSizes {
            small,
            large,
            window_refs,
            threshold_blocks: threshold_blocks.into(),
            refs: 0,
            window: Vec::new(),
            touched: BTreeSet::new(),
            large_chunks: BTreeSet::new(),
            running: 0..tlbs.len(),
            tlbs,
            small_lookups: 0,
            large_lookups: 0,
            promotions: 0,
            demotions: 0,
            blocks_copied: 0,
            blocks_zeroed: 0,
            working_set_byte_refs: 0,
        }
    }

    /// A reference to these base pages.
    pub fn reference(&mut self, base_pages: &[PageNumber]) {
        let mut blocks: Vec<u64> =
            base_pages.iter().map(|page| page.raw() >> self.small.base_shift()).collect();
        blocks.dedup();
        for block in blocks {
            self.leave(block);
            self.enter(block);
            self.look_up(block);
        }
        let is_small = |block| !self.large_chunks.contains(&self.chunk(block));
        let small = self.window.iter().filter(|(block, _)| is_small(*block)).count() as u128;
        let large = self.large_chunks.len() as u128;
        self.working_set_byte_refs +=
            small * u128::from(self.small.bytes()) + large * u128::from(self.large.bytes());
        self.refs += 1;
    }

    fn blocks_log2(&self) -> u8 {
        self.large.log2() - self.small.log2()
    }

    fn chunk(&self, block: u64) -> u64 {
        block >> self.blocks_log2()
    }

    fn in_window(&self, chunk: u64) -> u64 {
        self.window.iter().filter(|(block, _)| self.chunk(*block) == chunk).count() as u64
    }

    fn leave(&mut self, referenced: u64) {
        for (block, last) in self.window.clone() {
            if block != referenced && last + self.window_refs <= self.refs {
                self.window.retain(|(other, _)| *other != block);
                let chunk = self.chunk(block);
                if self.in_window(chunk) < self.threshold_blocks && self.large_chunks.remove(&chunk)
                {
                    self.demotions += 1;
                    self.tlbs.iter_mut().for_each(|tlb| tlb.invalidate(Page::Large(chunk)));
                }
            }
        }
    }

    fn enter(&mut self, block: u64) {
        self.window.retain(|(other, _)| *other != block);
        self.window.push((block, self.refs));
        let chunk = self.chunk(block);
        if self.in_window(chunk) >= self.threshold_blocks && self.large_chunks.insert(chunk) {
            self.promotions += 1;
            let blocks = 1 << self.blocks_log2();
            let touched: Vec<u64> = self
                .touched
                .range(chunk * blocks..=chunk * blocks + (blocks - 1))
                .copied()
                .collect();
            self.blocks_copied += touched.len() as u64;
            self.blocks_zeroed += blocks - touched.len() as u64;
            for tlb in &mut self.tlbs {
                touched.iter().for_each(|block| tlb.invalidate(Page::Small(*block)));
            }
        }
        self.touched.insert(block);
    }

    fn look_up(&mut self, block: u64) {
        let chunk = self.chunk(block);
        let is_large = self.large_chunks.contains(&chunk);
        let page = if is_large { Page::Large(chunk) } else { Page::Small(block) };
        self.small_lookups += u64::from(!is_large);
        self.large_lookups += u64::from(is_large);
        let running = &mut self.tlbs[self.running.clone()];
        running.iter_mut().for_each(|tlb| tlb.access(page, block, chunk));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Chunks of 16 KiB, large with two of four blocks in the last three references.
    #[test]
    fn six_references_by_hand() {
        use NaiveTwoSizesIndex::*;
        let tlbs = vec![
            NaiveTwoSizesTlb::fully(1),
            NaiveTwoSizesTlb::fully(2),
            NaiveTwoSizesTlb::sets(Small, 2, 1),
            NaiveTwoSizesTlb::sets(SplitLarge, 1, 1),
        ];
        let sizes = (PageSize::BASE, PageSize::from_log2(14).unwrap());
        let mut two = NaiveTwoSizes::new(sizes, 3, 2, tlbs);
        let references = [
            vec![0],    // small 0; working set 4K
            vec![1],    // chunk 0 is promoted, small 0 invalidated; 16K
            vec![0],    // the large page again; 16K
            vec![8, 9], // chunk 2: small 8, then promoted: small 8 invalidated; 16K + 16K
            vec![9],    // block 1 has left: chunk 0 is demoted; 4K + 16K
            vec![0],    // small 0; 4K + 16K
        ];
        for pages in references {
            let pages: Vec<PageNumber> = pages.into_iter().map(PageNumber::new).collect();
            two.reference(&pages);
        }
        assert_eq!((two.promotions, two.demotions), (2, 1));
        assert_eq!((two.small_lookups, two.large_lookups), (3, 4));
        assert_eq!((two.blocks_copied, two.blocks_zeroed), (2, 6));
        assert_eq!(two.working_set_byte_refs, 1024 * (4 + 16 + 16 + 32 + 20 + 20));
        let counts = |tlb: &NaiveTwoSizesTlb| (tlb.small_misses, tlb.large_misses, tlb.invalidated);
        // One entry: small 0, large 0, small 8, large 2, small 0; large 0 is not there any more.
        assert_eq!(counts(&two.tlbs[0]), (3, 2, 2));
        assert_eq!(counts(&two.tlbs[1]), (3, 2, 3));
        // Large 0 is brought into both sets, large 2 by block 9 into the odd one, evicting it.
        assert_eq!(counts(&two.tlbs[2]), (3, 3, 2));
        assert_eq!(counts(&two.tlbs[3]), (0, 2, 0));
    }
}
