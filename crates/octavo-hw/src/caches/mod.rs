//! Data caches by physical line number.
//!
//! Each core has private first levels for instructions and data, and a private second level for both
//! ([`PrivateCaches`]); the last level ([`SharedCache`]) and the memory are shared.
//!
//! - All are write-back and write-allocate. A miss fills every level on the path, so that levels are neither
//!   inclusive nor exclusive: an eviction from one leaves the others.
//! - An evicted dirty line is written back to the next level: it makes the line there dirty, without a use
//!   for the policy, or allocates an entry (without a read, since the whole line is written). A write-back is
//!   counted at its source, and is not an access at its destination.
//! - On a miss the outer levels are filled first, and each writes back its eviction before the next level is
//!   filled.
//! - The latency of a level is the total of a hit there, measured from the core, including the levels before.
//! - Cores are not coherent: a store leaves copies in other cores' caches, and in the instruction cache of its
//!   own core, unchanged.
//! - The second level may hold [lines of translations](TranslationLine), which are not lines of memory.
//! - [Prefetchers](LevelPrefetchers) of the first level for data and of the second are off unless configured.
//! - accesses = hits + misses at each level; the second level is accessed by exactly the misses of the first
//!   levels (and by page-table reads that enter there), the last level by the misses of the second; memory is
//!   read by the misses of the last level, and by prefetches that miss it.

mod config;
mod level;
mod prefetch;
mod private;
mod rows;
mod shared;
mod translations;

use octavo_types::Instructions;

pub use config::{
    CacheConfig, CacheError, MemoryTierConfig, PrivateConfig, PteEntry, SharedConfig,
};
pub use level::CacheCounters;
pub use prefetch::{
    LevelPrefetchers, Prefetch, PrefetchBounds, PrefetchCounters, PrefetchLevel, PrefetchersConfig,
    RegionConfig, StreamerConfig, StrideConfig,
};
pub use private::{DataAccess, PrivateCaches, PrivateCounters};
pub use shared::{MemoryCounters, MemoryTransfer, SharedCache};
pub use translations::{TranslationCounters, TranslationLine, TranslationWords};

/// The side of a pair of caches: 0 for instructions, 1 for data.
pub type SideNumber = usize;

/// The level that served an access.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ServedBy {
    /// The first level of its side.
    L1,
    /// The second level.
    L2,
    /// The last level.
    Llc,
    /// Memory.
    Memory,
}

/// The outcome of an access.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Served {
    /// The level that served it.
    pub by: ServedBy,
    /// The total latency.
    pub latency_cycles: u32,
}

/// The caches of a machine with one core.
#[derive(Clone, Debug)]
pub struct Caches {
    /// The private caches of the core.
    pub private: PrivateCaches,
    /// The shared cache and memory.
    pub shared: SharedCache,
}

impl Caches {
    /// Empty caches.
    pub fn new(
        private: &PrivateConfig,
        shared: &SharedConfig,
        instructions: Instructions,
    ) -> Result<Self, CacheError> {
        let shared = SharedCache::new(shared, instructions)?;
        let private = PrivateCaches::new(private, &shared, instructions)?;
        Ok(Caches { private, shared })
    }

    /// As [`PrivateCaches::fetch`].
    #[inline(always)]
    pub fn fetch(&mut self, line: u64) -> Served {
        self.private.fetch(&mut self.shared, line)
    }

    /// As [`PrivateCaches::serve_miss`].
    #[inline(always)]
    pub fn serve_miss(&mut self, side: SideNumber, line: u64, is_write: bool) -> Served {
        self.private.serve_miss(&mut self.shared, side, line, is_write)
    }

    /// As [`PrivateCaches::access_prefetching`].
    pub fn access_prefetching(&mut self, access: &DataAccess) -> Option<Served> {
        self.private.access_prefetching(&mut self.shared, access)
    }

    /// As [`PrivateCaches::load`].
    #[inline(always)]
    pub fn load(&mut self, line: u64) -> Served {
        self.private.load(&mut self.shared, line)
    }

    /// As [`PrivateCaches::store`].
    #[inline(always)]
    pub fn store(&mut self, line: u64) -> Served {
        self.private.store(&mut self.shared, line)
    }

    /// As [`PrivateCaches::read_pte`].
    #[inline(always)]
    pub fn read_pte(&mut self, line: u64) -> Served {
        self.private.read_pte(&mut self.shared, line)
    }

    /// As [`PrivateCaches::write_pte`].
    #[inline(always)]
    pub fn write_pte(&mut self, line: u64) -> Served {
        self.private.write_pte(&mut self.shared, line)
    }
}
