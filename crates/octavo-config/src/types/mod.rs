//! The types of a machine description.

mod cache;
mod gtsm;
mod host;
mod level;
mod memory;
mod pipeline;
mod prefetch;
mod softvm;
mod tlb;
mod walker;

use serde::{Deserialize, Serialize};

pub use cache::{CacheConfigs, CacheLevel};
pub use gtsm::GtsmHardware;
pub use host::{HostConfig, TlbsHold};
pub use memory::{FragmentationConfig, HoleGroup, MemoryConfig};
pub use pipeline::{
    ArithmeticLatencies, BranchPrediction, DramConfig, OutstandingMisses, PipelineConfig,
};
pub use prefetch::{PrefetchConfig, StreamPrefetcher, StridePrefetcher};
pub use softvm::{
    Aliasing, IncreasedRights, KernelConfig, Sharing, SoftTlbConfig, SoftvmConfig, SoftvmCycles,
    SoftvmRates, TableKind, VirtualCacheLevel, WriteBackTranslation,
};
pub use tlb::{Fill, FirstLevel, PageSizes, TlbArray, TlbConfig, TlbLevel, Ways};
pub use walker::{PageTableConfig, WalkCache, WalkStart, WalkerConfig};

/// A machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MachineConfig {
    /// Its name: that of a preset or a file.
    pub name: String,
    /// A description of one sentence.
    pub description: String,
    /// Where the numbers are from.
    pub source: String,
    /// The cores.
    pub core: CoreConfig,
    /// Physical memory.
    pub memory: MemoryConfig,
    /// The page table's shape.
    pub page_table: PageTableConfig,
    /// The TLBs of each core.
    pub tlb: TlbConfig,
    /// The page walkers of each core.
    pub walker: WalkerConfig,
    /// The data caches.
    pub cache: CacheConfigs,
    /// Settings of designs with virtual caches; the paper's by default.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub softvm: SoftvmConfig,
    /// Settings of designs with gapped pages; the paper's by default.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub gtsm: GtsmHardware,
    /// Channels, banks and rows of the memory; without them each read of memory takes the same time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dram: Option<DramConfig>,
    /// The host, if programs run in a guest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostConfig>,
}

/// Whether a machine says nothing of virtual caches, or of pages with gaps: it is written as one that knows none.
fn is_usual<T: Default + PartialEq>(of: &T) -> bool {
    *of == T::default()
}

/// The cores, all alike.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreConfig {
    /// How many there are: 1 to 256.
    pub count: u32,
    /// Cycles that an instruction takes where all its accesses hit first levels: more than 0.
    pub base_cpi: f64,
    /// The effect of a context switch on TLBs.
    pub address_spaces: AddressSpaces,
    /// How it executes instructions out of order. Without it there is no time but the sum of all latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineConfig>,
}

/// How TLBs and walk caches distinguish processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressSpaces {
    /// Entries carry an identifier, and stay at a switch.
    Tagged,
    /// They do not, and a switch empties all.
    Flushed,
}
