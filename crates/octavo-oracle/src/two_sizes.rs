//! Two page sizes under the dynamic policy of Talluri et al., "Tradeoffs in supporting two page
//! sizes", by a list of the blocks in the window.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use octavo_types::{PageNumber, PageSize};

use crate::{NaiveSets, NaiveTlb};

/// The index of a set-associative TLB for two page sizes (section 2.2 of the paper).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveTwoSizesIndex {
    /// The block number, whether the page is small or large.
    Small,
    /// The chunk number, whether the page is small or large.
    Large,
    /// The block number of a small page, or the chunk number of a large page.
    Exact,
    /// A TLB of small pages only, indexed by the block number.
    SplitSmall,
    /// A TLB of large pages only, indexed by the chunk number.
    SplitLarge,
}

/// A page of the current size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Page {
    Small(u64),
    Large(u64),
}

impl Page {
    /// A tag that is unique among pages of both sizes.
    fn tag(self) -> PageNumber {
        PageNumber::new(match self {
            Page::Small(block) => 2 * block,
            Page::Large(chunk) => 2 * chunk + 1,
        })
    }
}

/// One TLB with its counters.
#[derive(Clone, Debug)]
pub struct NaiveTwoSizesTlb {
    entries: Entries,
    /// Misses on small pages.
    pub small_misses: u64,
    /// Misses on large pages.
    pub large_misses: u64,
    /// Entries invalidated by changes of page size.
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

    /// A set-associative TLB of `sets` sets of `ways` ways.
    pub fn sets(index: NaiveTwoSizesIndex, sets: usize, ways: usize) -> Self {
        Self::new(Entries::Sets { tlb: NaiveSets::new(sets, ways), index, sets: sets as u64 })
    }

    fn new(entries: Entries) -> Self {
        NaiveTwoSizesTlb { entries, small_misses: 0, large_misses: 0, invalidated: 0 }
    }

    /// Looks up a reference to a block of a chunk, on `page`.
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

    /// Removes all entries, without counting invalidations.
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

/// The page-size policy of Talluri, Kong, Hill and Patterson (ISCA 1992, section 3.4) and the TLBs
/// that it acts upon, one reference at a time.
///
/// The decision depends on "the last T references", including the current one; a reference counts once,
/// however many blocks it touches. A chunk is one large page if at least `threshold_blocks` of its blocks were
/// accessed by these references; otherwise its blocks are small pages. Page sizes change once per reference,
/// before the TLBs are looked up.
#[derive(Clone, Debug)]
pub struct NaiveTwoSizes {
    small: PageSize,
    large: PageSize,
    window_refs: u64,
    threshold_blocks: usize,
    refs: u64,
    /// The number of the last reference to each block that was ever accessed.
    last_access: BTreeMap<u64, u64>,
    /// The chunks that are large pages.
    large_chunks: BTreeSet<u64>,
    /// The TLBs.
    pub tlbs: Vec<NaiveTwoSizesTlb>,
    /// The TLBs of the running core, which are looked up. With one core, all TLBs.
    pub running: Range<usize>,
    /// Look-ups of small pages.
    pub small_lookups: u64,
    /// Look-ups of large pages.
    pub large_lookups: u64,
    /// Chunks that became large pages.
    pub promotions: u64,
    /// Large pages that became small ones.
    pub demotions: u64,
    /// Blocks of promoted chunks that an earlier reference had accessed.
    pub blocks_copied: u64,
    /// Blocks of promoted chunks that no earlier reference had accessed.
    pub blocks_zeroed: u64,
    /// The bytes of the working set after each reference, summed over all references.
    pub working_set_byte_refs: u128,
}

impl NaiveTwoSizes {
    /// Empty TLBs. A chunk is large while `threshold_blocks` of its blocks are in the
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
            threshold_blocks: threshold_blocks as usize,
            refs: 0,
            last_access: BTreeMap::new(),
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
        let accessed_before: BTreeSet<u64> = self.last_access.keys().copied().collect();
        for block in &blocks {
            self.last_access.insert(*block, self.refs);
        }
        self.assign_page_sizes(&accessed_before);
        for block in blocks {
            self.look_up(block);
        }
        let is_small = |block: &u64| !self.large_chunks.contains(&self.chunk(*block));
        let small = self.window().into_iter().filter(is_small).count() as u128;
        let large = self.large_chunks.len() as u128;
        self.working_set_byte_refs +=
            small * u128::from(self.small.bytes()) + large * u128::from(self.large.bytes());
        self.refs += 1;
    }

