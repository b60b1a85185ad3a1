//! The cores of one machine or of several, with as many lanes as they need.

#[cfg(target_arch = "x86_64")]
use octavo_types::InstructionSet;
use octavo_types::Instructions;

use super::Costs;
use super::lanes::Lanes;
#[cfg(target_arch = "x86_64")]
use super::lanes::{Avx2Lanes, Avx512Lanes};
use super::pipeline::{CoreCounts, CoreSetup, Pipeline};
use crate::front::LineAccess;

/// The cores with one number of several machines, a lane each.
pub struct CoreGroup {
    instructions: Instructions,
    cores: Box<dyn Cores>,
}

/// A [`Pipeline`] of any number of lanes.
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
    /// The largest number of machines, with any instructions.
    pub const MAX_MACHINES: usize = 16;

    /// The largest number of machines with these instructions.
    pub fn most_machines(instructions: Instructions) -> usize {
        match instructions.set() {
            #[cfg(target_arch = "x86_64")]
            InstructionSet::Avx512 => Self::MAX_MACHINES,
            _ => 8,
        }
    }

    /// How many of so many machines, at least one, a group takes best: of two, each alone is no slower
    /// than eight lanes of which six are idle.
    pub fn fitting(machines: usize, instructions: Instructions) -> usize {
        if machines < 3 { 1 } else { machines.min(Self::most_machines(instructions)) }
    }

    /// Cores of machines with [equal](CoreSetup::is_like) ones that have executed nothing, at most as many as these
    /// instructions take.
    pub fn new(setups: &[&CoreSetup], instructions: Instructions) -> Self {
        let cores: Box<dyn Cores> = match (setups.len(), instructions.set()) {
            (1, _) => Box::new(Pipeline::<[u32; 1]>::new(setups)),
            #[cfg(target_arch = "x86_64")]
            (9.., InstructionSet::Avx512) => Box::new(Pipeline::<Avx512Lanes>::new(setups)),
            #[cfg(target_arch = "x86_64")]
            (_, InstructionSet::Avx2 | InstructionSet::Avx512) => {
                Box::new(Pipeline::<Avx2Lanes>::new(setups))
            }
            _ => Box::new(Pipeline::<[u32; 8]>::new(setups)),
        };
        // One lane gains nothing from other instructions.
        let instructions = if setups.len() > 1 { instructions } else { Instructions::PORTABLE };
        CoreGroup { instructions, cores }
    }

    /// Executes a part of a batch: its words, all accesses of the batch, the number of the part's first access,
    /// and what the part's accesses cost each machine.
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
