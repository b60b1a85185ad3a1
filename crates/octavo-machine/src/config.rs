//! What the engine makes of a machine's description.

use octavo_config::{FirstLevel, MachineConfig, TlbConfig};
use octavo_hw::{CacheError, GeometryError, WalkCacheError};
use octavo_os::frames::MemorySizeError;

use crate::front::{FetchSets, Filter, Lines};

/// A machine that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
}

/// Where lines lie.
pub fn lines(config: &MachineConfig) -> Lines {
    Lines::of_bytes(config.cache.line_bytes)
}

/// How the front sorts fetched lines.
pub fn fetch_sets(config: &MachineConfig) -> FetchSets {
    let l1i = &config.cache.l1i;
    let lines = l1i.bytes / config.cache.line_bytes;
    FetchSets::new((lines / l1i.ways.of(lines)).max(1), self::lines(config))
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