    fn blocks_per_chunk(&self) -> u64 {
        self.large.bytes() / self.small.bytes()
    }

    fn chunk(&self, block: u64) -> u64 {
        block / self.blocks_per_chunk()
    }

    /// The blocks accessed by the last `window_refs` references, the current one included.
    fn window(&self) -> Vec<u64> {
        let is_recent = |last: u64| self.refs - last < self.window_refs;
        self.last_access.iter().filter(|(_, last)| is_recent(**last)).map(|(b, _)| *b).collect()
    }

    /// Assigns every chunk its page size, from the current window.
    fn assign_page_sizes(&mut self, accessed_before: &BTreeSet<u64>) {
        let mut blocks_in_window: BTreeMap<u64, usize> = BTreeMap::new();
        for block in self.window() {
            *blocks_in_window.entry(self.chunk(block)).or_default() += 1;
        }
        blocks_in_window.retain(|_, blocks| *blocks >= self.threshold_blocks);
        let large: BTreeSet<u64> = blocks_in_window.into_keys().collect();
        let before = std::mem::replace(&mut self.large_chunks, large.clone());
        for chunk in before.difference(&large) {
            self.demotions += 1;
            self.tlbs.iter_mut().for_each(|tlb| tlb.invalidate(Page::Large(*chunk)));
        }
        for chunk in large.difference(&before) {
            self.promotions += 1;
            let first = chunk * self.blocks_per_chunk();
            let accessed = accessed_before.range(first..first + self.blocks_per_chunk());
            for block in accessed.clone() {
                self.tlbs.iter_mut().for_each(|tlb| tlb.invalidate(Page::Small(*block)));
            }
            let copied = accessed.count() as u64;
            self.blocks_copied += copied;
            self.blocks_zeroed += self.blocks_per_chunk() - copied;
        }
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
            vec![8, 9], // chunk 2 is promoted, and looked up twice; 16K + 16K
            vec![9],    // block 1 has left: chunk 0 is demoted; 4K + 16K
            vec![0],    // small 0; 4K + 16K
        ];
        for pages in references {
            let pages: Vec<PageNumber> = pages.into_iter().map(PageNumber::new).collect();
            two.reference(&pages);
        }
        assert_eq!((two.promotions, two.demotions), (2, 1));
        assert_eq!((two.small_lookups, two.large_lookups), (2, 5));
        assert_eq!((two.blocks_copied, two.blocks_zeroed), (1, 7));
        assert_eq!(two.working_set_byte_refs, 1024 * (4 + 16 + 16 + 32 + 20 + 20));
        let counts = |tlb: &NaiveTwoSizesTlb| (tlb.small_misses, tlb.large_misses, tlb.invalidated);
        // One entry holds in turn small 0, large 0, large 2 and small 0. Small 0 is invalidated by
        // the first promotion; large 0 was evicted before its demotion.
        assert_eq!(counts(&two.tlbs[0]), (2, 2, 1));
        // With two entries, large 0 is still present when it is demoted.
        assert_eq!(counts(&two.tlbs[1]), (2, 2, 2));
        // Indexed by the small page: blocks 1 and 0 fill large 0 into both sets, and blocks 8 and 9 fill
        // large 2, which evicts large 0 from both.
        assert_eq!(counts(&two.tlbs[2]), (2, 4, 1));
        assert_eq!(counts(&two.tlbs[3]), (0, 2, 0));
    }

    fn cycle_eight_blocks(window_refs: u64) -> NaiveTwoSizes {
        let sizes = (PageSize::BASE, PageSize::from_log2(15).unwrap());
        let mut two = NaiveTwoSizes::new(sizes, window_refs, 4, Vec::new());
        for _ in 0..1000 {
            (0..8).for_each(|block| two.reference(&[PageNumber::new(block)]));
        }
        two
    }

    /// The window always has as many blocks as its length in references, so that the chunk stays a large page although
    /// with each reference one block leaves and another enters.
    #[test]
    fn chunk_stays_large_while_one_block_replaces_another() {
        for window_refs in [4, 5, 8, 100] {
            let two = cycle_eight_blocks(window_refs);
            assert_eq!((two.promotions, two.demotions), (1, 0), "T = {window_refs}");
        }
        let two = cycle_eight_blocks(3);
        assert_eq!((two.promotions, two.demotions), (0, 0));
    }
}
