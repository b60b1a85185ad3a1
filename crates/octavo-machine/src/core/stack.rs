//! Where a core's cycles go: each cycle in which nothing was committed belongs to what the next instruction
//! waited for.

use crate::counters::Counters;

/// The reason for a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(usize)]
pub enum Part {
    /// Commits, execution and waiting for operands.
    #[default]
    Base,
    /// The right path after a mispredicted branch.
    Branches,
    /// Fetches that missed the first-level cache.
    Fetches,
    /// TLB levels behind the first, for fetches and data.
    TlbL2,
    /// Page walks, for fetches and data.
    Walks,
    /// Data from the second-level cache.
    DataL2,
    /// Data from the last-level cache.
    DataLlc,
    /// Data from memory.
    DataMemory,
    /// A full store queue.
    Stores,
    /// Software handlers of misses.
    Handlers,
}

const PARTS: [(&str, Part); 10] = [
    ("base", Part::Base),
    ("branches", Part::Branches),
    ("fetches", Part::Fetches),
    ("tlb_l2", Part::TlbL2),
    ("walks", Part::Walks),
    ("data_l2", Part::DataL2),
    ("data_llc", Part::DataLlc),
    ("data_memory", Part::DataMemory),
    ("stores", Part::Stores),
    ("handlers", Part::Handlers),
];

/// Cycles by part; they add up to the cycles of the core.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stack {
    cycles: [u64; PARTS.len()],
}

impl Stack {
    /// Adds the cycles until an instruction commits, `since` the commit of the one before. `waits` gives its
    /// waits, the last first; what they do not explain is the base. It is called only if there was a cycle
    /// without a commit.
    #[inline(always)]
    pub fn commit<const N: usize>(&mut self, since: u64, waits: impl FnOnce() -> [(Part, u64); N]) {
        // The instruction commits in one of these cycles.
        let mut left = since.saturating_sub(1);
        if left > 0 {
            for (part, cycles) in waits() {
                let of_part = left.min(cycles);
                self.cycles[part as usize] += of_part;
                left -= of_part;
            }
        }
        self.cycles[Part::Base as usize] += left + u64::from(since > 0);
    }

    /// All cycles.
    pub fn total(&self) -> u64 {
        self.cycles.iter().sum()
    }

    /// Adds the counters `core.stack.…`.
    pub fn report(&self, counters: &mut Counters) {
        for (name, part) in PARTS {
            counters.add("core.stack", name, self.cycles[part as usize]);
        }
    }
}
