//! What the engine makes of a machine's description.

use octavo_config::{FirstLevel, MachineConfig, TlbConfig};
use octavo_hw::{CacheError, GeometryError, WalkCacheError};
use octavo_os::frames::MemorySizeError;
use octavo_os::frames::fragmentation::FragmentationError;

use crate::front::{Filter, Lines};

/// A machine that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ConfigError {
    /// A cache.
    #[error("cache.{0}")]
    Cache(#[from] CacheError),
    /// A TLB.
    #[error("tlb.{level}: {error}")]
    Tlb {
        /// `l1`, `l1i`, `l1d` or `l2`.
        level: &'static str,
        /// What is wrong.
        error: GeometryError,
    },
    /// A walk cache.
    #[error("walker: {0}")]
    WalkCache(#[from] WalkCacheError),
    /// The memory.
    #[error("memory: {0}")]
    Memory(#[from] MemorySizeError),
    /// What memory is like at the start.
    #[error("memory.fragmentation: {0}")]
    Fragmentation(#[from] FragmentationError),
}

/// Where lines lie.
pub fn lines(config: &MachineConfig) -> Lines {
    Lines::of_bytes(config.cache.line_bytes)
}

/// Which repeats the front may leave out.
pub fn filter(config: &MachineConfig) -> Filter {
    let TlbConfig { first, .. } = &config.tlb;
    let levels = [config.tlb.fetch(), config.tlb.data()];
    let arrays = levels.into_iter().flat_map(|level| level.arrays.values());
    let caches = [config.cache.l1i.replacement, config.cache.l1d.replacement];
    let mut policies = arrays.map(|array| array.replacement).chain(caches);
    if policies.any(|policy| policy.retouch_changes()) {
        return Filter::Nothing;
    }
    match first {
        FirstLevel::Unified { .. } => Filter::Adjacent,
        FirstLevel::Split { .. } => Filter::BySide,
    }
}
