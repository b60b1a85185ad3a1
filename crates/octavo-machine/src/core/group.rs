//! The cores of one machine or of several, with as many lanes as they need.

use octavo_types::Instructions;

use super::Costs;
use super::pipeline::{CoreCounts, CoreSetup, Pipeline};
use crate::front::LineAccess;

/// The cores with one number of several machines, a lane each.
pub enum CoreGroup {
    /// Of one machine.
    One(Box<Pipeline<1>>),
    /// Of up to four.
    Four(Box<Pipeline<4>>),
}

impl CoreGroup {
    /// The largest number of machines.
    pub const MAX_MACHINES: usize = 4;

    /// How many of so many machines, at least one, a group takes best: of two, each alone is faster
    /// than four lanes of which two are idle.
    pub fn fitting(machines: usize) -> usize {
        if machines < 3 { 1 } else { machines.min(Self::MAX_MACHINES) }
    }

    /// Cores of machines with [equal](CoreSetup::is_like) ones that have executed nothing.
    pub fn new(setups: &[&CoreSetup]) -> Self {
        match setups.len() {
            1 => CoreGroup::One(Box::new(Pipeline::new(setups))),
            _ => CoreGroup::Four(Box::new(Pipeline::new(setups))),
        }
    }

    /// Executes a part of a batch: its words, all accesses of the batch, the number of the part's first access,
    /// and what the part's accesses cost each machine.
    pub fn execute(
        &mut self,
        words: &[u32],
        accesses: &[LineAccess],
        first: usize,
        costs: &[&Costs],
        instructions: Instructions,
    ) {
        match self {
            CoreGroup::One(cores) => cores.execute(words, accesses, first, costs, instructions),
            CoreGroup::Four(cores) => cores.execute(words, accesses, first, costs, instructions),
        }
    }

    /// The counts of the core of a machine.
    pub fn counts(&self, machine: usize) -> CoreCounts {
        match self {
            CoreGroup::One(cores) => cores.counts(machine),
            CoreGroup::Four(cores) => cores.counts(machine),
        }
    }
}
