//! Prefetchers of data caches.

use octavo_hw::{PrefetchBounds, RegionConfig, StreamerConfig, StrideConfig};
use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use crate::written;

/// The prefetchers of a cache: `[cache.l1d.prefetch]` and `[cache.l2.prefetch]`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PrefetchConfig {
    /// By the stride of each instruction.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stride: Option<StridePrefetcher>,
    /// Ahead of ascending and descending lines of each page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streamer: Option<StreamPrefetcher>,
    /// Of the lines around an access that have followed the accesses of its instruction before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<RegionPrefetcher>,
}

/// A prefetcher by the stride of each instruction, in lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StridePrefetcher {
    /// Instructions followed, by the low bits of their address: 1 to 65536.
    pub entries: u32,
    /// Equal strides in succession before it prefetches: 1 to 16.
    pub confirmations: u32,
    /// How many strides ahead the first prefetched line is: 1 to 1024.
    pub distance: u32,
    /// Lines prefetched by one access: up to 64. 0 turns the prefetcher off.
    pub degree: u32,
    /// Bytes of the aligned block of physical memory that prefetches stay in.
    #[serde(default = "base_page", with = "written::page_size")]
    pub page: PageSize,
    /// Whether prefetches may leave it.
    #[serde(default)]
    pub cross_pages: bool,
}

/// A prefetcher ahead of ascending and descending lines of each page; also a next-line prefetcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StreamPrefetcher {
    /// Pages followed: 1 to 1024.
    pub streams: u32,
    /// Steps in one direction in succession before it prefetches: up to 16. With 0 the first access to a page
    /// prefetches the next line.
    pub confirmations: u32,
    /// How many lines ahead of the access it prefetches at most: 1 to 1024.
    pub distance: u32,
    /// Lines prefetched by one access at most: up to 64. 0 turns the prefetcher off.
    pub degree: u32,
    /// Bytes of the aligned block of physical memory that is followed as a page, and that prefetches stay in.
    #[serde(default = "base_page", with = "written::page_size")]
    pub page: PageSize,
    /// Whether prefetches may leave it.
    #[serde(default)]
    pub cross_pages: bool,
}

/// A prefetcher of the lines around an access that have followed the accesses of its instruction before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RegionPrefetcher {
    /// Instructions followed, by the low bits of their address: 1 to 65536.
    pub entries: u32,
    /// Visits in succession in which a line at the same distance was accessed before it is prefetched: 1 to 16.
    pub confirmations: u32,
    /// Visits under way: 1 to 1024.
    pub visits: u32,
    /// Lines that a visit covers before the one it began with: up to 31.
    pub before: u32,
    /// Lines that it covers behind that one: up to 31, and not 0 if `before` is.
    pub after: u32,
    /// Lines prefetched by one access at most: up to 64. 0 turns the prefetcher off.
    pub degree: u32,
    /// Bytes of the aligned block of physical memory that visits and prefetches stay in.
    #[serde(default = "base_page", with = "written::page_size")]
    pub page: PageSize,
    /// Whether prefetches may leave it.
    #[serde(default)]
    pub cross_pages: bool,
}

fn base_page() -> PageSize {
    PageSize::BASE
}

impl PrefetchConfig {
    /// Whether there are no prefetchers.
    pub fn is_empty(&self) -> bool {
        *self == PrefetchConfig::default()
    }

    /// The prefetchers that are not turned off.
    pub(crate) fn prefetchers(&self) -> octavo_hw::LevelPrefetchers {
        octavo_hw::LevelPrefetchers {
            stride: self.stride.filter(|stride| stride.degree > 0).map(|stride| StrideConfig {
                entries: stride.entries,
                confirmations: stride.confirmations,
                distance: stride.distance,
                degree: stride.degree,
                bounds: bounds(stride.page, stride.cross_pages),
            }),
            streamer: self.streamer.filter(|streamer| streamer.degree > 0).map(|streamer| {
                StreamerConfig {
                    streams: streamer.streams,
                    confirmations: streamer.confirmations,
                    distance: streamer.distance,
                    degree: streamer.degree,
                    bounds: bounds(streamer.page, streamer.cross_pages),
                }
            }),
            region: self.region.filter(|region| region.degree > 0).map(|region| RegionConfig {
                entries: region.entries,
                confirmations: region.confirmations,
                visits: region.visits,
                before: region.before,
                after: region.after,
                degree: region.degree,
                bounds: bounds(region.page, region.cross_pages),
            }),
        }
    }
}

fn bounds(page: PageSize, cross_pages: bool) -> PrefetchBounds {
    PrefetchBounds { page_bytes: page.bytes(), cross_pages }
}
