//! What virtual caches are like.

use crate::caches::{CacheConfig, CacheError};

/// The virtual caches of a core: two levels, each split.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct VirtualCacheConfig {
    /// The first level for instructions, for data. What a hit costs is nobody's affair here.
    pub l1: [CacheConfig; 2],
    /// The second level for instructions, for data.
    pub l2: [CacheConfig; 2],
}

/// Virtual caches that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VirtualCacheError {
    /// One of them.
    #[error("{0}")]
    Cache(#[from] CacheError),
    /// Lines of the first level that are larger than those behind it.
    #[error(
        "{cache}.line_bytes = {bytes}: give at least {l1_bytes}: a line of the second level holds \
         whole lines of the first"
    )]
    SmallLines {
        /// `l2i` or `l2d`.
        cache: &'static str,
        /// As asked for.
        bytes: u64,
        /// The bytes of a line of the first level.
        l1_bytes: u64,
    },
}
