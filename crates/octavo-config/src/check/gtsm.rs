//! Validation of the GTSM walker settings.

use super::check_range;
use crate::error::InvalidValue;
use crate::types::GtsmHardware;

/// The most entries of a fully associative cache of a walker.
const MAX_ENTRIES: u64 = 65_536;

pub fn check(gtsm: &GtsmHardware) -> Result<(), InvalidValue> {
    let GtsmHardware { walk_cache_entries, bitmap_entries } = *gtsm;
    check_range("gtsm.walk_cache_entries", walk_cache_entries, 0, MAX_ENTRIES)?;
    check_range("gtsm.bitmap_entries", bitmap_entries, 1, MAX_ENTRIES)
}
