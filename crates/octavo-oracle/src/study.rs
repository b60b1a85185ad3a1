//! The page-size study, one reference at a time.

use std::collections::{BTreeMap, BTreeSet};

use octavo_types::{Consumer, Event, ItemKind, PageNumber, PageSize, Segment, VirtAddr};

use crate::{NaiveHierarchy, Relocate, executed, pages_touched};

/// A selection of references. Fetches and data have TLBs of their own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Stream {
    /// Instruction fetches.
    Fetch,
    /// Loads and stores.
    Data,
    /// Both: pages touched by either, and sums of look-ups.
    All,
}

/// Counts of the look-ups of a TLB level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lookups {
    /// Look-ups: hits and misses.
    pub accesses: u64,
    /// Look-ups that missed.
    pub misses: u64,
}

/// Counts of executed references by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReferenceCounts {
    /// Instruction fetches.
    pub instructions: u64,
    /// Loads, including the loads of modifies.
    pub loads: u64,
    /// Stores, including the stores of modifies.
    pub stores: u64,
    /// Modifies: each also counts as a load and a store.
    pub modifies: u64,
}

/// Counts of the whole stream, or of a region.
#[derive(Default)]
struct Tally {
    counts: ReferenceCounts,
    lookups: BTreeMap<(Stream, PageSize, usize), Lookups>,
    pages: BTreeMap<(Stream, PageSize), BTreeSet<PageNumber>>,
}

/// Looks every reference up in fully associative LRU TLBs of every page size, separate for fetches and data,
/// and records the pages touched.
///
/// A reference that spans two pages *of the size under study* is looked up once for each, in
/// address order. Events are ignored.
pub struct NaiveStudy<'a> {
    page_sizes: Vec<PageSize>,
    levels: usize,
    relocate: Relocate<'a>,
    region_of: Option<Box<dyn Fn(VirtAddr) -> u32 + 'a>>,
    tlbs: BTreeMap<(Stream, PageSize), NaiveHierarchy>,
    total: Tally,
    regions: BTreeMap<u32, Tally>,
}

impl<'a> NaiveStudy<'a> {
    /// A study of `page_sizes`, with TLBs for fetches and TLBs for data whose levels have `entries` entries,
    /// the first level first. `relocate` is applied to every address first.
    pub fn new(
        page_sizes: &[PageSize],
        entries: &[usize],
        relocate: impl Fn(VirtAddr) -> VirtAddr + 'a,
    ) -> Self {
        let mut tlbs = BTreeMap::new();
        for &size in page_sizes {
            tlbs.insert((Stream::Fetch, size), NaiveHierarchy::new(entries));
            tlbs.insert((Stream::Data, size), NaiveHierarchy::new(entries));
        }
        NaiveStudy {
            page_sizes: page_sizes.to_vec(),
            levels: entries.len(),
            relocate: Box::new(relocate),
            region_of: None,
            tlbs,
            total: Tally::default(),
            regions: BTreeMap::new(),
        }
    }

    /// Also counts for each region separately. `region_of` is called with relocated addresses: a reference
    /// belongs to the region of its first byte, and a look-up to the region of the first byte touched in its page.
    pub fn with_regions(mut self, region_of: impl Fn(VirtAddr) -> u32 + 'a) -> Self {
        self.region_of = Some(Box::new(region_of));
        self
    }

    /// Counts of executed references by kind.
    pub fn counts(&self) -> ReferenceCounts {
        self.total.counts
    }

    /// The look-ups of `stream` in TLB level `level`, counted from 0, with pages of `size`.
    pub fn lookups(&self, stream: Stream, size: PageSize, level: usize) -> Lookups {
        self.total.lookups(stream, size, level)
    }

    /// The distinct pages of `size` that `stream` touched.
    pub fn pages(&self, stream: Stream, size: PageSize) -> BTreeSet<PageNumber> {
        self.total.pages(stream, size)
    }

    /// The regions with any counts.
    pub fn regions(&self) -> Vec<u32> {
        self.regions.keys().copied().collect()
    }

    /// As [`NaiveStudy::counts`], of the references whose first byte is in `region`.
    pub fn region_counts(&self, region: u32) -> ReferenceCounts {
        self.regions.get(&region).map(|tally| tally.counts).unwrap_or_default()
    }

    /// As [`NaiveStudy::lookups`], of the look-ups attributed to `region`.
    pub fn region_lookups(
        &self,
        region: u32,
        stream: Stream,
        size: PageSize,
        level: usize,
    ) -> Lookups {
        let tally = self.regions.get(&region);
        tally.map(|tally| tally.lookups(stream, size, level)).unwrap_or_default()
    }

    /// As [`NaiveStudy::pages`], of the look-ups attributed to `region`.
    pub fn region_pages(
        &self,
        region: u32,
        stream: Stream,
        size: PageSize,
    ) -> BTreeSet<PageNumber> {
        self.regions.get(&region).map(|tally| tally.pages(stream, size)).unwrap_or_default()
    }

