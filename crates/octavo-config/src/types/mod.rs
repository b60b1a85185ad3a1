//! The types of a machine description.

mod cache;
mod host;
mod level;
mod memory;
mod pipeline;
mod prefetch;
mod tlb;
mod walker;

use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};

use crate::design_tables::DesignTables;

pub use cache::{CacheConfigs, CacheLevel};
pub use host::{HostConfig, TlbsHold};
pub use memory::{FragmentationConfig, HoleGroup, MemoryConfig, MemoryTier};
pub use pipeline::{
    ArithmeticLatencies, BranchPrediction, DramConfig, OutstandingMisses, PipelineConfig,
};
pub use prefetch::{PrefetchConfig, RegionPrefetcher, StreamPrefetcher, StridePrefetcher};
pub use tlb::{Fill, FirstLevel, PageSizes, TlbArray, TlbConfig, TlbLevel, Ways};
pub use walker::{PageTableConfig, WalkCache, WalkStart, WalkerConfig};

/// A machine.
#[derive(Clone, PartialEq, Debug, Deserialize)]
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
    /// The settings of designs, a table for each design that has some.
    #[serde(skip)]
    pub designs: DesignTables,
    /// Channels, banks and rows of the memory; without them each read of memory takes the same time.
    #[serde(default)]
    pub dram: Option<DramConfig>,
    /// The host, if programs run in a guest.
    #[serde(default)]
    pub host: Option<HostConfig>,
}

impl Serialize for MachineConfig {
    /// A map: the tables of designs stand among the others.
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let MachineConfig { name, description, source, core, memory, page_table, .. } = self;
        let MachineConfig { tlb, walker, cache, designs, dram, host, .. } = self;
        let mut map = to.serialize_map(None)?;
        map.serialize_entry("name", name)?;
        map.serialize_entry("description", description)?;
        map.serialize_entry("source", source)?;
        map.serialize_entry("core", core)?;
        map.serialize_entry("memory", memory)?;
        map.serialize_entry("page_table", page_table)?;
        map.serialize_entry("tlb", tlb)?;
        map.serialize_entry("walker", walker)?;
        map.serialize_entry("cache", cache)?;
        for (name, table) in designs.written() {
            map.serialize_entry(name, table)?;
        }
        if let Some(dram) = dram {
            map.serialize_entry("dram", dram)?;
        }
        if let Some(host) = host {
            map.serialize_entry("host", host)?;
        }
        map.end()
    }
}

/// The cores, all alike.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CoreConfig {
    /// How many there are: 1 to 256.
    pub count: u32,
    /// Cycles that an instruction takes where all its accesses hit first levels: 0.001 to 1000.
    pub base_cpi: f64,
    /// The effect of a context switch on TLBs.
    pub address_spaces: AddressSpaces,
    /// The out-of-order pipeline. Without it, time is the sum of all latencies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pipeline: Option<PipelineConfig>,
}

/// How TLBs and walk caches distinguish processes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AddressSpaces {
    /// Entries carry an identifier of the address space, and stay at a switch.
    Tagged,
    /// Entries carry none, and a switch invalidates all of them.
    Flushed,
}
