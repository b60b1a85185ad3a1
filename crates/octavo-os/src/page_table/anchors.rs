//! Anchors (Park, Heo, Jeong and Huh, ISCA 2017): the entry of a page whose number is a multiple of the *anchor
//! distance*, a power of two, also has the number of base pages that follow it contiguously, up to the distance. The
//! distance is a property of the address space.
//!
//! An anchor is the entry of the page that begins there, of any size. If a page begins before the multiple and ends
//! after it, the multiple has no entry. Anchors are updated from the ranges of the page table at the end of each
//! operation: only anchors of blocks with changed pages can have a new length.

use octavo_types::{PageNumber, PageSize};
use rustc_hash::FxHashMap;

use super::{PageTable, Range, Ranges};
use crate::vmas::Pages;

/// The anchors of the page tables of a machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AnchorFormat {
    /// log2 of the distance of new address spaces; 0 for no anchors.
    pub first_log2: u8,
    /// log2 of the largest distance that is chosen.
    pub largest_log2: u8,
    /// Instructions between two choices of the distance; 0 if it stays.
    pub choose_every_instructions: u64,
}

impl AnchorFormat {
    /// Maximum of the log2 of a distance.
    pub const MAX_LOG2: u8 = 16;
}

/// The anchors of an address space.
#[derive(Default)]
pub(super) struct Anchors {
    log2: u8,
    /// By page; no anchor has length 0.
    lengths: FxHashMap<u64, u64>,
    /// Pages whose entries the current operation has changed.
    changed: Vec<Pages>,
}

impl Anchors {
    pub fn new(log2: u8) -> Self {
        Anchors { log2, ..Anchors::default() }
    }
}

impl PageTable {
    /// log2 of the anchor distance; 0 without anchors.
    #[inline(always)]
    pub fn anchor_log2(&self) -> u8 {
        self.anchors.log2
    }

    /// The number of base pages in the anchor of a page; 0 if its entry is not an anchor.
    pub fn anchored_pages(&self, page: PageNumber) -> u64 {
        self.anchors.lengths.get(&page.raw()).copied().unwrap_or(0)
    }

    /// Records that entries of base pages are written or cleared.
    pub(super) fn note_anchored(&mut self, pages: Pages) {
        if self.anchors.log2 == 0 {
            return;
        }
        match self.anchors.changed.last_mut() {
            Some(last) if last.end == pages.start => last.end = pages.end,
            _ => self.anchors.changed.push(pages),
        }
    }

    /// Ends an operation: updates the lengths of anchors. Returns the number of entries written only for this.
    pub fn update_anchors(&mut self) -> u64 {
        let mut blocks = FxHashMap::default();
        let log2 = self.anchors.log2;
        for pages in std::mem::take(&mut self.anchors.changed) {
            for number in pages.start >> log2..=(pages.end - 1) >> log2 {
                *blocks.entry(number << log2).or_insert(false) |= pages.contains(&(number << log2));
            }
        }
        let mut written = 0;
        for (first, is_written) in blocks {
            let (before, now) = (self.anchored_pages(PageNumber::new(first)), self.run_at(first));
            written += u64::from(now != before && !is_written);
            match now {
                0 => self.anchors.lengths.remove(&first),
                now => self.anchors.lengths.insert(first, now),
            };
        }
        written
    }

    /// The length of an anchor by the current ranges; 0 if no mapped page begins there.
    fn run_at(&self, first: u64) -> u64 {
        let page = PageNumber::new(first);
        let range = self.ranges().and_then(|ranges| ranges.find(page));
        let begins = || self.leaf(page).is_some_and(|leaf| leaf.page == page);
        range
            .filter(|_| begins())
            .map_or(0, |range| (range.pages.end - first).min(1 << self.anchors.log2))
    }

    /// Changes the distance and writes all anchors again. Returns their number.
    pub fn set_anchor_log2(&mut self, log2: u8) -> u64 {
        self.anchors = Anchors::new(log2);
        if log2 == 0 {
            return 0;
        }
        let ranges: Vec<Pages> = self
            .ranges()
            .iter()
            .flat_map(|ranges| ranges.iter())
            .map(|range| range.pages)
            .collect();
        for pages in ranges {
            for number in pages.start.div_ceil(1 << log2)..pages.end.div_ceil(1 << log2) {
                let first = number << log2;
                let length = self.run_at(first);
                if length > 0 {
                    self.anchors.lengths.insert(first, length);
                }
            }
        }
        self.anchors.lengths.len() as u64
    }

    /// log2 of the distance with the lowest cost for the mapped pages (of several, the smallest), if this cost is lower
    /// than that of the current distance. In a guest, `backing` has the ranges of the host's table.
    pub fn better_anchor_log2(&self, largest_log2: u8, backing: Option<&Ranges>) -> Option<u8> {
        let has_huge = self.pages(PageSize::HUGE) > 0;
        let histogram = self.ranges().map(|ranges| histogram(ranges, backing)).unwrap_or_default();
        let cost_of = |log2| cost(&histogram, log2, has_huge);
        let best = (0..=largest_log2).min_by_key(|log2| cost_of(*log2))?;
        (cost_of(best) < cost_of(self.anchors.log2)).then_some(best)
    }