    /// Looks up every page that a reference touches, at every page size.
    fn reference(&mut self, stream: Stream, addr: VirtAddr, bytes: u16) {
        for size in self.page_sizes.clone() {
            for (page, first_byte) in pages_touched(addr, bytes, size) {
                let tlbs = self.tlbs.get_mut(&(stream, size)).expect("every size has its TLBs");
                let missed = tlbs.access(page);
                let levels = self.levels;
                self.tally(first_byte, |tally| tally.look_up(stream, size, page, missed, levels));
            }
        }
    }

    /// Counts for the whole stream and, if there are regions, for the region of `addr`.
    fn tally(&mut self, addr: VirtAddr, count: impl Fn(&mut Tally)) {
        count(&mut self.total);
        if let Some(region_of) = &self.region_of {
            count(self.regions.entry(region_of(addr)).or_default());
        }
    }
}

impl Tally {
    /// Counts a look-up that missed the first `missed` of `levels` levels.
    fn look_up(
        &mut self,
        stream: Stream,
        size: PageSize,
        page: PageNumber,
        missed: usize,
        levels: usize,
    ) {
        for stream in [stream, Stream::All] {
            self.pages.entry((stream, size)).or_default().insert(page);
            for level in 0..levels {
                let lookups = self.lookups.entry((stream, size, level)).or_default();
                lookups.accesses += u64::from(level <= missed);
                lookups.misses += u64::from(level < missed);
            }
        }
    }

    fn lookups(&self, stream: Stream, size: PageSize, level: usize) -> Lookups {
        self.lookups.get(&(stream, size, level)).copied().unwrap_or_default()
    }

    fn pages(&self, stream: Stream, size: PageSize) -> BTreeSet<PageNumber> {
        self.pages.get(&(stream, size)).cloned().unwrap_or_default()
    }
}

