//! What a machine is like, resolved: nothing is asked for twice.

use octavo_hw::{
    CacheError, GeometryError, PrivateConfig, SharedConfig, WalkCacheConfig, WalkCacheError,
};
use octavo_os::frames::MemorySizeError;

use crate::front::{Filter, Lines};
use crate::tlb::ArrayConfig;

/// A machine without its operating system.
#[derive(Clone, PartialEq, Debug)]
pub struct MachineConfig {
    /// How many cores there are, at least one.
    pub cores: usize,
    /// Four or five.
    pub page_table_levels: u8,
    /// Base frames of physical memory.
    pub memory_frames: u64,
    /// The first-level TLB for instructions; for both where [`MachineConfig::l1d`] is none.
    pub l1i: Vec<ArrayConfig>,
    /// The first-level TLB for data.
    pub l1d: Option<Vec<ArrayConfig>>,
    /// The second-level TLB, if there is one.
    pub l2: Vec<ArrayConfig>,
    /// What a hit there costs.
    pub l2_hit_latency_cycles: u32,
    /// The page-walk caches.
    pub walk_caches: Vec<WalkCacheConfig>,
    /// The caches of a core.
    pub private: PrivateConfig,
    /// What cores share.
    pub shared: SharedConfig,
}

/// A machine that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// A cache.
    #[error("cache.{0}")]
    Cache(#[from] CacheError),
    /// A TLB.
    #[error("tlb.{level}: {error}")]
    Tlb {
        /// `l1i`, `l1d` or `l2`.
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

impl MachineConfig {
    /// Where lines lie.
    pub fn lines(&self) -> Lines {
        Lines::of_bytes(self.shared.llc.line_bytes)
    }

    /// Which repeats the front may leave out.
    pub fn filter(&self) -> Filter {
        let arrays = self.l1i.iter().chain(self.l1d.iter().flatten());
        let caches = [self.private.l1i.replacement, self.private.l1d.replacement];
        let mut policies = arrays.map(|array| array.replacement).chain(caches);
        if policies.any(|policy| policy.retouch_changes()) {
            Filter::Nothing
        } else if self.l1d.is_none() {
            Filter::Adjacent
        } else {
            Filter::BySide
        }
    }
}
