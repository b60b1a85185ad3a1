//! Fully associative TLBs of all numbers of entries, with the page size in the tag: counts by depth.

use super::TwoSizesStack;
use super::alternation::Steps;
use crate::stack::HoleStack;

/// The TLBs.
pub struct Stacked {
    max_entries: u32,
    stack: Option<HoleStack>,
    /// Look-ups of small pages, look-ups of large pages, and invalidated entries, by depth. The depth
    /// `max_entries` + 1 is a miss in all TLBs.
    depths: [Vec<u64>; 3],
}

impl Stacked {
    /// Empty TLBs of 1 to `max_entries` entries.
    pub fn new(max_entries: u32) -> Self {
        Stacked {
            max_entries,
            stack: (max_entries > 0).then(|| HoleStack::new(max_entries)),
            depths: std::array::from_fn(|_| vec![0; max_entries as usize + 2]),
        }
    }

    /// Looks up pages.
    pub fn process(&mut self, steps: &Steps) {
        for step in steps.iter() {
            self.look_up(step.page.id);
            let alternations = step.alternations_of_pages();
            // An even number of alternations leaves the order unchanged.
            for kind in step.kinds() {
                let depth = self.max_entries.min(1) + 1;
                self.depths[kind][depth as usize] += u64::from(alternations / 2);
            }
            if alternations % 2 == 1 {
                self.look_up(step.before.id);
            }
        }
    }

    /// Looks up an id, which is odd for a large page.
    #[inline(always)]
    fn look_up(&mut self, id: u32) {
        if let Some(stack) = &mut self.stack {
            let depth = stack.access(id).min(self.max_entries + 1);
            self.depths[id as usize % 2][depth as usize] += 1;
        }
    }

    /// Invalidates a page.
    pub fn invalidate(&mut self, id: u32) {
        if let Some(stack) = &mut self.stack {
            // Depth 0 counts pages that are in no TLB.
            self.depths[2][stack.invalidate(id).min(self.max_entries + 1) as usize] += 1;
        }
    }

    /// Removes all entries without counting invalidations.
    pub fn clear(&mut self) {
        self.stack.iter_mut().for_each(HoleStack::clear);
    }

    /// The results.
    pub fn result(&self) -> TwoSizesStack {
        let entries = 1..=self.max_entries as usize;
        let missed = |depths: &[u64]| {
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
            small_misses: missed(&self.depths[0]),
            large_misses: missed(&self.depths[1]),
            invalidated: entries.clone().map(up_to).collect(),
        }
    }
}
