//! Page faults of a process's own memory: in 4 KiB pages, and with 2 MiB pages wherever they fit.
//!
//! Linux gives an anonymous mapping a 2 MiB page at the first touch of a naturally aligned range of 2 MiB
//! that lies in the mapping and has no page table; in a range that has one, it gives 4 KiB pages until all
//! of the range is unmapped or given back (`do_huge_pmd_anonymous_page` in mm/huge_memory.c). Pages that `khugepaged`
//! would collapse later fault no less.

use std::ops::Range;

use octavo_types::PageSize;
use rangemap::RangeSet;
use rustc_hash::FxHashMap;

use super::bits::Bits512;

/// Base pages of a 2 MiB page, as a logarithm.
const HUGE_LOG2: u8 = PageSize::HUGE.base_shift();
/// The number of base pages of a 2 MiB page.
pub const HUGE_PAGES: u64 = 1 << HUGE_LOG2;

/// Page faults at first touches of memory.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PageFaults {
    /// Where all pages have 4 KiB.
    pub base: u64,
    /// With 2 MiB pages wherever they fit: those that give one.
    pub huge: u64,
    /// Of these, those for which the process had given a 2 MiB page back before.
    pub huge_again: u64,
    /// With 2 MiB pages wherever they fit: those that give a 4 KiB page.
    pub left: u64,
}

impl PageFaults {
    /// Adds those of other memory.
    pub fn add(&mut self, other: PageFaults) {
        self.base += other.base;
        self.huge += other.huge;
        self.huge_again += other.huge_again;
        self.left += other.left;
    }
}

/// Base pages of a region that are present with 2 MiB pages wherever they fit, and where all pages have 4 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Growth {
    present: u64,
    touched: u64,
    most_touched: u64,
    /// How many more are present with 2 MiB pages, at the time when most were touched.
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
    /// The base pages that are present with 2 MiB pages wherever they fit.
    present: Bits512,
    /// The base pages that are present where all pages have 4 KiB.
    touched: Bits512,
    /// The region that its growth counts for.
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

/// The pages that are present where memory has 2 MiB pages wherever they fit.
#[derive(Clone, Default)]
pub struct HugePages {
    /// By the number of 2 MiB; ranges with a page table are in it also where no page is.
    ranges: FxHashMap<u64, HugeRange>,
    /// By region.
    growth: Vec<Growth>,
    /// 2 MiB pages that were given back as a whole, without those that faults took since.
    given_back: u64,
}

impl HugePages {
    /// A base page of a region is touched that is not present in 4 KiB pages. `fits` says whether a 2 MiB page around
    /// it would lie in memory that can have one. Adds the faults of both.
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
            faults.huge_again += u64::from(self.given_back > 0);
            self.given_back = self.given_back.saturating_sub(1);
        }
        let is_new = self.add(page, region, huge);
        faults.left += u64::from(is_new && !huge);
    }

    /// A base page of a region comes to be present without a fault.
    pub fn moved_to(&mut self, page: u64, region: usize) {
        self.add(page, region, false);
    }

    /// A base page comes to be present, and with it all 2 MiB around it if `huge`; whether it was not.
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

    /// The same without pages: only results are read from now on.
    pub fn results_only(&self) -> Self {
        HugePages { growth: self.growth.clone(), ..HugePages::default() }
    }

    /// The base pages in `first..end` are unmapped. A page table without a page goes, too.
    pub fn unmap(&mut self, first: u64, end: u64) {
        self.remove(first, end, |present, _| present.is_empty());
    }

    /// The base pages in `first..end` are given back, and stay mapped (`MADV_DONTNEED`): a page table goes with
    /// them where all of its range is given back, since Linux 6.14.
    pub fn give_back(&mut self, first: u64, end: u64) {
        self.remove(first, end, |_, is_whole| is_whole);
    }

    /// Takes the base pages in `first..end` out. `goes` says whether a range has no page table any more,
    /// from the pages that stay and from whether it lies in `first..end` as a whole.
    fn remove(&mut self, first: u64, end: u64, goes: impl Fn(&Bits512, bool) -> bool) {
        if first >= end {
            return;
        }
        let numbers = first >> HUGE_LOG2..=(end - 1) >> HUGE_LOG2;
        let (given_back, growth) = (&mut self.given_back, &mut self.growth);
        let mut goes = |number: u64, range: &mut HugeRange| {
            let start = number << HUGE_LOG2;
            let (first, end) = (first.max(start), end.min(start + HUGE_PAGES));
            let is_whole = end - first == HUGE_PAGES;
            *given_back += u64::from(is_whole && range.present.is_full());
            let before = range.sizes();
            for page in first..end {
                range.present.remove(place(page));
                range.touched.remove(place(page));
            }
            growth[range.region].change(before, range.sizes());
            goes(&range.present, is_whole)
        };
        if numbers.end() - numbers.start() < self.ranges.len() as u64 {
            for number in numbers {
                if self.ranges.get_mut(&number).is_some_and(|range| goes(number, range)) {
                    self.ranges.remove(&number);
                }
            }
        } else {
            self.ranges.retain(|number, range| !numbers.contains(number) || !goes(*number, range));
        }
    }
}

