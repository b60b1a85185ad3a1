//! Prefetchers of presets, and settings that turn them off.

use crate::own_table::resolve;
use octavo_hw::{LevelPrefetchers, PrefetchersConfig};

fn prefetchers(settings: &[&str]) -> PrefetchersConfig {
    resolve("zen5", settings).unwrap().config().prefetchers()
}

#[test]
fn degree_0_turns_one_prefetcher_off() {
    let all = prefetchers(&[]);
    let [l1d, l2] = all.levels;
    assert!(l1d.stride.is_some() && l1d.region.is_some() && l2.streamer.is_some());
    for (key, levels) in [
        ("l1d.prefetch.stride", [LevelPrefetchers { stride: None, ..l1d }, l2]),
        ("l1d.prefetch.region", [LevelPrefetchers { region: None, ..l1d }, l2]),
        ("l2.prefetch.streamer", [l1d, LevelPrefetchers { streamer: None, ..l2 }]),
    ] {
        let without = prefetchers(&[&format!("cache.{key}.degree=0")]);
        assert_eq!(without, PrefetchersConfig { levels, ..all }, "{key}");
    }
}
