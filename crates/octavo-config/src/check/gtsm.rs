//! What walkers must be like where pages have gaps.

use crate::error::WrongValue;
use crate::types::GtsmHardware;

/// The most entries of a fully associative cache of a walker.
const MAX_ENTRIES: u64 = 65_536;

pub fn check(gtsm: &GtsmHardware) -> Result<(), WrongValue> {
    let GtsmHardware { walk_cache_entries, bitmap_entries } = *gtsm;
    for (key, least, entries) in
        [("walk_cache_entries", 0, walk_cache_entries), ("bitmap_entries", 1, bitmap_entries)]
    {
        if !(least..=MAX_ENTRIES).contains(&entries) {
            let advice = format!("give a whole number from {least} to {MAX_ENTRIES}");
            return Err(WrongValue::new(format!("gtsm.{key}"), entries, advice));
        }
    }
    Ok(())
}
