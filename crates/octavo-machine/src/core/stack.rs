//! Where a core's cycles go: each cycle in which nothing was committed belongs to what the next instruction
//! waited for.

use super::calendar::{Lanes, any_less, each};
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stack {
    cycles: [u64; PARTS.len()],
}

impl Stack {
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

/// The stacks of several cores.
#[derive(Clone, Copy, Debug)]
pub struct Stacks<const N: usize> {
    cycles: [Lanes<N>; PARTS.len()],
}

impl<const N: usize> Stacks<N> {
    /// Without cycles.
    pub fn new() -> Self {
        Stacks { cycles: [[0; N]; PARTS.len()] }
    }

    /// Adds the cycles until an instruction commits, `since` the commit of the one before. `waits` gives its
    /// waits, the last first: those for data, with their parts, and the others. What they do not explain is the
    /// base. It is called only if a core had a cycle without a commit.
    #[inline(always)]
    pub fn commit<const W: usize>(
        &mut self,
        since: Lanes<N>,
        waits: impl FnOnce() -> ((Lanes<N>, [Part; N]), [(Part, Lanes<N>); W]),
    ) {
        // The instruction commits in one of these cycles.
        let mut left = since.map(|since| since.saturating_sub(1));
        if any_less(&[1; N], &since) {
            let ((data, served), others) = waits();
            if any_less(&[0; N], &data) {
                self.commit_data(&mut left, &data, &served);
            }
            for (part, cycles) in others {
                let of_part: Lanes<N> = each(|lane| left[lane].min(cycles[lane]));
                let sums = &mut self.cycles[part as usize];
                *sums = each(|lane| sums[lane] + of_part[lane]);
                left = each(|lane| left[lane] - of_part[lane]);
            }
        }
        let base = &mut self.cycles[Part::Base as usize];
        *base = each(|lane| base[lane] + left[lane] + u64::from(since[lane] > 0));
    }

    /// Adds the waits for data. Each lane has a part of its own.
    #[inline(never)]
    fn commit_data(&mut self, left: &mut Lanes<N>, data: &Lanes<N>, served: &[Part; N]) {
        for lane in 0..N {
            let of_data = left[lane].min(data[lane]);
            self.cycles[served[lane] as usize][lane] += of_data;
            left[lane] -= of_data;
        }
    }

    /// The stack of a core.
    pub fn of(&self, lane: usize) -> Stack {
        Stack { cycles: self.cycles.map(|of_part| of_part[lane]) }
    }
}
