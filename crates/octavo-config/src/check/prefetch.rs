//! Validation of prefetchers.

use super::check_range;
use crate::error::InvalidValue;
use crate::types::PrefetchConfig;

const MAX_ENTRIES: u32 = 1 << 16;
const MAX_STREAMS: u32 = 1 << 10;
const MAX_VISITS: u32 = 1 << 10;
const MAX_AROUND: u32 = 31;
const MAX_CONFIRMATIONS: u32 = 16;
const MAX_DISTANCE: u32 = 1 << 10;
const MAX_DEGREE: u32 = 64;

/// Checks the prefetchers of a cache.
pub fn check(cache: &str, prefetch: &PrefetchConfig) -> Result<(), InvalidValue> {
    let key = format!("cache.{cache}.prefetch");
    if !matches!(cache, "l1d" | "l2") && !prefetch.is_empty() {
        let name = match prefetch {
            PrefetchConfig { stride: Some(_), .. } => "stride",
            PrefetchConfig { streamer: Some(_), .. } => "streamer",
            _ => "region",
        };
        let advice = "only cache.l1d and cache.l2 have prefetchers: omit it";
        return Err(InvalidValue::new(key, name, advice));
    }
    if let Some(stride) = &prefetch.stride {
        let key = format!("{key}.stride");
        check_range(&format!("{key}.entries"), stride.entries, 1, MAX_ENTRIES)?;
        check_range(&format!("{key}.confirmations"), stride.confirmations, 1, MAX_CONFIRMATIONS)?;
        check_range(&format!("{key}.distance"), stride.distance, 1, MAX_DISTANCE)?;
        check_range(&format!("{key}.degree"), stride.degree, 0, MAX_DEGREE)?;
    }
    if let Some(streamer) = &prefetch.streamer {
        let key = format!("{key}.streamer");
        check_range(&format!("{key}.streams"), streamer.streams, 1, MAX_STREAMS)?;
        check_range(&format!("{key}.confirmations"), streamer.confirmations, 0, MAX_CONFIRMATIONS)?;
        check_range(&format!("{key}.distance"), streamer.distance, 1, MAX_DISTANCE)?;
        check_range(&format!("{key}.degree"), streamer.degree, 0, MAX_DEGREE)?;
    }
    if let Some(region) = &prefetch.region {
        let key = format!("{key}.region");
        check_range(&format!("{key}.entries"), region.entries, 1, MAX_ENTRIES)?;
        check_range(&format!("{key}.confirmations"), region.confirmations, 1, MAX_CONFIRMATIONS)?;
        check_range(&format!("{key}.visits"), region.visits, 1, MAX_VISITS)?;
        check_range(&format!("{key}.before"), region.before, 0, MAX_AROUND)?;
        let least_after = u32::from(region.before == 0);
        check_range(&format!("{key}.after"), region.after, least_after, MAX_AROUND)?;
        check_range(&format!("{key}.degree"), region.degree, 0, MAX_DEGREE)?;
    }
    Ok(())
}
