//! Table 1 of the paper: accesses by their outcomes in the caches and in the TLB.

use crate::counters::{Counters, Lookups};

/// Accesses that missed the TLB, by side and by the place that served them: first level, second level,
/// memory.
#[derive(Default)]
pub struct Table1([[u64; 3]; 2]);

impl Table1 {
    /// Counts an access, given the misses of each cache level before and after it.
    pub fn add(&mut self, side: usize, before: [u64; 2], after: [u64; 2]) {
        let row = if after[1] > before[1] {
            2
        } else if after[0] > before[0] {
            1
        } else {
            0
        };
        self.0[side][row] += 1;
    }

    /// Reports all six rows of each side; `missed` are its misses by cache level, `lookups` those of the TLB.
    pub fn report(&self, missed: [[u64; 2]; 2], lookups: [Lookups; 2], counters: &mut Counters) {
        for (side, component) in ["softvm.table1.i", "softvm.table1.d"].into_iter().enumerate() {
            let [l1, l2, memory] = self.0[side];
            let [l1_misses, l2_misses] = missed[side];
            let all = [
                ("l2_hit_tlb_hit", (l1_misses - l2_misses).saturating_sub(l2)),
                ("memory_tlb_hit", l2_misses.saturating_sub(memory)),
                ("l1_hit_tlb_miss", l1),
                ("l2_hit_tlb_miss", l2),
                ("memory_tlb_miss", memory),
            ];
            let synonyms: u64 = all.iter().map(|(_, times)| times).sum();
            let Lookups { hits, misses } = lookups[side];
            counters.add(component, "l1_hit_tlb_hit", (hits + misses).saturating_sub(synonyms));
            for (name, times) in all {
                counters.add(component, name, times);
            }
        }
    }
}
