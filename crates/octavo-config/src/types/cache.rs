//! Data caches.

use octavo_hw::Replacement;
use serde::{Deserialize, Serialize};

use super::{PrefetchConfig, Ways};
use crate::written;

/// The caches: of each core a first level for instructions, one for data and a second level of
/// both; one last level and the memory for all cores.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheConfigs {
    /// Bytes of a line, a power of two.
    #[serde(deserialize_with = "written::bytes::deserialize")]
    pub line_bytes: u64,
    /// Total latency of an access that misses all caches, in cycles.
    pub memory_latency_cycles: u32,
    /// Cycles between two lines that programs outside the machine fill into the last level, such as other guests of
    /// its host; 0 if there are none. Time passes only where cores execute instructions.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub others_fill_every_cycles: u32,
    /// The first level for instructions.
    pub l1i: CacheLevel,
    /// The first level for data.
    pub l1d: CacheLevel,
    /// The second level.
    pub l2: CacheLevel,
    /// The last level.
    pub llc: CacheLevel,
}

fn is_zero(cycles: &u32) -> bool {
    *cycles == 0
}

/// One cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheLevel {
    /// Its capacity: whole lines.
    #[serde(with = "written::bytes")]
    pub bytes: u64,
    /// Lines of a set.
    pub ways: Ways,
    /// Total latency of a hit here, from the core, in cycles.
    pub latency_cycles: u32,
    /// Which line of a full set is evicted.
    #[serde(with = "written::replacement")]
    pub replacement: Replacement,
    /// Its prefetchers; there are none by default. Only `l1d` and `l2` have prefetchers.
    #[serde(default, skip_serializing_if = "PrefetchConfig::is_empty")]
    pub prefetch: PrefetchConfig,
}
