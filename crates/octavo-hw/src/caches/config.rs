//! What caches are like.

use super::level::Level;
use crate::{Geometry, GeometryError, Replacement, SetArray};

/// One cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CacheConfig {
    /// How much it holds: a whole number of sets of `ways` lines, which need not be a power of two.
    pub bytes: u64,
    /// Lines of a set.
    pub ways: u64,
    /// Bytes of a line, a power of two, the same for all caches of a machine.
    pub line_bytes: u64,
    /// What a hit here costs in all, from the core's side, in cycles.
    pub latency_cycles: u32,
    /// Which line of a full set gives way.
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
    /// Where page-table entries are read and written.
    pub pte_entry: PteEntry,
}

/// Where the accesses of page walks enter the caches.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PteEntry {
    /// In the first level for data, as loads do.
    L1d,
    /// In the second level; the first is neither asked nor filled.
    L2,
}

/// What the cores share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedConfig {
    /// The last level.
    pub llc: CacheConfig,
    /// What an access costs in all that no cache serves, in cycles.
    pub memory_latency_cycles: u32,
}

/// A cache that cannot be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CacheError {
    /// Of sets, ways and bytes.
    #[error("{cache}: {error}")]
    Geometry {
        /// `l1i`, `l1d`, `l2` or `llc`.
        cache: &'static str,
        /// What is wrong with it, in lines as entries.
        error: GeometryError,
    },
    /// A line that is no power of two.
    #[error("{cache}.line_bytes = {bytes}: give a power of two from 8 to 4096, such as 64")]
    LineBytes {
        /// `l1i`, `l1d`, `l2` or `llc`.
        cache: &'static str,
        /// As asked for.
        bytes: u64,
    },
    /// A size that is no whole number of lines.
    #[error("{cache}.bytes = {bytes}: give a multiple of {line_bytes} (line_bytes)")]
    Ragged {
        /// `l1i`, `l1d`, `l2` or `llc`.
        cache: &'static str,
        /// As asked for.
        bytes: u64,
        /// The bytes of its lines.
        line_bytes: u64,
    },
    /// Lines of different sizes.
    #[error(
        "{cache}.line_bytes = {bytes}: give {llc_bytes}, as llc.line_bytes has; lines are of one size"
    )]
    MixedLines {
        /// `l1i`, `l1d` or `l2`.
        cache: &'static str,
        /// As asked for.
        bytes: u64,
        /// The bytes of the last level's lines.
        llc_bytes: u64,
    },
}

impl CacheConfig {
    /// The bytes that the state of such a data cache takes, at most; none if there can be no such cache.
    pub fn most_bytes(&self) -> u64 {
        self.geometry("").map_or(0, |geometry| {
            let sets = SetArray::<bool>::most_bytes(geometry);
            Level::rows(geometry, self.replacement)
                .map_or(sets, |length| (4 * geometry.sets() * length).next_multiple_of(64) as u64)
        })
    }

    /// The lines as sets and ways, if there can be such a cache; `cache` is its name in errors.
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
