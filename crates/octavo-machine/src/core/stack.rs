//! Where a core's cycles go: each cycle in which nothing was committed belongs to what the next instruction
//! waited for.

use super::lanes::Lanes;
use crate::counters::Counters;

/// The reason for a cycle.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u32)]
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
#[derive(Clone, Debug)]
pub struct Stacks<V> {
    /// Cycles since the [epoch](super::pipeline::Pipeline) of each lane.
    cycles: [V; PARTS.len()],
    /// Cycles before it.
    earlier: Box<[Stack]>,
}

impl<V: Lanes> Stacks<V> {
    /// Without cycles.
    pub fn new() -> Self {
        let earlier = vec![Stack::default(); V::COUNT].into();
        Stacks { cycles: [V::all(0); PARTS.len()], earlier }
    }

    /// Begins to add the cycles until an instruction commits, `since` the commit of the one before: those in which
    /// nothing was committed. None if there are none, in no core.
    #[inline(always)]
    pub fn without_commit(&self, since: V) -> Option<V> {
        let one = V::all(1);
        one.is_less_in_any(since).then(|| since.saturating_minus(one))
    }

    /// Explains cycles by a wait.
    #[inline(always)]
    pub fn explain(&mut self, cycles: &mut V, part: Part, wait: V) {
        let of_part = cycles.min(wait);
        let sums = &mut self.cycles[part as usize];
        *sums = sums.plus(of_part);
        *cycles = cycles.minus(of_part);
    }

    /// Explains cycles by a wait for data, of another part in each lane, which `served` has as a number.
    #[inline(always)]
    pub fn explain_by_data(&mut self, cycles: &mut V, wait: &V, served: &V) {
        if V::all(0).is_less_in_any(*wait) {
            self.explain_by_data_of_each(cycles, wait, served);
        }
    }

    #[inline(never)]
    fn explain_by_data_of_each(&mut self, cycles: &mut V, wait: &V, served: &V) {
        for (lane, cycles) in cycles.as_mut_slice().iter_mut().enumerate() {
            let of_data = wait.get(lane).min(*cycles);
            let sums = &mut self.cycles[served.get(lane) as usize];
            sums.set(lane, sums.get(lane) + of_data);
            *cycles -= of_data;
        }
    }

    /// Adds the cycles that nothing explains, and that of the commit.
    #[inline(always)]
    pub fn end(&mut self, cycles: V, since: V) {
        let base = &mut self.cycles[Part::Base as usize];
        *base = base.plus(cycles).plus(since.min(V::all(1)));
    }

    /// The stack of a core.
    pub fn of(&self, lane: usize) -> Stack {
        let earlier = self.earlier[lane].cycles;
        let part = |part: usize| earlier[part] + u64::from(self.cycles[part].get(lane));
        Stack { cycles: std::array::from_fn(part) }
    }

    /// Begins to count from new epochs, so that no count overflows.
    pub fn move_epoch(&mut self) {
        self.earlier = (0..V::COUNT).map(|lane| self.of(lane)).collect();
        self.cycles = [V::all(0); PARTS.len()];
    }
}
