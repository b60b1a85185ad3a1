//! Data caches by physical line number.
//!
//! A first level for instructions and one for data and a second level of both are private to a core
//! ([`PrivateCaches`]); a last level ([`SharedCache`]) and the memory behind it are shared by all cores.
//!
//! - All are write-back and write-allocate. Whatever misses is filled at every level on the way, so
//!   the levels are neither inclusive nor exclusive: what one evicts stays in the others.
//! - A dirty line that is evicted is written back to the level behind: it makes the line there dirty,
//!   which is no use to the policy, or takes an entry for it (nothing has to be read: the whole line
//!   is written). A write-back is counted where it comes from, and is no access where it goes to.
//! - On a miss the outer levels are filled first, and each writes back what it evicts before the next
//!   one is filled.
//! - A level's latency is that of a hit there in all, as measured from the core: nothing is added for
//!   the levels before it.
//! - Cores are not kept coherent: a store leaves copies in other cores' caches, and in the own one
//!   for instructions, as they are.
//! - accesses = hits + misses at each level; the second level is accessed by exactly the misses of the
//!   first ones (and by page-table reads, where they enter there), the last level by those of the
//!   second, the memory is read by those of the last.

mod config;
mod level;
mod private;
mod rows;
mod shared;

use octavo_types::Instructions;

pub use config::{CacheConfig, CacheError, PrivateConfig, PteEntry, SharedConfig};
pub use level::CacheCounters;
pub use private::{PrivateCaches, PrivateCounters};
pub use shared::{MemoryCounters, SharedCache};

/// Which caches of a pair: 0 for those of instructions, 1 for those of data.
pub type SideNumber = usize;

/// Where a line was found.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ServedBy {
    /// In the first level that was asked: the one for instructions or the one for data.
    L1,
    /// In the second level.
    L2,
    /// In the last level.
    Llc,
    /// In none.
    Memory,
}

/// What an access found.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Served {
    /// Where the line was.
    pub by: ServedBy,
    /// What it cost, in all.
    pub latency_cycles: u32,
}

/// The caches of a machine with one core.
#[derive(Clone, Debug)]
pub struct Caches {
    /// Those of the core.
    pub private: PrivateCaches,
    /// What is behind them.
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

    /// As [`PrivateCaches::missed`].
    #[inline(always)]
    pub fn missed(&mut self, side: SideNumber, line: u64, is_write: bool) -> Served {
        self.private.missed(&mut self.shared, side, line, is_write)
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
