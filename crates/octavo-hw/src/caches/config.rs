//! The configuration of caches.

use super::prefetch::PrefetchersConfig;
use crate::{Geometry, GeometryError, Replacement, SetArray};

/// One cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// Capacity: a whole number of sets of `ways` lines, not necessarily a power of two.
    pub bytes: u64,
    /// Ways per set.
    pub ways: u64,
    /// Bytes per line, a power of two, equal for all caches of a machine.
    pub line_bytes: u64,
    /// Total latency of a hit here, from the core, in cycles.
    pub latency_cycles: u32,
    /// The replacement policy.
    pub replacement: Replacement,
}

/// The caches of one core.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrivateConfig {
    /// The first level for instructions.
    pub l1i: CacheConfig,
    /// The first level for data.
    pub l1d: CacheConfig,
    /// The second level.
    pub l2: CacheConfig,
    /// Where page-table entries enter the caches.
    pub pte_entry: PteEntry,
    /// The prefetchers.
    pub prefetchers: PrefetchersConfig,
}

/// Where the accesses of page walks enter the caches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PteEntry {
    /// In the first level for data, as loads do.
    L1d,
    /// In the second level, bypassing the first.
    L2,
}

/// The cache shared by the cores, and the memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SharedConfig {
    /// The last level.
    pub llc: CacheConfig,
    /// Total latency of an access that misses all caches, in cycles.
    pub memory_latency_cycles: u32,
    /// Cycles between two lines that programs outside the machine fill into the last level; 0 if there are none.
    pub others_fill_every_cycles: u32,
    /// Slower parts of memory, by address. Each ends where the next one begins.
    pub tiers: Vec<MemoryTierConfig>,
}

/// A slower part of memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryTierConfig {
    /// Its first line.
    pub first_line: u64,
    /// Cycles added to the latency of each read.
    pub added_latency_cycles: u32,
}

/// An invalid cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// An invalid combination of sets, ways and bytes.
    #[error("{cache}: {error}")]
    Geometry {
        /// `l1i`, `l1d`, `l2` or `llc`.
        cache: &'static str,
        /// The error, with lines as entries.
        error: GeometryError,
    },
    /// A line size that is not a power of two.
    #[error("{cache}.line_bytes = {bytes}: give a power of two from 8 to 4096, such as 64")]
    LineBytes {
        /// `l1i`, `l1d`, `l2` or `llc`.
        cache: &'static str,
        /// As given by the user.
        bytes: u64,
    },
    /// A capacity that is not a multiple of the line size.
    #[error("{cache}.bytes = {bytes}: give a multiple of {line_bytes} (line_bytes)")]
    Ragged {
        /// `l1i`, `l1d`, `l2` or `llc`.
        cache: &'static str,
        /// As given by the user.
        bytes: u64,
        /// Bytes per line.
        line_bytes: u64,
    },
    /// Lines of different sizes.
    #[error(
        "{cache}.line_bytes = {bytes}: give {llc_bytes}, as llc.line_bytes has; lines are of one size"
    )]
    MixedLines {
        /// `l1i`, `l1d` or `l2`.
        cache: &'static str,
        /// As given by the user.
        bytes: u64,
        /// Bytes per line of the last level.
        llc_bytes: u64,
    },
}

impl CacheConfig {
    /// Upper bound on the bytes of state of such a data cache; 0 if the configuration is invalid.
    pub fn most_bytes(&self) -> u64 {
        self.geometry("").map_or(0, |geometry| {
            let sets = SetArray::<bool>::most_bytes(geometry);
            row_length(geometry, self.replacement)
                .map_or(sets, |length| (4 * geometry.sets() * length).next_multiple_of(64) as u64)
        })
    }

    /// The lines as sets and ways, if valid; `cache` is its name in errors.
    pub fn geometry(&self, cache: &'static str) -> Result<Geometry, CacheError> {
        let CacheConfig { bytes, ways, line_bytes, .. } = *self;
        if !line_bytes.is_power_of_two() || !(8..=4096).contains(&line_bytes) {
            return Err(CacheError::LineBytes { cache, bytes: line_bytes });
        }
        if !bytes.is_multiple_of(line_bytes) {
            return Err(CacheError::Ragged { cache, bytes, line_bytes });
        }
        Geometry::of_entries(bytes / line_bytes, ways)
            .map_err(|error| CacheError::Geometry { cache, error })
    }
}

/// The row length of a cache, if its sets can be rows.
pub(super) fn row_length(geometry: Geometry, replacement: Replacement) -> Option<usize> {
    let are_rows = replacement == Replacement::Lru && geometry.sets().is_power_of_two();
    match geometry.ways() {
        ..=4 if are_rows => Some(4),
        ..=8 if are_rows => Some(8),
        ..=16 if are_rows => Some(16),
        _ => None,
    }
}
