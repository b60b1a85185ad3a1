//! Prefetchers of a naive machine.

use octavo_config::{MachineConfig, PrefetchConfig};
use octavo_oracle::{
    NaiveBounds, NaiveCaches, NaivePrefetchers, NaiveRegion, NaiveStreamer, NaiveStride,
};
use octavo_types::PageSize;

use super::{L1D, L2};

/// Gives caches the prefetchers of a machine. Returns whether there are any.
pub fn add(machine: &MachineConfig, caches: &mut NaiveCaches) -> bool {
    let memory = machine.host.as_ref().map_or(&machine.memory, |host| &host.memory);
    let memory_lines = memory.bytes / machine.cache.line_bytes;
    let bounds = |page: PageSize, cross_pages| NaiveBounds {
        page_lines: page.bytes() / machine.cache.line_bytes,
        cross_pages,
        memory_lines,
    };
    for (level, cache) in [(L1D, &machine.cache.l1d), (L2, &machine.cache.l2)] {
        let PrefetchConfig { stride, streamer, region } = cache.prefetch;
        let stride = stride.map(|config| NaiveStride {
            entries: config.entries,
            confirmations: config.confirmations,
            distance: config.distance,
            degree: config.degree,
            bounds: bounds(config.page, config.cross_pages),
        });
        let streamer = streamer.map(|config| NaiveStreamer {
            streams: config.streams,
            confirmations: config.confirmations,
            distance: config.distance,
            degree: config.degree,
            bounds: bounds(config.page, config.cross_pages),
        });
        let region = region.map(|config| NaiveRegion {
            entries: config.entries,
            confirmations: config.confirmations,
            visits: config.visits,
            before: config.before,
            after: config.after,
            degree: config.degree,
            bounds: bounds(config.page, config.cross_pages),
        });
        caches.prefetch_into(level, NaivePrefetchers::new(stride, streamer, region));
    }
    !machine.cache.l1d.prefetch.is_empty() || !machine.cache.l2.prefetch.is_empty()
}
