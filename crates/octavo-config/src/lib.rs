//! Machines that simulations run on, from a description to a checked configuration.
//!
//! A [`MachineConfig`] has everything that an engine needs to know about a machine.
//! [`DesignTables::resolve`] makes one from a preset or a TOML file, which may extend another
//! machine and give only the keys that differ, and from settings such as `tlb.l2.entries=2048`.
//!
//! A [`Resolved`] machine has been validated ([`MachineConfig::check`]): its arrays can be built, so that
//! engines need no checks of their own.

pub mod check;
mod design_tables;
mod error;
mod hardware;
mod host;
mod memory_kinds;
mod node;
mod plain_tables;
mod presets;
mod resolve;
mod tree;
mod types;
pub mod written;

pub use check::MAX_CORES;
pub use design_tables::{DesignSettings, DesignTable, DesignTables};
pub use error::{InvalidValue, MachineError};
pub use hardware::PlacedTier;
pub use presets::preset_names;
pub use resolve::Resolved;
pub use types::{
    AddressSpaces, ArithmeticLatencies, BranchPrediction, CacheConfigs, CacheLevel, CoreConfig,
    DramConfig, Fill, FirstLevel, FragmentationConfig, HoleGroup, HostConfig, MachineConfig,
    MemoryConfig, MemoryTier, OutstandingMisses, PageSizes, PageTableConfig, PipelineConfig,
    PrefetchConfig, RegionPrefetcher, StreamPrefetcher, StridePrefetcher, TlbArray, TlbConfig,
    TlbLevel, TlbsHold, WalkCache, WalkStart, WalkerConfig, Ways,
};
