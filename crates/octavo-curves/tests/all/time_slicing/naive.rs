//! Curves of several threads or processes, from TLBs simulated one by one.

use std::collections::{BTreeMap, BTreeSet};

use octavo_curves::{LineSize, MAX_WAYS, SetIndex, Stream, TwoSizesIndex};
use octavo_oracle::{
    NaiveReferences, NaiveSets, NaiveTlb, NaiveTwoSizes, NaiveTwoSizesIndex, NaiveTwoSizesTlb,
    NaiveWorkingSet, Stream as NaiveStream,
};
use octavo_types::{Consumer, ItemKind, PageNumber, PageSize, Segment, VirtAddr};

/// Entries of the fully associative TLBs that are compared.
pub const ENTRIES: [usize; 6] = [1, 2, 5, 16, 30, 70];
/// log2 of the most sets, and the numbers of ways, of set-associative TLBs.
pub const SETS_LOG2: u8 = 3;
pub const WAYS: [usize; 3] = [1, 2, MAX_WAYS];
pub const INDEXES: [SetIndex; 2] = [SetIndex::Bits { from: 1 }, SetIndex::Xor];
/// Line sizes of the compared caches, which have the sets and ways of the TLBs.
pub const LINES_BYTES: [u64; 2] = [64, 16];
/// Two page sizes, the threshold, and the window of the policy and of the working sets.
pub const PAIR_LOG2: (u8, u8) = (12, 14);
pub const THRESHOLD_BLOCKS: u32 = 2;
pub const WINDOW_REFS: u64 = 40;
/// The TLB whose misses are classified: log2 of its sets, and its ways.
pub const CLASSIFIED: (u8, u32) = (1, 3);
pub const TWO_SIZES_INDEXES: [(TwoSizesIndex, NaiveTwoSizesIndex); 5] = [
    (TwoSizesIndex::Small, NaiveTwoSizesIndex::Small),
    (TwoSizesIndex::Large, NaiveTwoSizesIndex::Large),
    (TwoSizesIndex::Exact, NaiveTwoSizesIndex::Exact),
    (TwoSizesIndex::SplitSmall, NaiveTwoSizesIndex::SplitSmall),
    (TwoSizesIndex::SplitLarge, NaiveTwoSizesIndex::SplitLarge),
];
/// The most cores.
pub const CORES: usize = 6;
/// The address space of a page is above its number.
const SPACE_SHIFT: u32 = 50;

/// The page sizes.
pub fn sizes() -> [PageSize; 4] {
    [12, 13, 14, 21].map(|log2| PageSize::from_log2(log2).unwrap())
}

/// The naive state of one stream.
pub struct NaiveStreamCurves {
    stream: NaiveStream,
    pub lines: Vec<LineSize>,
    pub references: u64,
    pub cores: BTreeMap<usize, NaiveCore>,
    /// Two page sizes, with the policy of all references, and the TLB look-ups of this stream.
    pub two_sizes: NaiveTwoSizes,
    /// Look-ups of this stream: of small pages and of large pages.
    pub two_sizes_lookups: [u64; 2],
    pub working_sets: Vec<NaiveWorkingSet>,
}

/// The TLBs of one core.
#[derive(Default)]
pub struct NaiveCore {
    pub references: u64,
    /// By page size and entries.
    pub full: BTreeMap<(u8, usize), Counted<NaiveTlb>>,
    /// By index, page size, sets and ways.
    pub sets: BTreeMap<(usize, u8, u8, usize), Counted<NaiveSets>>,
    pub classified: Option<Counted<NaiveSets>>,
    /// By the bytes of lines, sets and ways.
    pub caches: BTreeMap<(u64, u8, usize), Counted<NaiveSets>>,
    /// By the bytes of lines.
    pub line_lookups: BTreeMap<u64, u64>,
    /// All pages looked up on this core, by page size.
    pub pages: BTreeMap<u8, BTreeSet<u64>>,
}

/// A TLB and its misses.
pub struct Counted<T> {
    tlb: T,
    pub misses: u64,
}

impl<T> Counted<T> {
    fn new(tlb: T) -> Self {
        Counted { tlb, misses: 0 }
    }
}

/// The TLBs for two page sizes of one core, in the order in which they are compared.
fn two_sizes_tlbs() -> Vec<NaiveTwoSizesTlb> {
    let mut tlbs: Vec<NaiveTwoSizesTlb> = ENTRIES.map(NaiveTwoSizesTlb::fully).into();
    for (_, index) in TWO_SIZES_INDEXES {
        for log2 in 0..=SETS_LOG2 {
            tlbs.extend(WAYS.map(|ways| NaiveTwoSizesTlb::sets(index, 1 << log2, ways)));
        }
    }
    tlbs
}

impl NaiveStreamCurves {
    /// Empty TLBs and caches, with lines of these sizes.
    pub fn new(stream: Stream, lines: Vec<LineSize>) -> Self {
        let size = |log2| PageSize::from_log2(log2).unwrap();
        let all_cores = (0..CORES).flat_map(|_| two_sizes_tlbs()).collect();
        let pair = (size(PAIR_LOG2.0), size(PAIR_LOG2.1));
        NaiveStreamCurves {
            stream: match stream {
                Stream::Fetch => NaiveStream::Fetch,
                Stream::Data => NaiveStream::Data,
                Stream::All => NaiveStream::All,
            },
            lines,
            references: 0,
            cores: BTreeMap::new(),
            two_sizes: NaiveTwoSizes::new(pair, WINDOW_REFS, THRESHOLD_BLOCKS, all_cores),
            two_sizes_lookups: [0; 2],
            working_sets: sizes().map(|size| NaiveWorkingSet::new(size, WINDOW_REFS)).into(),
        }
    }

