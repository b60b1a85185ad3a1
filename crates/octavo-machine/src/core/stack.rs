//! The cycle stack of a core: a cycle without a commit belongs to a wait of the next instruction to commit.

use super::lanes::Lanes;
use crate::counters::Counters;

/// A part of the stack: the reason for a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
pub enum Part {
    /// Commits, execution and waiting for operands.
    #[default]
    Base,
    /// The fetch of the right path after a mispredicted branch.
    Branches,
    /// Fetches that missed the first-level cache.
    Fetches,
    /// Look-ups in TLB levels after the first, for fetches and data.
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
#[derive(Clone, Debug)]
pub struct Stacks<V> {
    /// By part, the cycles since the epoch of each lane last moved.
    cycles: [V; PARTS.len()],
    /// The cycles before that, by lane.
    earlier: Box<[Stack]>,
}

impl<V: Lanes> Stacks<V> {
    /// Stacks without cycles.
    pub fn new() -> Self {
        let earlier = vec![Stack::default(); V::COUNT].into();
        Stacks { cycles: [V::all(0); PARTS.len()], earlier }
    }

    /// The cycles without a commit between two commits that are `elapsed` cycles apart; `None` if no lane has any.
    #[inline(always)]
    pub fn cycles_without_commit(&self, elapsed: V) -> Option<V> {
        let one = V::all(1);
        one.is_less_in_any(elapsed).then(|| elapsed.saturating_minus(one))
    }

    /// Moves as many of the `remaining` cycles to a part as a wait has.
    #[inline(always)]
    pub fn attribute(&mut self, remaining: &mut V, part: Part, wait: V) {
        let attributed = remaining.min(wait);
        let sums = &mut self.cycles[part as usize];
        *sums = sums.plus(attributed);
        *remaining = remaining.minus(attributed);
    }

    /// Moves as many of the `remaining` cycles as a wait for data has to the part of each lane that `served` gives as a
    /// number.
    #[inline(always)]
    pub fn attribute_to_data(&mut self, remaining: &mut V, wait: &V, served: &V) {
        if V::all(0).is_less_in_any(*wait) {
            self.attribute_to_data_by_lane(remaining, wait, served);
        }
    }

    #[inline(never)]
    fn attribute_to_data_by_lane(&mut self, remaining: &mut V, wait: &V, served: &V) {
        for (lane, remaining) in remaining.as_mut_slice().iter_mut().enumerate() {
            let attributed = wait.get(lane).min(*remaining);
            let sums = &mut self.cycles[served.get(lane) as usize];
            sums.set(lane, sums.get(lane) + attributed);
            *remaining -= attributed;
        }
    }

    /// Adds the `remaining` cycles without a commit to the base, and the cycle of a commit `elapsed` cycles after the
    /// last one, unless both have the same cycle.
    #[inline(always)]
    pub fn add_to_base(&mut self, remaining: V, elapsed: V) {
        let base = &mut self.cycles[Part::Base as usize];
        *base = base.plus(remaining).plus(elapsed.min(V::all(1)));
    }

    /// The stack of a core.
    pub fn of(&self, lane: usize) -> Stack {
        let earlier = self.earlier[lane].cycles;
        let part = |part: usize| earlier[part] + u64::from(self.cycles[part].get(lane));
        Stack { cycles: std::array::from_fn(part) }
    }

    /// Counts from 0 again in all lanes, so that no count overflows.
    pub fn move_epoch(&mut self) {
        self.earlier = (0..V::COUNT).map(|lane| self.of(lane)).collect();
        self.cycles = [V::all(0); PARTS.len()];
    }
}