    /// Checks each anchor against the mapped pages.
    pub(crate) fn check_anchors(&self) -> Result<(), String> {
        let log2 = self.anchors.log2;
        let (mut correct, mut from) = (FxHashMap::default(), 0);
        // The current run, as the page, frame and permissions that would continue it, and its anchor.
        let mut run = None;
        while let Some(leaf) =
            self.next(PageNumber::new(from), PageNumber::new(u64::MAX)).filter(|_| log2 > 0)
        {
            let pages = 1 << leaf.size.base_shift();
            for at in 0..pages {
                let page = leaf.page.raw() + at;
                let own = (page, leaf.frame.raw() + at, leaf.rights);
                if page.is_multiple_of(1 << log2) {
                    run = (at == 0).then_some((own, page));
                } else if run.is_some_and(|(next, _)| next != own) {
                    run = None;
                }
                run = run.map(|((_, frame, rights), first)| {
                    *correct.entry(first).or_insert(0) += 1;
                    ((page + 1, frame + 1, rights), first)
                });
            }
            from = leaf.page.raw() + pages;
        }
        match correct == self.anchors.lengths {
            true => Ok(()),
            false => Err(format!("anchors are {:?}, not {correct:?}", self.anchors.lengths)),
        }
    }
}

/// The number of chunks (maximal runs of contiguous pages) by length. Guest memory that the host does not map is in no
/// chunk.
fn histogram(ranges: &Ranges, backing: Option<&Ranges>) -> FxHashMap<u64, u64> {
    let mut histogram = FxHashMap::default();
    let mut add = |pages: Pages| *histogram.entry(pages.end - pages.start).or_insert(0) += 1;
    for Range { pages, frame, .. } in ranges.iter() {
        match backing {
            None => add(pages),
            Some(host) => {
                let frames = frame.raw()..frame.raw() + (pages.end - pages.start);
                host.within(frames).for_each(&mut add);
            }
        }
    }
    histogram
}

/// The TLB entries that all chunks would take with a distance: in each chunk, one per anchor and one per page of the
/// remainder, where 512 pages count as one if there are huge pages.
fn cost(histogram: &FxHashMap<u64, u64>, log2: u8, has_huge: bool) -> u64 {
    let huge = 1 << PageSize::HUGE.base_shift();
    let entries_of_chunk = |pages: u64| {
        let rest = pages % (1 << log2);
        (pages >> log2) + if has_huge { rest / huge + rest % huge } else { rest }
    };
    histogram.iter().map(|(pages, chunks)| chunks * entries_of_chunk(*pages)).sum()
}

#[cfg(test)]
mod tests {
    use octavo_types::{FrameNumber, Protection};

    use super::*;

    fn chosen(chunks: &[(u64, u64)], has_huge: bool) -> (u8, u64) {
        let histogram = chunks.iter().copied().collect();
        let cost = |log2: &u8| cost(&histogram, *log2, has_huge);
        let best = (0..=AnchorFormat::MAX_LOG2).min_by_key(cost).unwrap();
        (best, cost(&best))
    }

    #[test]
    fn histograms_by_hand_choose_a_distance() {
        // Single pages: no distance helps.
        assert_eq!(chosen(&[(1, 100)], false), (0, 100));
        // Ten chunks of 16 pages: an anchor each. With a distance of 32, all pages are remainders.
        assert_eq!(chosen(&[(16, 10)], false), (4, 10));
        // 1000 pages: 31 anchors of 32 and 8 pages; 62 + 8 with a distance of 16, 15 + 40 with 64.
        assert_eq!(chosen(&[(1000, 1)], false), (5, 39));
        // Many chunks of 4 outweigh one of 256: 100 + 64. With a distance of 8: 400 + 32.
        assert_eq!(chosen(&[(4, 100), (256, 1)], false), (2, 164));
        // Two chunks of 4 do not: 8 + 1.
        assert_eq!(chosen(&[(4, 2), (256, 1)], false), (8, 9));
    }

    #[test]
    fn chunks_of_a_guest_are_contiguous_in_both_tables() {
        let rights = Protection { read: true, write: true, execute: false };
        let set = |ranges: &mut Ranges, first: u64, pages: u64, frame: u64| {
            ranges.set(first..first + pages, FrameNumber::new(frame), rights);
        };
        let (mut guest, mut host) = (Ranges::default(), Ranges::default());
        set(&mut guest, 10, 10, 100);
        set(&mut guest, 20, 1, 300);
        // The host does not map 105, and maps 106 to 108 apart from their neighbours.
        set(&mut host, 90, 15, 1000);
        set(&mut host, 106, 3, 2000);
        set(&mut host, 109, 300, 4000);
        let sorted = |backing| {
            let mut all: Vec<_> = histogram(&guest, backing).into_iter().collect();
            all.sort_unstable();
            all
        };
        assert_eq!(sorted(None), [(1, 1), (10, 1)]);
        assert_eq!(sorted(Some(&host)), [(1, 2), (3, 1), (5, 1)]);
    }

    #[test]
    fn remainders_count_as_huge_pages_if_there_are_any() {
        // Three anchors of 512, or one of 1024 and 512 pages.
        assert_eq!(chosen(&[(1536, 1)], false), (9, 3));
        assert_eq!(chosen(&[(1536, 1)], true), (10, 2));
    }
}