    /// Executes a segment on a core, in an address space.
    pub fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr], core: usize, space: u64) {
        let mut list = NaiveReferences::default();
        list.segment(segment, addresses);
        for reference in &list.references {
            let is_own = match self.stream {
                NaiveStream::All => true,
                stream => (stream == NaiveStream::Fetch) == (reference.kind == ItemKind::Fetch),
            };
            let one = NaiveReferences { references: vec![*reference] };
            for pages in one.base_pages(NaiveStream::All) {
                let pages: Vec<PageNumber> = pages
                    .iter()
                    .map(|page| PageNumber::new(page.raw() | space << SPACE_SHIFT))
                    .collect();
                self.reference(&pages, is_own, core);
            }
        }
        for line_bytes in self.lines.iter().map(|size| size.bytes()) {
            for line in list.lines(self.stream, line_bytes) {
                self.cores.entry(core).or_default().look_up_line(line_bytes, line, space);
            }
        }
    }

    /// Makes a reference of the program. If it belongs to another stream, only time passes.
    fn reference(&mut self, pages: &[PageNumber], is_own: bool, core: usize) {
        let two = &mut self.two_sizes;
        two.running = if is_own { tlbs_of(core) } else { 0..0 };
        let before = [two.small_lookups, two.large_lookups];
        two.reference(pages);
        let own_pages = if is_own { pages } else { &[] };
        self.working_sets.iter_mut().for_each(|set| set.reference(own_pages));
        if is_own {
            let lookups = [two.small_lookups - before[0], two.large_lookups - before[1]];
            self.two_sizes_lookups[0] += lookups[0];
            self.two_sizes_lookups[1] += lookups[1];
            self.references += 1;
            self.cores.entry(core).or_default().reference(pages);
        }
    }

    /// Empties the TLBs of a core.
    pub fn flush(&mut self, core: usize) {
        self.cores.entry(core).or_default().flush();
        self.two_sizes.tlbs[tlbs_of(core)].iter_mut().for_each(NaiveTwoSizesTlb::flush);
    }

    /// The two-size TLBs of a core, in order.
    pub fn two_sizes_of(&self, core: usize) -> &[NaiveTwoSizesTlb] {
        &self.two_sizes.tlbs[tlbs_of(core)]
    }
}

fn tlbs_of(core: usize) -> std::ops::Range<usize> {
    let count = two_sizes_tlbs().len();
    core * count..(core + 1) * count
}

impl NaiveCore {
    fn reference(&mut self, base_pages: &[PageNumber]) {
        self.references += 1;
        for size in sizes() {
            let shift = u32::from(size.base_shift());
            let mut pages: Vec<u64> = base_pages.iter().map(|page| page.raw() >> shift).collect();
            pages.dedup();
            for page in pages {
                self.look_up(size, page, page & ((1 << (SPACE_SHIFT - shift)) - 1));
            }
        }
    }

    /// Looks up a page, whose number in its address space is `number`.
    fn look_up(&mut self, size: PageSize, page: u64, number: u64) {
        let log2 = size.log2();
        self.pages.entry(log2).or_default().insert(page);
        let page = PageNumber::new(page);
        for entries in ENTRIES {
            let tlb = self.full.entry((log2, entries));
            let tlb = tlb.or_insert_with(|| Counted::new(NaiveTlb::new(entries)));
            tlb.misses += u64::from(!tlb.tlb.access(page));
        }
        for (which, index) in INDEXES.into_iter().enumerate() {
            for sets_log2 in 0..=SETS_LOG2 {
                for ways in WAYS {
                    let tlb = self.sets.entry((which, log2, sets_log2, ways));
                    let sets = 1 << sets_log2;
                    let tlb = tlb.or_insert_with(|| Counted::new(NaiveSets::new(sets, ways)));
                    let set = index.set(number, sets_log2);
                    tlb.misses += u64::from(!tlb.tlb.access(set, page));
                }
            }
        }
        if size == PageSize::BASE {
            let (sets, ways) = (1 << CLASSIFIED.0, CLASSIFIED.1 as usize);
            let tlb =
                self.classified.get_or_insert_with(|| Counted::new(NaiveSets::new(sets, ways)));
            tlb.misses += u64::from(!tlb.tlb.access(number as usize % sets, page));
        }
    }

    /// Looks up a line by its number in its address space, which indexes caches.
    fn look_up_line(&mut self, line_bytes: u64, number: u64, space: u64) {
        *self.line_lookups.entry(line_bytes).or_default() += 1;
        let line = PageNumber::new(number | space << 60);
        for sets_log2 in 0..=SETS_LOG2 {
            for ways in WAYS {
                let cache = self.caches.entry((line_bytes, sets_log2, ways));
                let sets = 1 << sets_log2;
                let cache = cache.or_insert_with(|| Counted::new(NaiveSets::new(sets, ways)));
                cache.misses += u64::from(!cache.tlb.access(number as usize % sets, line));
            }
        }
    }

    fn flush(&mut self) {
        self.full.values_mut().for_each(|tlb| tlb.tlb.flush());
        self.sets.values_mut().for_each(|tlb| tlb.tlb.flush());
        self.classified.iter_mut().for_each(|tlb| tlb.tlb.flush());
        self.caches.values_mut().for_each(|cache| cache.tlb.flush());
    }
}
