//! The cores of one or several machines, executed together as lanes of a [`Pipeline`] of a suitable width.

use octavo_types::{InstructionSet, Instructions};

use super::Costs;
use super::lanes::Lanes;
#[cfg(target_arch = "x86_64")]
use super::lanes::{EightLanes, FourLanes, SixteenLanes};
use super::pipeline::{CoreCounts, CoreSetup, Pipeline};
use crate::front::LineAccess;

/// A core of each of several machines: all have the same number in their machine.
pub struct CoreGroup {
    instructions: Instructions,
    cores: Box<dyn Cores>,
}

/// A [`Pipeline`] of any width.
trait Cores: Send {
    fn execute(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs],
        instructions: Instructions,
    );

    fn counts(&self, lane: usize) -> CoreCounts;
}

impl<V: Lanes + Send> Cores for Pipeline<V> {
    fn execute(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs],
        instructions: Instructions,
    ) {
        Pipeline::execute(self, words, accesses, first, costs, instructions);
    }

    fn counts(&self, lane: usize) -> CoreCounts {
        Pipeline::counts(self, lane)
    }
}

impl CoreGroup {
    /// The largest number of machines with any instruction set.
    pub const MAX_MACHINES: usize = 16;

    /// The largest number of machines with an instruction set.
    pub fn most_machines(instructions: Instructions) -> usize {
        match instructions.set() {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => Self::MAX_MACHINES,
            _ => 8,
        }
    }

    /// The measured time of a group of machines, their own simulation included, in tenths of the time of one machine
    /// with vector instructions. Without these, a group gains less over its machines one after another.
    pub fn cost(machines: usize, instructions: Instructions) -> usize {
        match (machines, instructions.set()) {
            (1, InstructionSet::Portable) => 11,
            (_, InstructionSet::Portable) => 12 + 6 * machines,
            #[cfg(target_arch = "x86_64")]
            _ => 7 + 3 * machines,
        }
    }

    /// Cores that have executed nothing, of machines with [equal cores](CoreSetup::is_like): at most as many as
    /// [`Self::most_machines`].
    pub fn new(setups: &[&CoreSetup], instructions: Instructions) -> Self {
        let cores: Box<dyn Cores> = match (setups.len(), instructions.set()) {
            (1, _) => Box::new(Pipeline::<[u32; 1]>::new(setups)),
            #[cfg(target_arch = "x86_64")]
            (2..=4, InstructionSet::Avx2 | InstructionSet::Avx512) => {
                Box::new(Pipeline::<FourLanes>::new(setups))
            }
            #[cfg(target_arch = "x86_64")]
            (5..=8, InstructionSet::Avx2 | InstructionSet::Avx512) => {
                Box::new(Pipeline::<EightLanes>::new(setups))
            }
            #[cfg(target_arch = "x86_64")]
            (9.., InstructionSet::Avx512) => Box::new(Pipeline::<SixteenLanes>::new(setups)),
            (2..=4, _) => Box::new(Pipeline::<[u32; 4]>::new(setups)),
            _ => Box::new(Pipeline::<[u32; 8]>::new(setups)),
        };
        // Vector instructions do not speed up one lane.
        let instructions = if setups.len() > 1 { instructions } else { Instructions::PORTABLE };
        CoreGroup { instructions, cores }
    }

    /// Executes a part of a batch. `accesses` are all of the batch, `first` is the index of the part's first access,
    /// and `costs` are the costs of the part's accesses in each machine.
    pub fn execute(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs],
    ) {
        self.cores.execute(words, accesses, first, costs, self.instructions);
    }

    /// The counts of the core of a machine.
    pub fn counts(&self, machine: usize) -> CoreCounts {
        self.cores.counts(machine)
    }
}
