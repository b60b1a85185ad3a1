//! The scans of `khugepaged` on plain lists, after Linux's `Documentation/admin-guide/mm/transhuge.rst`,
//! "Khugepaged controls", and `defer_compaction` in `mm/compaction.c`.

use crate::{NaiveCompaction, NaiveFrame};

/// The range of a huge page.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NaiveHugeRange {
    /// Base pages.
    Base {
        /// The frame of each, if it is mapped.
        pages: Vec<Option<usize>>,
        /// The frame of their page table, which is freed when they become a huge page.
        table: usize,
    },
    /// A huge page that begins at this frame.
    Huge(usize),
}

/// The ranges that `khugepaged` scans, and the memory.
#[derive(Clone, Debug)]
pub struct NaiveKhugepaged {
    /// All frames, by number.
    pub memory: Vec<NaiveFrame>,
    /// All ranges, in the order of scans.
    pub ranges: Vec<NaiveHugeRange>,
    /// Base pages of a huge page.
    pub pages: usize,
    /// The setting `max_ptes_none`: the most unmapped base pages of a range that is collapsed.
    pub max_ptes_none: usize,
    /// The setting `pages_to_scan`, in huge pages.
    pub ranges_to_scan: usize,
    /// "disable defrag in khugepaged by writing 0 or enable defrag in khugepaged by writing 1".
    pub defrag: bool,
    /// Compactions so far.
    pub compactions: u64,
    /// Frames moved by compactions.
    pub moved: u64,
    next_range: usize,
    next_block: usize,
    /// Failures in succession, at most six, and requests since the last compaction. After a failure, memory is
    /// compacted again at request number 2 to the power of `failures`.
    failures: u32,
    requests: u32,
}

impl NaiveKhugepaged {
    /// The state before the first scan. Each scan covers all ranges.
    pub fn new(
        memory: Vec<NaiveFrame>,
        ranges: Vec<NaiveHugeRange>,
        pages: usize,
        defrag: bool,
    ) -> Self {
        NaiveKhugepaged {
            memory,
            pages,
            max_ptes_none: pages - 1,
            ranges_to_scan: ranges.len(),
            ranges,
            defrag,
            compactions: 0,
            moved: 0,
            next_range: 0,
            next_block: 0,
            failures: 0,
            requests: 0,
        }
    }

    /// Scans `ranges_to_scan` ranges from the end of the last scan.
    pub fn scan(&mut self) {
        for _ in 0..self.ranges_to_scan {
            if self.next_range == self.ranges.len() {
                break;
            }
            self.collapse(self.next_range);
            self.next_range += 1;
        }
        self.next_range %= self.ranges.len();
    }

    fn collapse(&mut self, number: usize) {
        let NaiveHugeRange::Base { pages, .. } = &self.ranges[number] else { return };
        let none = pages.iter().filter(|page| page.is_none()).count();
        if none == self.pages || none > self.max_ptes_none {
            return;
        }
        if self.free_block().is_none() && self.defrag {
            self.compact();
        }
        let Some(block) = self.free_block() else { return };
        self.memory[block..block + self.pages].fill(NaiveFrame::Fixed);
        let range = std::mem::replace(&mut self.ranges[number], NaiveHugeRange::Huge(block));
        let NaiveHugeRange::Base { pages, table } = range else { unreachable!("it was one") };
        for frame in pages.into_iter().flatten().chain([table]) {
            self.memory[frame] = NaiveFrame::Free;
        }
    }

    fn compact(&mut self) {
        self.requests += 1;
        let is_deferred = self.failures > 0 && self.requests < 1 << self.failures;
        let free = self.memory.iter().filter(|frame| **frame == NaiveFrame::Free).count();
        if is_deferred || free < self.pages {
            return;
        }
        let memory = std::mem::take(&mut self.memory);
        let limits = (1, u64::MAX, u64::MAX);
        let done = NaiveCompaction::of(memory, &[], self.pages, self.next_block, limits);
        (self.memory, self.next_block) = (done.memory, done.next);
        self.compactions += 1;
        self.moved += done.moves.len() as u64;
        for (from, to) in done.moves {
            for range in &mut self.ranges {
                let NaiveHugeRange::Base { pages, .. } = range else { continue };
                for page in pages.iter_mut().filter(|page| **page == Some(from)) {
                    *page = Some(to);
                }
            }
        }
        self.requests = 0;
        self.failures = if self.free_block().is_some() { 0 } else { (self.failures + 1).min(6) };
    }

    /// The first frame of the lowest free block as large as a huge page.
    fn free_block(&self) -> Option<usize> {
        let is_free = |block: &[NaiveFrame]| block.iter().all(|frame| *frame == NaiveFrame::Free);
        self.memory.chunks_exact(self.pages).position(is_free).map(|number| number * self.pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twelve frames, huge pages of four: two base pages in the lowest block, a fixed frame in the next one.
    #[test]
    fn khugepaged_by_hand() {
        let memory: Vec<_> = "mm..tf..mf.m"
            .chars()
            .map(|letter| match letter {
                '.' => NaiveFrame::Free,
                'm' => NaiveFrame::Movable,
                _ => NaiveFrame::Fixed,
            })
            .collect();
        let base = NaiveHugeRange::Base { pages: vec![Some(1), None, Some(0), None], table: 4 };
        let scanned = |defrag, max_ptes_none| {
            let mut model = NaiveKhugepaged::new(memory.clone(), vec![base.clone()], 4, defrag);
            model.max_ptes_none = max_ptes_none;
            model.scan();
            model
        };
        for model in [scanned(false, 3), scanned(true, 1)] {
            assert_eq!((model.compactions, &model.ranges), (0, &vec![base.clone()]));
            assert_eq!(model.memory, memory);
        }
        // Frames 0 and 1 move to 10 and 7, the block at 0 becomes the huge page, and 10, 7 and the table are freed.
        let model = scanned(true, 3);
        assert_eq!((model.compactions, model.moved), (1, 2));
        assert_eq!(model.ranges, [NaiveHugeRange::Huge(0)]);
        let free = |frame: &usize| model.memory[*frame] == NaiveFrame::Free;
        assert_eq!((0..12).filter(free).collect::<Vec<_>>(), [4, 6, 7, 10]);
    }

    /// Compaction always fails: the second request is deferred, the third is not, the next three are deferred.
    #[test]
    fn failures_defer_compaction() {
        let memory = [NaiveFrame::Fixed, NaiveFrame::Free].repeat(8);
        let base = NaiveHugeRange::Base { pages: vec![Some(0), None, None, None], table: 2 };
        let mut model = NaiveKhugepaged::new(memory, vec![base], 4, true);
        let tried: Vec<u64> = (0..8)
            .map(|_| {
                model.scan();
                model.compactions
            })
            .collect();
        assert_eq!(tried, [1, 1, 2, 2, 2, 2, 3, 3]);
    }
}
