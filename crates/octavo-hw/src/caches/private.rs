//! The caches of one core.

use octavo_types::Instructions;

use super::config::{CacheError, PrivateConfig, PteEntry};
use super::level::{CacheCounters, Level};
use super::shared::SharedCache;
use super::{Served, ServedBy, SideNumber};

const L1I: SideNumber = 0;
const L1D: SideNumber = 1;

/// Counters of the caches of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrivateCounters {
    /// The first level for instructions.
    pub l1i: CacheCounters,
    /// The first level for data.
    pub l1d: CacheCounters,
    /// The second level.
    pub l2: CacheCounters,
}

/// The caches of one core. Lines are numbers of physical lines: addresses divided by the bytes of a line.
#[derive(Clone, Debug)]
pub struct PrivateCaches {
    /// The first levels for instructions and data.
    l1: [Level; 2],
    l2: Level,
    pte_entry: PteEntry,
}

impl PrivateCaches {
    /// Empty caches in front of `shared`, whose lines must be of the same size.
    pub fn new(
        config: &PrivateConfig,
        shared: &SharedCache,
        instructions: Instructions,
    ) -> Result<Self, CacheError> {
        let llc_bytes = shared.line_bytes();
        let level = |cache, config: &super::CacheConfig| {
            let level = Level::new(config, cache, instructions)?;
            if config.line_bytes != llc_bytes {
                let bytes = config.line_bytes;
                return Err(CacheError::MixedLines { cache, bytes, llc_bytes });
            }
            Ok(level)
        };
        Ok(PrivateCaches {
            l1: [level("l1i", &config.l1i)?, level("l1d", &config.l1d)?],
            l2: level("l2", &config.l2)?,
            pte_entry: config.pte_entry,
        })
    }

    /// Fetches an instruction.
    #[inline(always)]
    pub fn fetch(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.access_l1(shared, L1I, line, false)
    }

    /// Loads data.
    #[inline(always)]
    pub fn load(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.access_l1(shared, L1D, line, false)
    }

    /// Stores data. (A modify is a load and a store.)
    #[inline(always)]
    pub fn store(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.access_l1(shared, L1D, line, true)
    }

    /// Reads a page-table entry for a walk, entering at [`PrivateConfig::pte_entry`].
    #[inline(always)]
    pub fn read_pte(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.pte(shared, line, false)
    }

    /// Writes a page-table entry (accessed or dirty bit) for a walk, entering at the same place.
    #[inline(always)]
    pub fn write_pte(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.pte(shared, line, true)
    }

    /// Accesses the first level of a side, with `repeats` further hits, and returns whether the first hit.
    /// After a miss the caller must call [`Caches::serve_miss`](super::Caches::serve_miss).
    #[inline(always)]
    pub fn hits(&mut self, side: SideNumber, line: u64, is_write: bool, repeats: u32) -> bool {
        self.l1[side].hits(line, is_write, repeats)
    }

    /// Serves a miss of a side's [first level](Self::hits).
    pub fn serve_miss(
        &mut self,
        shared: &mut SharedCache,
        side: SideNumber,
        line: u64,
        is_write: bool,
    ) -> Served {
        let access_l1 = &mut self.l1[side];
        access_l1.counters.misses += 1;
        serve_miss(access_l1, &mut self.l2, shared, line, is_write)
    }

    /// The counters.
    pub fn counters(&self) -> PrivateCounters {
        let [l1i, l1d] = &self.l1;
        PrivateCounters { l1i: l1i.counters, l1d: l1d.counters, l2: self.l2.counters }
    }

    /// Sets all counters to 0; lines stay.
    pub fn reset_counters(&mut self) {
        for level in self.l1.iter_mut().chain([&mut self.l2]) {
            level.counters = CacheCounters::default();
        }
    }

    /// Accesses the first level of a side and, on a miss, the next levels.
    #[inline(always)]
    fn access_l1(
        &mut self,
        shared: &mut SharedCache,
        side: SideNumber,
        line: u64,
        is_write: bool,
    ) -> Served {
        if self.hits(side, line, is_write, 0) {
            return Served { by: ServedBy::L1, latency_cycles: self.l1[side].latency_cycles };
        }
        self.serve_miss(shared, side, line, is_write)
    }

    #[inline(always)]
    fn pte(&mut self, shared: &mut SharedCache, line: u64, is_write: bool) -> Served {
        match self.pte_entry {
            PteEntry::L1d => self.access_l1(shared, L1D, line, is_write),
            PteEntry::L2 => access_l2(&mut self.l2, shared, line, is_write),
        }
    }
}

/// Reads and fills a line that missed the first level.
#[inline(never)]
fn serve_miss(
    access_l1: &mut Level,
    l2: &mut Level,
    shared: &mut SharedCache,
    line: u64,
    is_write: bool,
) -> Served {
    let served = access_l2(l2, shared, line, false);
    if let Some(dirty) = access_l1.fill(line, is_write)
        && let Some(dirty) = l2.write_back(dirty)
    {
        shared.write_back(dirty);
    }
    served
}

/// Accesses the second level.
fn access_l2(l2: &mut Level, shared: &mut SharedCache, line: u64, is_write: bool) -> Served {
    if l2.access(line, is_write) {
        return Served { by: ServedBy::L2, latency_cycles: l2.latency_cycles };
    }
    let served = shared.read(line);
    if let Some(dirty) = l2.fill(line, is_write) {
        shared.write_back(dirty);
    }
    served
}
