//! Machines with pages of 2 MiB that have gaps: what the design of Gap-Tolerant Sequential Mapping (Du et al.,
//! HPCA 2015) has beside what all machines have.

use serde::{Deserialize, Serialize};

/// The walker of such a machine. Defaults follow Park et al. (ISCA 2020), section VII-D.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GtsmHardware {
    /// Entries of the walk caches of levels 2 and 3, fully associative, in place of those that the machine has of
    /// these levels; 0 leaves them as they are.
    pub walk_cache_entries: u64,
    /// Bitmaps of chunks that a walker keeps, fully associative, LRU: one at least.
    pub bitmap_entries: u64,
}

impl Default for GtsmHardware {
    /// "We increase the size of the L2 and L3 page walker caches to 32 entries for GTSM." That as many bitmaps
    /// are kept is assumed.
    fn default() -> Self {
        GtsmHardware { walk_cache_entries: 32, bitmap_entries: 32 }
    }
}
