//! The counters of a core.

use crate::core::stack::Stack;
use crate::counters::Counters;

/// The counts of a core.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CoreCounts {
    pub(super) instructions: u64,
    pub(super) taken: u64,
    pub(super) mispredicted: u64,
    pub(super) traps: u64,
    pub(super) stack: Stack,
    /// Row hits and row conflicts; `None` without a DRAM model.
    pub(super) rows: Option<[u64; 2]>,
    /// By level, the prefetched lines that were used before they had arrived; `None` without prefetchers.
    pub(super) late_prefetches: Option<[u64; 2]>,
}

impl CoreCounts {
    /// The time of the last commit, in cycles.
    pub fn cycles(&self) -> u64 {
        self.stack.total()
    }

    /// Adds the counters of the core.
    pub fn report(&self, counters: &mut Counters) {
        counters.add("core", "instructions", self.instructions);
        counters.add("core", "cycles", self.stack.total());
        counters.add("core", "branches_taken", self.taken);
        counters.add("core", "branches_mispredicted", self.mispredicted);
        counters.add("core", "traps", self.traps);
        self.stack.report(counters);
        if let Some([hits, conflicts]) = self.rows {
            counters.add("memory", "row_hits", hits);
            counters.add("memory", "row_conflicts", conflicts);
        }
        if let Some([l1d, l2]) = self.late_prefetches {
            counters.add("prefetch.l1d", "late", l1d);
            counters.add("prefetch.l2", "late", l2);
        }
    }
}
