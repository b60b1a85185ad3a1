//! `[gtsm]`: the settings of the walker.

use octavo_config::check::{IsLater, check_range};
use octavo_config::{DesignSettings, InvalidValue, MachineConfig};
use serde::{Deserialize, Serialize};

/// The caches of the walker. Defaults follow Park et al. (ISCA 2020), section VII-D.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GtsmSettings {
    /// Entries of the walk caches of levels 2 and 3, fully associative, in place of the machine's; 0 keeps the
    /// machine's.
    pub walk_cache_entries: u64,
    /// Bitmaps of chunks that a walker keeps, fully associative, LRU: one at least.
    pub bitmap_entries: u64,
}

impl Default for GtsmSettings {
    /// "We increase the size of the L2 and L3 page walker caches to 32 entries for GTSM." That as many bitmaps
    /// are kept is assumed.
    fn default() -> Self {
        GtsmSettings { walk_cache_entries: 32, bitmap_entries: 32 }
    }
}

/// The most entries of a fully associative cache of a walker.
const MAX_ENTRIES: u64 = 65_536;

impl DesignSettings for GtsmSettings {
    const TABLE: &'static str = "gtsm";

    fn check(&self, _: &MachineConfig, _: &IsLater<'_>) -> Result<(), InvalidValue> {
        let GtsmSettings { walk_cache_entries, bitmap_entries } = *self;
        check_range("gtsm.walk_cache_entries", walk_cache_entries, 0, MAX_ENTRIES)?;
        check_range("gtsm.bitmap_entries", bitmap_entries, 1, MAX_ENTRIES)
    }
}
