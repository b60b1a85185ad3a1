//! Page-walk caches: upper levels of page tables, found by earlier walks.
//!
//! Guvenilir and Patt (ISCA 2020, section II.A) call them MMU caches. In the taxonomy of Barr, Cox and Rixner
//! ("Translation caching: skip, don't walk (the page table)", ISCA 2010, section 3) they are translation
//! caches split by level: an entry is found by exactly the address bits that index all levels down to its
//! own.

mod config;

use octavo_types::{AddrRange, Instructions, VirtAddr};

pub use config::{WalkCacheConfig, WalkCacheError};

use crate::{Asid, SetArray};

/// Counters of the cache of one level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkCacheCounters {
    /// Look-ups that hit; the walk continues from there.
    pub hits: u64,
    /// Look-ups that missed.
    pub misses: u64,
}

impl WalkCacheCounters {
    /// The number of look-ups.
    pub const fn accesses(&self) -> u64 {
        self.hits + self.misses
    }
}

/// The cache of one level.
#[derive(Clone, Debug)]
struct Level<V> {
    level: u8,
    reach_log2: u8,
    entries: SetArray<V>,
    counters: WalkCacheCounters,
}

impl<V: Copy + Default> Level<V> {
    #[inline(always)]
    fn place(&self, asid: Asid, addr: VirtAddr) -> (usize, u64) {
        let number = addr.raw() >> self.reach_log2;
        (self.entries.geometry().set_of(number), asid.tag(number))
    }

    /// Looks an address up. A hit returns the level and the payload.
    #[inline(always)]
    fn find(&mut self, asid: Asid, addr: VirtAddr) -> Option<(u8, V)> {
        let (set, key) = self.place(asid, addr);
        let found = self.entries.look_up(set, key).copied();
        self.counters.hits += u64::from(found.is_some());
        self.counters.misses += u64::from(found.is_none());
        found.map(|value| (self.level, value))
    }
}

/// The page-walk caches of a core: a small array for each of some page-table levels, with a payload per
/// entry, such as the frame of the next table.
///
/// A look-up starts at the deepest level and moves up only on a miss, so that each level is looked up by
/// exactly the misses of the one below. (Hardware looks up all levels at once; the outcome is the same, and
/// the use of an upper level when a lower one hits is unspecified.)
#[derive(Clone, Debug)]
pub struct WalkCaches<V> {
    /// The deepest level first.
    levels: Vec<Level<V>>,
}

impl<V: Copy + Default> WalkCaches<V> {
    /// Empty caches, one for each of `configs`, in any order.
    pub fn new(
        configs: &[WalkCacheConfig],
        instructions: Instructions,
    ) -> Result<Self, WalkCacheError> {
        let mut configs = configs.to_vec();
        configs.sort_by_key(|config| config.level);
        config::check(&configs)?;
        let level = |config: &WalkCacheConfig| {
            Ok(Level {
                level: config.level,
                reach_log2: config.reach_log2,
                entries: SetArray::new(config.geometry()?, config.replacement, instructions),
                counters: WalkCacheCounters::default(),
            })
        };
        Ok(WalkCaches { levels: configs.iter().map(level).collect::<Result<_, _>>()? })
    }

    /// The deepest entry for an address: its level, and the payload of [`WalkCaches::fill`]. The walk
    /// continues one level below it.
    #[inline(always)]
    pub fn deepest(&mut self, asid: Asid, addr: VirtAddr) -> Option<(u8, V)> {
        self.levels.iter_mut().find_map(|level| level.find(asid, addr))
    }

    /// As [`WalkCaches::deepest`], using only the caches from `level` upwards.
    pub fn deepest_from(&mut self, asid: Asid, addr: VirtAddr, level: u8) -> Option<(u8, V)> {
        let from = self.levels.partition_point(|cache| cache.level < level);
        (from..self.levels.len()).find_map(|at| self.levels[at].find(asid, addr))
    }

    /// The entry of one level for an address; `None` if the level has no cache.
    pub fn at(&mut self, asid: Asid, addr: VirtAddr, level: u8) -> Option<V> {
        let cache = self.levels.iter_mut().find(|cache| cache.level == level)?;
        cache.find(asid, addr).map(|(_, value)| value)
    }

    /// Fills an entry of this level that points to a table, not a page. Does nothing if the level has no
    /// cache.
    #[inline]
    pub fn fill(&mut self, asid: Asid, addr: VirtAddr, level: u8, value: V) {
        if let Some(cache) = self.levels.iter_mut().find(|cache| cache.level == level) {
            let (set, key) = cache.place(asid, addr);
            cache.entries.insert(set, key, value);
        }
    }

    /// Removes all entries of an address space that cover any address of a range, and returns their number.
    pub fn invalidate(&mut self, asid: Asid, range: AddrRange) -> usize {
        if range.is_empty() {
            return 0;
        }
        let last = range.end().raw() - 1;
        let in_level = |level: &mut Level<V>| {
            let first = asid.tag(range.start().raw() >> level.reach_log2);
            let keys = first..=asid.tag(last >> level.reach_log2);
            level.entries.invalidate_if(|key, _| keys.contains(&key))
        };
        self.levels.iter_mut().map(in_level).sum()
    }

    /// Removes all entries, as [`SetArray::clear`].
    pub fn clear(&mut self) {
        for level in &mut self.levels {
            level.entries.clear();
        }
    }

    /// The counters of each level, deepest first.
    pub fn counters(&self) -> impl Iterator<Item = (u8, WalkCacheCounters)> {
        self.levels.iter().map(|level| (level.level, level.counters))
    }
}