impl Consumer for NaiveStudy<'_> {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        for (item, addr) in executed(segment, addresses) {
            let addr = (self.relocate)(addr);
            self.tally(addr, |tally| match item.kind {
                ItemKind::Fetch => tally.counts.instructions += 1,
                ItemKind::Load => tally.counts.loads += 1,
                ItemKind::Store => tally.counts.stores += 1,
                ItemKind::Modify => {
                    tally.counts.loads += 1;
                    tally.counts.stores += 1;
                    tally.counts.modifies += 1;
                }
            });
            match item.kind {
                ItemKind::Fetch => self.reference(Stream::Fetch, addr, item.size_bytes),
                ItemKind::Load | ItemKind::Store => {
                    self.reference(Stream::Data, addr, item.size_bytes);
                }
                ItemKind::Modify => {
                    self.reference(Stream::Data, addr, item.size_bytes);
                    self.reference(Stream::Data, addr, item.size_bytes);
                }
            }
        }
    }

    fn event(&mut self, _: &Event) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_types::Item;

    const SIZE_4K: PageSize = PageSize::BASE;

    fn size_8k() -> PageSize {
        PageSize::from_log2(13).unwrap()
    }

    fn item(kind: ItemKind, guarded: bool, size_bytes: u16, addr: u64) -> Item {
        Item { kind, guarded, atomic: false, size_bytes, addr: VirtAddr::new(addr) }
    }

    fn numbers(pages: BTreeSet<PageNumber>) -> Vec<u64> {
        pages.into_iter().map(PageNumber::raw).collect()
    }

    /// Two executions of a segment, in a first level of one entry and a second level of two:
    ///
    /// ```text
    /// execution  item                 4 KiB pages   level 1    level 2
    /// 1          fetch  0x1ff0,4      1             miss       miss
    ///            load   0x10000,8     10            miss       miss
    ///            fetch  0x1ffe,4      1 2           hit miss     - miss
    ///            modify 0x10ffc,8     10 11 10 11   hit and 3 misses, the last 2 hit in level 2
    ///            fetch  0x2002,4      2             hit
    ///            store  (guarded)     did not execute
    /// 2          fetch  0x1ff0,4      1             miss       hit
    ///            load   0x20000,8     20            miss       miss
    ///            fetch  0x1ffe,4      1 2           hit miss     - hit
    ///            modify 0x10000,4     10 10         miss hit   miss (11 and 20 are held) -
    ///            fetch  0x2002,4      2             hit
    ///            store  0x11000,2     11            miss       miss (20 and 10 are held)
    /// ```
    fn two_executions(study: &mut NaiveStudy) {
        let segment = Segment::new(
            vec![
                item(ItemKind::Fetch, false, 4, 0x1ff0),
                item(ItemKind::Load, false, 8, 0),
                item(ItemKind::Fetch, false, 4, 0x1ffe),
                item(ItemKind::Modify, false, 8, 0),
                item(ItemKind::Fetch, false, 4, 0x2002),
                item(ItemKind::Store, true, 2, 0),
            ],
            vec![],
        )
        .unwrap();
        study.segment(&segment, &[0x10000, 0x10ffc, 0].map(VirtAddr::new));
        study.segment(&segment, &[0x20000, 0x10000, 0x11000].map(VirtAddr::new));
    }

    #[test]
    fn naive_study_worked_example() {
        let mut study = NaiveStudy::new(&[SIZE_4K, size_8k()], &[1, 2], |addr| addr);
        two_executions(&mut study);
        assert_eq!(
            study.counts(),
            ReferenceCounts { instructions: 6, loads: 4, stores: 3, modifies: 2 }
        );
        let lookups = |stream, size, level| {
            let Lookups { accesses, misses } = study.lookups(stream, size, level);
            (accesses, misses)
        };
        assert_eq!(lookups(Stream::Fetch, SIZE_4K, 0), (8, 4));
        assert_eq!(lookups(Stream::Fetch, SIZE_4K, 1), (4, 2));
        // Accesses 10, 10 11 10 11, 20, 11 ... as above, the second modify within one page.
        assert_eq!(lookups(Stream::Data, SIZE_4K, 0), (9, 7));
        assert_eq!(lookups(Stream::Data, SIZE_4K, 1), (7, 5));
        assert_eq!(lookups(Stream::All, SIZE_4K, 0), (17, 11));
        // 8 KiB: fetches 0 0 1 1 0 0 1 1, where 0x1ffe spans again; data 8 8 8 10 8 8 8.
        assert_eq!(lookups(Stream::Fetch, size_8k(), 0), (8, 4));
        assert_eq!(lookups(Stream::Fetch, size_8k(), 1), (4, 2));
        assert_eq!(lookups(Stream::Data, size_8k(), 0), (7, 3));
        assert_eq!(lookups(Stream::Data, size_8k(), 1), (3, 2));
        assert_eq!(numbers(study.pages(Stream::Fetch, SIZE_4K)), [0x1, 0x2]);
        assert_eq!(numbers(study.pages(Stream::Data, SIZE_4K)), [0x10, 0x11, 0x20]);
        assert_eq!(numbers(study.pages(Stream::All, size_8k())), [0x0, 0x1, 0x8, 0x10]);
    }

    #[test]
    fn relocation_precedes_look_ups() {
        let up = |addr: VirtAddr| addr.wrapping_add(0x2000);
        let mut study = NaiveStudy::new(&[SIZE_4K], &[2], up);
        two_executions(&mut study);
        assert_eq!(numbers(study.pages(Stream::Fetch, SIZE_4K)), [0x3, 0x4]);
        assert_eq!(numbers(study.pages(Stream::Data, SIZE_4K)), [0x12, 0x13, 0x22]);
    }

    /// A region for every 4 KiB page: a reference counts in the region where it begins, a look-up in the region of its
    /// page.
    #[test]
    fn spanning_reference_looks_up_two_regions_and_counts_once() {
        let region = |addr: VirtAddr| addr.page(SIZE_4K).raw() as u32;
        let mut study =
            NaiveStudy::new(&[SIZE_4K, size_8k()], &[1], |addr| addr).with_regions(region);
        two_executions(&mut study);
        assert_eq!(study.regions(), [0x1, 0x2, 0x10, 0x11, 0x20]);
        let counts = |region| study.region_counts(region);
        assert_eq!(counts(0x1), ReferenceCounts { instructions: 4, ..Default::default() });
        assert_eq!(counts(0x2), ReferenceCounts { instructions: 2, ..Default::default() });
        assert_eq!(
            counts(0x10),
            ReferenceCounts { instructions: 0, loads: 3, stores: 2, modifies: 2 }
        );
        assert_eq!(counts(0x11), ReferenceCounts { stores: 1, ..Default::default() });
        let lookups = |region, size| {
            let Lookups { accesses, misses } = study.region_lookups(region, Stream::All, size, 0);
            (accesses, misses)
        };
        assert_eq!(lookups(0x1, SIZE_4K), (4, 2));
        assert_eq!(lookups(0x2, SIZE_4K), (4, 2));
        assert_eq!(lookups(0x10, SIZE_4K), (5, 3));
        assert_eq!(lookups(0x11, SIZE_4K), (3, 3));
        assert_eq!(lookups(0x20, SIZE_4K), (1, 1));
        // With 8 KiB pages the modify at 0x10ffc lies in one page, of the region of its first
        // byte; region 0x11 keeps the store that begins there.
        assert_eq!(lookups(0x10, size_8k()), (5, 2));
        assert_eq!(lookups(0x11, size_8k()), (1, 0));
        assert_eq!(numbers(study.region_pages(0x10, Stream::Data, size_8k())), [0x8]);
        assert_eq!(numbers(study.region_pages(0x10, Stream::Fetch, size_8k())), [0; 0]);
    }
}
