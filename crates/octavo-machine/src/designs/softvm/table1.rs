//! Table 1 of the paper: accesses by their outcomes in the caches and in the TLB.

use crate::counters::{Counters, Lookups};

/// Counts that the rows need beside those of caches and TLB.
#[derive(Default)]
pub struct Table1 {
    /// Accesses that missed the TLB, by side and by the place that served them: first level, second level,
    /// memory.
    refilled: [[u64; 3]; 2],
    /// By side, first-level misses without a preceding look-up of the TLB.
    without_lookup: [u64; 2],
}

impl Table1 {
    /// Counts a first-level miss without a look-up of the TLB: of the second half of a reference, or of a repeated
    /// access.
    pub fn add_without_lookup(&mut self, side: usize) {
        self.without_lookup[side] += 1;
    }

    /// Counts an access, given the misses of each cache level before and after it.
    pub fn add(&mut self, side: usize, before: [u64; 2], after: [u64; 2]) {
        let row = if after[1] > before[1] {
            2
        } else if after[0] > before[0] {
            1
        } else {
            0
        };
        self.refilled[side][row] += 1;
    }

    /// Reports all six rows of each side; `missed` are its misses by cache level, `lookups` those of the TLB.
    pub fn report(&self, missed: [[u64; 2]; 2], lookups: [Lookups; 2], counters: &mut Counters) {
        for (side, component) in ["softvm.table1.i", "softvm.table1.d"].into_iter().enumerate() {
            let [l1, l2, memory] = self.refilled[side];
            let [l1_misses, l2_misses] = missed[side];
            let all = [
                ("l2_hit_tlb_hit", (l1_misses - l2_misses).saturating_sub(l2)),
                ("memory_tlb_hit", l2_misses.saturating_sub(memory)),
                ("l1_hit_tlb_miss", l1),
                ("l2_hit_tlb_miss", l2),
                ("memory_tlb_miss", memory),
            ];
            let others: u64 = all.iter().map(|(_, times)| times).sum();
            let Lookups { hits, misses } = lookups[side];
            let accesses = hits + misses + self.without_lookup[side];
            counters.add(component, "l1_hit_tlb_hit", accesses.saturating_sub(others));
            for (name, times) in all {
                counters.add(component, name, times);
            }
        }
    }
}
