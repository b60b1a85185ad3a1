//! Page-walk caches: what walks found in page tables above the leaves.
//!
//! The paper calls them MMU caches (Guvenilir and Patt, ISCA 2020, section II.A); of the kinds that
//! Barr, Cox and Rixner tell apart ("Translation caching: skip, don't walk (the page table)", ISCA
//! 2010, section 3), these are translation caches split by level: an entry is found by the bits of
//! the virtual address that index all levels down to its own, and by no more and no fewer.

mod config;

use octavo_types::{AddrRange, Instructions, VirtAddr};

pub use config::{WalkCacheConfig, WalkCacheError};

use crate::{Asid, SetArray};

/// What the cache of one level counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct WalkCacheCounters {
    /// Look-ups that found their entry: a walk went on from there.
    pub hits: u64,
    /// Look-ups that did not.
    pub misses: u64,
}

impl WalkCacheCounters {
    /// All look-ups.
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

    /// Looks an address up, and says of which level it is.
    #[inline(always)]
    fn find(&mut self, asid: Asid, addr: VirtAddr) -> Option<(u8, V)> {
        let (set, key) = self.place(asid, addr);
        let found = self.entries.look_up(set, key).copied();
        self.counters.hits += u64::from(found.is_some());
        self.counters.misses += u64::from(found.is_none());
        found.map(|value| (self.level, value))
    }
}

/// The page-walk caches of a core: a small array for each of some levels of the page table, with a
/// payload for each entry, such as the frame of the table that it leads to.
///
/// A look-up asks the deepest level first, and those above it only as long as nothing is found, so
/// that each level is looked up by exactly the misses of the one below. (Hardware asks all at once; what
/// an entry is used for is then the same, and what is used of an upper level when a lower one hits
/// nobody says.)
#[derive(Clone, Debug)]
pub struct WalkCaches<V> {
    /// The deepest level first.
    levels: Vec<Level<V>>,
}

impl<V: Copy + Default> WalkCaches<V> {
    /// Empty caches: one for each of `configs`, in any order.
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

    /// The deepest entry for an address: its level, and what [`WalkCaches::fill`] put there. The walk
    /// goes on one level below it.
    #[inline(always)]
    pub fn deepest(&mut self, asid: Asid, addr: VirtAddr) -> Option<(u8, V)> {
        self.levels.iter_mut().find_map(|level| level.find(asid, addr))
    }

    /// As [`WalkCaches::deepest`], of the caches of a level and those above it alone.
    pub fn deepest_from(&mut self, asid: Asid, addr: VirtAddr, level: u8) -> Option<(u8, V)> {
        let from = self.levels.partition_point(|of| of.level < level);
        (from..self.levels.len()).find_map(|at| self.levels[at].find(asid, addr))
    }

    /// The entry of one level for an address; none where no cache is for the level.
    pub fn at(&mut self, asid: Asid, addr: VirtAddr, level: u8) -> Option<V> {
        let of = self.levels.iter_mut().find(|of| of.level == level)?;
        of.find(asid, addr).map(|(_, value)| value)
    }

    /// A walk found an entry of this level that leads to a table, not to a page. Where no cache is for
    /// the level, nothing happens.
    #[inline]
    pub fn fill(&mut self, asid: Asid, addr: VirtAddr, level: u8, value: V) {
        if let Some(level) = self.levels.iter_mut().find(|held| held.level == level) {
            let (set, key) = level.place(asid, addr);
            level.entries.insert(set, key, value);
        }
    }

    /// Takes out all entries of an address space that any of these addresses is found by, and returns
    /// how many.
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

    /// Takes out all entries of an address space, and returns how many.
    pub fn invalidate_space(&mut self, asid: Asid) -> usize {
        let of = |level: &mut Level<V>| level.entries.invalidate_if(|key, _| Asid::of(key) == asid);
        self.levels.iter_mut().map(of).sum()
    }

    /// Takes all out, as [`SetArray::clear`].
    pub fn clear(&mut self) {
        for level in &mut self.levels {
            level.entries.clear();
        }
    }

    /// What each level counted, the deepest first.
    pub fn counters(&self) -> impl Iterator<Item = (u8, WalkCacheCounters)> {
        self.levels.iter().map(|level| (level.level, level.counters))
    }

    /// Sets all counters to 0; entries stay.
    pub fn reset_counters(&mut self) {
        for level in &mut self.levels {
            level.counters = WalkCacheCounters::default();
        }
    }
}