/// The memory whose first touch is known to fault: all of it while no execution is left out, and afterwards what is
/// mapped or given back. Executions that were left out may have touched other memory.
#[derive(Clone, Default)]
pub struct Untouched {
    /// `None`: all memory.
    known: Option<RangeSet<u64>>,
}

impl Untouched {
    /// A part of the execution was left out: all memory may have been touched.
    pub fn clear(&mut self) {
        self.known = Some(RangeSet::new());
    }

    /// Whether the first touch of a base page is known to fault.
    pub fn holds(&self, page: u64) -> bool {
        self.known.as_ref().is_none_or(|known| known.contains(&page))
    }

    /// The base pages are mapped again, or given back.
    pub fn emptied(&mut self, pages: Range<u64>) {
        if let Some(known) = &mut self.known
            && !pages.is_empty()
        {
            known.insert(pages);
        }
    }

    /// The base pages are unmapped.
    pub fn unmapped(&mut self, pages: Range<u64>) {
        if let Some(known) = &mut self.known
            && !pages.is_empty()
        {
            known.remove(pages);
        }
    }

    /// The base pages `from` become the first of `to`, whose others are new.
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

/// The place of a base page in its range.
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
    fn a_huge_page_is_split_where_a_part_of_it_goes() {
        let mut pages = HugePages::default();
        touch(&mut pages, 5, true);
        pages.unmap(0, 256);
        assert_eq!(touch(&mut pages, 300, true), NONE);
        assert_eq!(touch(&mut pages, 255, true), BASE);
        pages.give_back(0, 2000);
        assert_eq!(touch(&mut pages, 300, true), HUGE);
    }

    #[test]
    fn all_memory_is_untouched_until_something_is_left_out() {
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
    fn memory_that_moves_stays_as_it_was_and_what_is_added_is_untouched() {
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
    fn a_huge_page_that_was_given_back_is_taken_once() {
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
    fn memory_grows_by_what_huge_pages_hold_and_nothing_touches() {
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

    /// One page at a time, each as the kernel's documents have it.
    #[derive(Default)]
    struct Plain {
        tables: BTreeMap<u64, BTreeSet<u64>>,
        touched: BTreeSet<u64>,
        given_back: usize,
    }

    impl Plain {
        fn growth(&self) -> usize {
            self.tables.values().map(BTreeSet::len).sum::<usize>() - self.touched.len()
        }

        fn touch(&mut self, page: u64, fits: bool) -> PageFaults {
            self.touched.insert(page);
            let number = page / 512;
            if !self.tables.contains_key(&number) && fits {
                self.tables.insert(number, (512 * number..512 * number + 512).collect());
                if self.given_back > 0 {
                    self.given_back -= 1;
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
                let gone: Vec<u64> =
                    all.iter().copied().filter(|page| (first..end).contains(page)).collect();
                if gone.is_empty() {
                    continue;
                }
                self.given_back += usize::from(gone == all && table.len() == all.len());
                table.retain(|page| !gone.contains(page));
                if if unmapped { table.is_empty() } else { gone == all } {
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
            let (mut fast, mut plain) = (HugePages::default(), Plain::default());
            for (kind, page, length, fits) in steps {
                let end = (page + length).min(4096);
                match kind {
                    0 => {
                        fast.unmap(page, end);
                        plain.remove(page, end, true);
                    }
                    1 => {
                        fast.give_back(page, end);
                        plain.remove(page, end, false);
                    }
                    2 => {
                        fast.moved_to(page, 1);
                        plain.tables.entry(page / 512).or_default().insert(page);
                        plain.touched.insert(page);
                    }
                    _ => prop_assert_eq!(touch(&mut fast, page, fits), plain.touch(page, fits)),
                }
                let growth = fast.growth.iter().map(|of| of.present - of.touched).sum::<u64>();
                prop_assert_eq!(growth, plain.growth() as u64);
            }
        }
    }
}
