//! Fully associative TLBs of all numbers of entries, with the page size in the tag: counts by depth.

use super::TwoSizesStack;
use super::recent::Use;
use crate::lanes::{PAGES, TOP};
use crate::stack::HoleStack;

/// The TLBs.
pub struct Stacked {
    max_entries: u32,
    /// The pages that have left the order of the last uses.
    behind: Option<HoleStack>,
    /// Look-ups of small pages, look-ups of large pages, and invalidated entries, by depth. The depth
    /// `max_entries` + 1 is a miss in all TLBs.
    depths: [Vec<u64>; 3],
    /// Look-ups of small pages and of large ones among the last uses, by the number of pages before them.
    recent: [[u64; PAGES]; 2],
}

impl Stacked {
    /// Empty TLBs of 1 to `max_entries` entries.
    pub fn new(max_entries: u32) -> Self {
        Stacked {
            max_entries,
            behind: (max_entries > 0).then(|| HoleStack::new(max_entries)),
            depths: std::array::from_fn(|_| vec![0; max_entries as usize + 2]),
            recent: [[0; PAGES]; 2],
        }
    }

    /// Counts a look-up of a page that is among the last uses, behind those of `before` pages.
    #[inline(always)]
    pub fn hit(&mut self, kind: usize, before: u32) {
        self.recent[kind % 2][before as usize % PAGES] += 1;
    }

    /// Counts a look-up of a page that is not among the last uses, which are of `before` pages.
    #[inline(always)]
    pub fn look_behind(&mut self, used: Use, before: u32) {
        if let Some(stack) = &mut self.behind {
            let depth = stack.remove(used.id).saturating_add(before);
            self.depths[used.kind()][depth.min(self.max_entries + 1) as usize] += 1;
        }
    }

    /// Adds a use that has left the order of the last ones.
    #[inline(always)]
    pub fn leave(&mut self, used: Use) {
        if let Some(stack) = &mut self.behind {
            stack.push(used.id);
        }
    }

    /// Invalidates a page that is not among the last uses, which are of `before` pages.
    pub fn invalidate(&mut self, id: u32, before: u32) {
        if let Some(stack) = &mut self.behind {
            // Depth 0 counts pages that are in no TLB.
            let depth = stack.invalidate(id);
            let depth = if depth == 0 { 0 } else { (depth + before).min(self.max_entries + 1) };
            self.depths[2][depth as usize] += 1;
        }
    }

    /// Removes all entries without counting invalidations.
    pub fn clear(&mut self) {
        self.behind.iter_mut().for_each(HoleStack::clear);
    }

    /// The results, with look-ups of each kind, by the number of pages before them, that were counted elsewhere.
    pub fn result(&self, others: [[u64; TOP]; 2]) -> TwoSizesStack {
        let entries = 1..=self.max_entries as usize;
        let missed = |kind: usize| {
            let mut depths = self.depths[kind].clone();
            let recent = self.recent[kind].iter().enumerate();
            for (before, lookups) in recent.chain(others[kind].iter().enumerate()) {
                depths[(before + 1).min(self.max_entries as usize + 1)] += lookups;
            }
            let mut misses: u64 = depths[1..].iter().sum();
            let below = |n: usize| {
                misses -= depths[n];
                misses
            };
            entries.clone().map(below).collect()
        };
        let mut held = 0;
        let up_to = |n: usize| {
            held += self.depths[2][n];
            held
        };
        TwoSizesStack {
            small_misses: missed(0),
            large_misses: missed(1),
            invalidated: entries.clone().map(up_to).collect(),
        }
    }
}
