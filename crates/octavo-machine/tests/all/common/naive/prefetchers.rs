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
        let stride = stride.map(|of| NaiveStride {
            entries: of.entries,
            confirmations: of.confirmations,
            distance: of.distance,
            degree: of.degree,
            bounds: bounds(of.page, of.cross_pages),
        });
        let streamer = streamer.map(|of| NaiveStreamer {
            streams: of.streams,
            confirmations: of.confirmations,
            distance: of.distance,
            degree: of.degree,
            bounds: bounds(of.page, of.cross_pages),
        });
        let region = region.map(|of| NaiveRegion {
            entries: of.entries,
            confirmations: of.confirmations,
            visits: of.visits,
            before: of.before,
            after: of.after,
            degree: of.degree,
            bounds: bounds(of.page, of.cross_pages),
        });
        caches.prefetch_into(level, NaivePrefetchers::new(stride, streamer, region));
    }
    !machine.cache.l1d.prefetch.is_empty() || !machine.cache.l2.prefetch.is_empty()
}
