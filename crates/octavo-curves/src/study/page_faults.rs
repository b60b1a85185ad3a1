//! Page faults of a process's own memory: in 4 KiB pages, and with 2 MiB pages wherever they fit.
//!
//! Linux maps a 2 MiB page of an anonymous mapping at the first touch of a naturally aligned range of 2 MiB that lies
//! in the mapping and has no page table. A range with a page table gets 4 KiB pages until all of it is unmapped or
//! freed with `madvise` (`do_huge_pmd_anonymous_page` in mm/huge_memory.c). Later collapses by `khugepaged` do not
//! change the number of faults.

use std::ops::Range;

use octavo_types::PageSize;
use rangemap::RangeSet;
use rustc_hash::FxHashMap;

use super::bits::Bits512;

/// log2 of the base pages of a 2 MiB page.
const HUGE_LOG2: u8 = PageSize::HUGE.base_shift();
/// Base pages of a 2 MiB page.
pub const HUGE_PAGES: u64 = 1 << HUGE_LOG2;

/// Page faults at first touches of memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageFaults {
    /// Page faults if all pages have 4 KiB.
    pub base: u64,
    /// With 2 MiB pages wherever they fit: faults that map a 2 MiB page.
    pub huge: u64,
    /// Faults among `huge` for which the process had freed a 2 MiB page before.
    pub huge_again: u64,
    /// With 2 MiB pages wherever they fit: faults that map a 4 KiB page.
    pub left: u64,
}

impl PageFaults {
    /// Adds the page faults of other memory.
    pub fn add(&mut self, other: PageFaults) {
        self.base += other.base;
        self.huge += other.huge;
        self.huge_again += other.huge_again;
        self.left += other.left;
    }
}

/// The growth of a region's memory with 2 MiB pages, in base pages.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Growth {
    /// Base pages present with 2 MiB pages wherever they fit.
    present: u64,
    /// Base pages present if all pages have 4 KiB.
    touched: u64,
    most_touched: u64,
    /// `present` less `touched`, at the time of the most touched pages.
    pub pages: u64,
}

impl Growth {
    fn change(&mut self, before: [u32; 2], after: [u32; 2]) {
        let [present, touched] = after;
        self.present = self.present + u64::from(present) - u64::from(before[0]);
        self.touched = self.touched + u64::from(touched) - u64::from(before[1]);
        if self.touched >= self.most_touched {
            self.most_touched = self.touched;
            self.pages = self.present - self.touched;
        }
    }
}

/// An aligned range of 2 MiB that has a page table, or a 2 MiB page.
#[derive(Clone, Default)]
struct HugeRange {
    /// The base pages present with 2 MiB pages wherever they fit.
    present: Bits512,
    /// The base pages present if all pages have 4 KiB.
    touched: Bits512,
    /// The region to which its growth is attributed.
    region: usize,
}

impl HugeRange {
    fn touch(&mut self, page: u64) -> bool {
        self.touched.insert(place(page));
        self.present.insert(place(page))
    }

    fn sizes(&self) -> [u32; 2] {
        [self.present.len(), self.touched.len()]
    }
}

/// The pages present with 2 MiB pages wherever they fit.
#[derive(Clone, Default)]
pub struct HugePages {
    /// The ranges with a page table or a 2 MiB page, by their number. A page table may be empty.
    ranges: FxHashMap<u64, HugeRange>,
    /// The growth of each region.
    growth: Vec<Growth>,
    /// Whole 2 MiB pages that were freed, less the faults that reused them.
    freed: u64,
}

impl HugePages {
    /// Touches a base page of a region that is not present in 4 KiB pages, and adds its faults. `fits` returns whether
    /// the 2 MiB around it lie in memory that may have a 2 MiB page.
    pub fn touch(
        &mut self,
        page: u64,
        region: usize,
        fits: impl FnOnce() -> bool,
        faults: &mut PageFaults,
    ) {
        faults.base += 1;
        let huge = !self.ranges.contains_key(&(page >> HUGE_LOG2)) && fits();
        if huge {
            faults.huge += 1;
            faults.huge_again += u64::from(self.freed > 0);
            self.freed = self.freed.saturating_sub(1);
        }
        let is_new = self.add(page, region, huge);
        faults.left += u64::from(is_new && !huge);
    }

