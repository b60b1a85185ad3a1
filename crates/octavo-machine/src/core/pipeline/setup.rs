//! The properties of the cores of a machine, which its out-of-order core model needs.

use octavo_config::{MachineConfig, PipelineConfig};

use super::CoreCounts;
use crate::front::Lines;

/// The properties of the cores of a machine.
#[derive(Clone, Debug)]
pub struct CoreSetup {
    pub(super) machine: MachineConfig,
    pub(super) pipeline: PipelineConfig,
    pub(super) lines: Lines,
}

impl CoreSetup {
    /// The cores of a machine.
    pub fn new(machine: &MachineConfig, pipeline: &PipelineConfig, lines: Lines) -> Self {
        CoreSetup { machine: machine.clone(), pipeline: pipeline.clone(), lines }
    }

    /// The number of cores.
    pub fn count(&self) -> usize {
        self.machine.core.count as usize
    }

    /// Whether the cores of both machines can be lanes of one [`Pipeline`](super::Pipeline).
    pub fn is_like(&self, other: &CoreSetup) -> bool {
        let key = |setup: &CoreSetup| (setup.machine.cache.l1d.latency_cycles, setup.count());
        self.pipeline == other.pipeline && key(self) == key(other)
    }

    /// The counts of a core that has executed nothing.
    pub fn counts(&self) -> CoreCounts {
        CoreCounts {
            rows: self.machine.drams().iter().any(|(_, dram)| dram.is_some()).then_some([0; 2]),
            late_prefetches: (!self.machine.prefetchers().is_empty()).then_some([0; 2]),
            ..CoreCounts::default()
        }
    }
}
