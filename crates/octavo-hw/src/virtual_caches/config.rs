//! The configuration of virtual caches.

use crate::caches::{CacheConfig, CacheError};

/// The virtual caches of a core: two levels, each split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualCacheConfig {
    /// The first level for instructions and data. Latencies are ignored here.
    pub l1: [CacheConfig; 2],
    /// The second level for instructions and data.
    pub l2: [CacheConfig; 2],
}

/// Invalid virtual caches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VirtualCacheError {
    /// An invalid cache.
    #[error("{0}")]
    Cache(#[from] CacheError),
    /// First-level lines larger than second-level lines.
    #[error(
        "{cache}.line_bytes = {bytes}: give at least {l1_bytes}: a line of the second level holds \
         whole lines of the first"
    )]
    SmallLines {
        /// `l2i` or `l2d`.
        cache: &'static str,
        /// As given by the user.
        bytes: u64,
        /// Bytes per line of the first level.
        l1_bytes: u64,
    },
}