    /// Makes a base page of a region present without a fault.
    pub fn moved_to(&mut self, page: u64, region: usize) {
        self.add(page, region, false);
    }

    /// Makes a base page present, and all 2 MiB around it if `huge`. Returns whether it was absent.
    fn add(&mut self, page: u64, region: usize, huge: bool) -> bool {
        let new = || HugeRange { region, ..HugeRange::default() };
        let range = self.ranges.entry(page >> HUGE_LOG2).or_insert_with(new);
        let before = range.sizes();
        let is_new = range.touch(page);
        if huge {
            range.present = Bits512::ALL;
        }
        if self.growth.len() <= range.region {
            self.growth.resize(range.region + 1, Growth::default());
        }
        self.growth[range.region].change(before, range.sizes());
        is_new
    }

    /// The growth of each region.
    pub fn growth(&self) -> &[Growth] {
        &self.growth
    }

    /// The growth without pages, if only results are read from now on.
    pub fn results_only(&self) -> Self {
        HugePages { growth: self.growth.clone(), ..HugePages::default() }
    }

    /// Unmaps the base pages in `first..end`, and frees page tables without pages.
    pub fn unmap(&mut self, first: u64, end: u64) {
        self.remove(first, end, |present, _| present.is_empty());
    }

    /// Frees the base pages in `first..end`, which stay mapped (`MADV_DONTNEED`). Also frees page tables whose whole
    /// range is freed, as Linux does since 6.14.
    pub fn give_back(&mut self, first: u64, end: u64) {
        self.remove(first, end, |_, is_whole| is_whole);
    }

    /// Removes the base pages in `first..end`. `frees_table` returns whether the page table of a range is freed, given
    /// the pages that stay, and whether the whole range lies in `first..end`.
    fn remove(&mut self, first: u64, end: u64, frees_table: impl Fn(&Bits512, bool) -> bool) {
        if first >= end {
            return;
        }
        let numbers = first >> HUGE_LOG2..=(end - 1) >> HUGE_LOG2;
        let (freed, growth) = (&mut self.freed, &mut self.growth);
        let mut frees_range = |number: u64, range: &mut HugeRange| {
            let start = number << HUGE_LOG2;
            let (first, end) = (first.max(start), end.min(start + HUGE_PAGES));
            let is_whole = end - first == HUGE_PAGES;
            *freed += u64::from(is_whole && range.present.is_full());
            let before = range.sizes();
            for page in first..end {
                range.present.remove(place(page));
                range.touched.remove(place(page));
            }
            growth[range.region].change(before, range.sizes());
            frees_table(&range.present, is_whole)
        };
        if numbers.end() - numbers.start() < self.ranges.len() as u64 {
            for number in numbers {
                if self.ranges.get_mut(&number).is_some_and(|range| frees_range(number, range)) {
                    self.ranges.remove(&number);
                }
            }
        } else {
            self.ranges
                .retain(|number, range| !numbers.contains(number) || !frees_range(*number, range));
        }
    }
}

/// The memory whose first touch is known to fault: all memory as long as no execution is left out, and afterwards
/// memory that is newly mapped or freed. Executions that were left out may have touched other memory.
#[derive(Clone, Default)]
pub struct Untouched {
    /// `None`: all memory.
    known: Option<RangeSet<u64>>,
}

impl Untouched {
    /// Records that executions were left out, which may have touched any memory.
    pub fn clear(&mut self) {
        self.known = Some(RangeSet::new());
    }

