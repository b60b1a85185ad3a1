//! Machines: what a simulation runs on, from a description to what has been checked.
//!
//! A [`MachineConfig`] says everything about a machine that an engine asks for.

mod hardware;
mod types;

pub use types::{
    AddressSpaces, CacheConfigs, CacheLevel, CoreConfig, Fill, FirstLevel, FragmentationConfig,
    MachineConfig, MemoryConfig, PageSizes, PageTableConfig, TlbArray, TlbConfig, TlbLevel,
    WalkCache, WalkerConfig, Ways,
};