    /// Whether the first touch of a base page is known to fault.
    pub fn holds(&self, page: u64) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(&page))
    }

    /// Adds base pages that are mapped again, or freed.
    pub fn emptied(&mut self, pages: Range<u64>) {
        if let Some(known) = &mut self.known
            && !pages.is_empty()
        {
            known.insert(pages);
        }
    }

    /// Removes base pages that are unmapped.
    pub fn unmapped(&mut self, pages: Range<u64>) {
        if let Some(known) = &mut self.known
            && !pages.is_empty()
        {
            known.remove(pages);
        }
    }

    /// Moves the state of base pages `from` to the beginning of `to`. The rest of `to` is new.
    pub fn moved(&mut self, from: Range<u64>, to: Range<u64>) {
        let Some(known) = &mut self.known else { return };
        let inside = |range: &Range<u64>| range.start.max(from.start)..range.end.min(from.end);
        let parts: Vec<_> = known.overlapping(&from).map(inside).collect();
        self.unmapped(from.clone());
        self.unmapped(to.clone());
        let place = |page: u64| (to.start + (page - from.start)).min(to.end);
        for part in parts {
            self.emptied(place(part.start)..place(part.end));
        }
        self.emptied(place(from.end)..to.end);
    }
}

/// The index of a base page in its range.
fn place(page: u64) -> usize {
    (page % HUGE_PAGES) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use octavo_oracle::cases;
    use proptest::prelude::*;

    use super::*;

    fn touch(pages: &mut HugePages, page: u64, fits: bool) -> PageFaults {
        let mut faults = PageFaults::default();
        pages.touch(page, 1, || fits, &mut faults);
        faults
    }

    const BASE: PageFaults = PageFaults { base: 1, huge: 0, huge_again: 0, left: 1 };
    const HUGE: PageFaults = PageFaults { base: 1, huge: 1, huge_again: 0, left: 0 };
    const AGAIN: PageFaults = PageFaults { base: 1, huge: 1, huge_again: 1, left: 0 };
    const NONE: PageFaults = PageFaults { base: 1, huge: 0, huge_again: 0, left: 0 };

    #[test]
    fn a_huge_page_saves_the_faults_of_all_its_other_pages() {
        let mut pages = HugePages::default();
        assert_eq!(touch(&mut pages, 512, true), HUGE);
        assert_eq!(touch(&mut pages, 1023, true), NONE);
        assert_eq!(touch(&mut pages, 1024, false), BASE);
        // The range has a page table by now.
        assert_eq!(touch(&mut pages, 1025, true), BASE);
    }

    #[test]
    fn a_page_table_stays_while_a_part_of_it_is_given_back() {
        let mut pages = HugePages::default();
        touch(&mut pages, 0, false);
        touch(&mut pages, 1, false);
        pages.give_back(0, 511);
        assert_eq!(touch(&mut pages, 0, true), BASE);
        pages.unmap(0, 1);
        assert_eq!(touch(&mut pages, 0, true), HUGE);
    }

    #[test]
    fn a_huge_page_is_split_by_a_partial_unmap() {
        let mut pages = HugePages::default();
        touch(&mut pages, 5, true);
        pages.unmap(0, 256);
        assert_eq!(touch(&mut pages, 300, true), NONE);
        assert_eq!(touch(&mut pages, 255, true), BASE);
        pages.give_back(0, 2000);
        assert_eq!(touch(&mut pages, 300, true), HUGE);
    }

    #[test]
    fn all_memory_is_untouched_until_executions_are_left_out() {
        let mut untouched = Untouched::default();
        assert!(untouched.holds(7));
        untouched.clear();
        assert!(!untouched.holds(7));
        untouched.emptied(5..9);
        assert!([5, 8].iter().all(|page| untouched.holds(*page)) && !untouched.holds(9));
        untouched.unmapped(6..7);
        assert!(untouched.holds(5) && !untouched.holds(6) && untouched.holds(7));
        untouched.clear();
        assert!(!untouched.holds(5));
    }

    #[test]
    fn moved_memory_keeps_its_state_and_added_memory_is_untouched() {
        let mut untouched = Untouched::default();
        untouched.clear();
        untouched.emptied(12..30);
        untouched.moved(10..14, 100..106);
        let held: Vec<u64> = (0..200).filter(|page| untouched.holds(*page)).collect();
        assert_eq!(held, (14..30).chain(102..106).collect::<Vec<_>>());
        untouched.moved(100..106, 200..203);
        assert!(!untouched.holds(201) && untouched.holds(202) && !untouched.holds(203));
    }

    #[test]
    fn a_freed_huge_page_is_reused_once() {
        let mut pages = HugePages::default();
        touch(&mut pages, 0, true);
        touch(&mut pages, 512, true);
        pages.unmap(0, 700);
        assert_eq!(touch(&mut pages, 5000, true), AGAIN);
        assert_eq!(touch(&mut pages, 0, true), HUGE, "the second one was given back in part");
        touch(&mut pages, 8192, false);
        pages.unmap(8192, 8704);
        assert_eq!(touch(&mut pages, 8192, true), HUGE, "that was no 2 MiB page");
    }

    #[test]
    fn memory_grows_by_the_untouched_part_of_huge_pages() {
        let mut pages = HugePages::default();
        touch(&mut pages, 0, true);
        touch(&mut pages, 512, true);
        assert_eq!(pages.growth[1].pages, 1022);
        for page in 1..512 {
            touch(&mut pages, page, true);
        }
        assert_eq!(pages.growth[1].pages, 511);
        pages.unmap(512, 768);
        assert_eq!(pages.growth[1].pages, 511, "most was touched before");
        touch(&mut pages, 2000, false);
        assert_eq!(pages.growth[1].pages, 256);
        assert_eq!(pages.results_only().growth(), pages.growth());
    }

    /// A naive model, one page at a time, after the kernel's documentation.
    #[derive(Default)]
    struct Naive {
        tables: BTreeMap<u64, BTreeSet<u64>>,
        touched: BTreeSet<u64>,
        freed: usize,
    }

    impl Naive {
        fn growth(&self) -> usize {
            self.tables.values().map(BTreeSet::len).sum::<usize>() - self.touched.len()
        }

        fn touch(&mut self, page: u64, fits: bool) -> PageFaults {
            self.touched.insert(page);
            let number = page / 512;
            if !self.tables.contains_key(&number) && fits {
                self.tables.insert(number, (512 * number..512 * number + 512).collect());
                if self.freed > 0 {
                    self.freed -= 1;
                    return AGAIN;
                }
                return HUGE;
            }
            if self.tables.entry(number).or_default().insert(page) { BASE } else { NONE }
        }

        fn remove(&mut self, first: u64, end: u64, unmapped: bool) {
            self.touched.retain(|page| !(first..end).contains(page));
            for number in 0..8 {
                let all: Vec<u64> = (512 * number..512 * number + 512).collect();
                let Some(table) = self.tables.get_mut(&number) else { continue };
                let removed: Vec<u64> =
                    all.iter().copied().filter(|page| (first..end).contains(page)).collect();
                if removed.is_empty() {
                    continue;
                }
                self.freed += usize::from(removed == all && table.len() == all.len());
                table.retain(|page| !removed.contains(page));
                if if unmapped { table.is_empty() } else { removed == all } {
                    self.tables.remove(&number);
                }
            }
        }
    }

    proptest! {
        #![proptest_config(cases(200))]

        #[test]
        fn faults_are_those_of_one_page_at_a_time(
            steps in proptest::collection::vec((0u8..8, 0u64..4096, 0u64..1500, any::<bool>()), 1..300),
        ) {
            let (mut fast, mut naive) = (HugePages::default(), Naive::default());
            for (kind, page, length, fits) in steps {
                let end = (page + length).min(4096);
                match kind {
                    0 => {
                        fast.unmap(page, end);
                        naive.remove(page, end, true);
                    }
                    1 => {
                        fast.give_back(page, end);
                        naive.remove(page, end, false);
                    }
                    2 => {
                        fast.moved_to(page, 1);
                        naive.tables.entry(page / 512).or_default().insert(page);
                        naive.touched.insert(page);
                    }
                    _ => prop_assert_eq!(touch(&mut fast, page, fits), naive.touch(page, fits)),
                }
                let growth = fast.growth.iter();
                let growth = growth.map(|region| region.present - region.touched).sum::<u64>();
                prop_assert_eq!(growth, naive.growth() as u64);
            }
        }
    }
}
