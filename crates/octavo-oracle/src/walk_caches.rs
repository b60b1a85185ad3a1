//! Page-walk caches of x86-64, by the indexes that a walk uses.

use octavo_types::{AddrRange, VirtAddr};

use crate::{NaiveArray, NaiveReplacement};

/// An address space, and the indexes into the tables from level 5 down to the level of the cache.
type Path = (u16, Vec<u64>);

/// The cache of one level.
pub struct NaiveWalkCache<V> {
    level: u8,
    sets: u64,
    entries: NaiveArray<Path, V>,
    /// All look-ups.
    pub accesses: u64,
    /// Look-ups that hit.
    pub hits: u64,
}

impl<V: Clone> NaiveWalkCache<V> {
    /// The cache of a level, 2 to 5, of the page tables.
    pub fn new(level: u8, sets: usize, ways: usize, replacement: NaiveReplacement) -> Self {
        let entries = NaiveArray::new(sets, ways, replacement);
        NaiveWalkCache { level, sets: sets as u64, entries, accesses: 0, hits: 0 }
    }

    /// Its level.
    pub fn level(&self) -> u8 {
        self.level
    }

    /// The set and the key of the entry for an address of at most 57 bits.
    fn place(&self, asid: u16, addr: VirtAddr) -> (usize, Path) {
        let index = |level: u8| addr.raw() >> (12 + 9 * (level - 1)) & 511;
        let indexes: Vec<u64> = (self.level..=5).rev().map(index).collect();
        let number = indexes.iter().fold(0, |number, index| number * 512 + index);
        ((number % self.sets) as usize, (asid, indexes))
    }
}

/// Caches of several levels.
pub struct NaiveWalkCaches<V>(pub Vec<NaiveWalkCache<V>>);

impl<V: Clone> NaiveWalkCaches<V> {
    /// The deepest level with an entry for an address, and its payload. Levels above are not looked up.
    pub fn deepest(&mut self, asid: u16, addr: VirtAddr) -> Option<(u8, V)> {
        self.0.sort_by_key(|cache| cache.level);
        for cache in &mut self.0 {
            let (set, path) = cache.place(asid, addr);
            cache.accesses += 1;
            if let Some(value) = cache.entries.look_up(set, &path) {
                cache.hits += 1;
                return Some((cache.level, value.clone()));
            }
        }
        None
    }

    /// The deepest entry for an address at `level` or above.
    pub fn deepest_from(&mut self, asid: u16, addr: VirtAddr, level: u8) -> Option<(u8, V)> {
        (level..=5).find_map(|level| Some((level, self.at(asid, addr, level)?)))
    }

    /// The entry of one level for an address; `None` if it is absent or the level has no cache.
    pub fn at(&mut self, asid: u16, addr: VirtAddr, level: u8) -> Option<V> {
        let cache = self.0.iter_mut().find(|cache| cache.level == level)?;
        let (set, path) = cache.place(asid, addr);
        cache.accesses += 1;
        let found = cache.entries.look_up(set, &path).map(|value| value.clone());
        cache.hits += u64::from(found.is_some());
        found
    }

    /// Fills an entry, if its level has a cache.
    pub fn fill(&mut self, asid: u16, addr: VirtAddr, level: u8, value: V) {
        for cache in self.0.iter_mut().filter(|cache| cache.level == level) {
            let (set, path) = cache.place(asid, addr);
            cache.entries.insert(set, path, value.clone());
        }
    }

    /// Removes all entries of an address space that cover any address of a range, and returns their number.
    pub fn invalidate(&mut self, asid: u16, range: AddrRange) -> usize {
        let mut count = 0;
        for cache in &mut self.0 {
            let reach_log2 = 12 + 9 * (cache.level - 1);
            count += cache.entries.invalidate_if(|(space, indexes), _| {
                let number = indexes.iter().fold(0, |number, index| number * 512 + index);
                let (start, end) = (number << reach_log2, (number + 1) << reach_log2);
                let overlaps = range.start().raw() < end && start < range.end().raw();
                *space == asid && overlaps && !range.is_empty()
            });
        }
        count
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        for cache in &mut self.0 {
            cache.entries.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearby_addresses_share_upper_walk_cache_entries() {
        let cache = |level| NaiveWalkCache::new(level, 1, 4, NaiveReplacement::Lru);
        let mut caches = NaiveWalkCaches(vec![cache(3), cache(2)]);
        let (first, near, far) = (VirtAddr::new(0), VirtAddr::new(2 << 20), VirtAddr::new(1 << 30));
        assert_eq!(caches.deepest(0, first), None);
        caches.fill(0, first, 2, 'a');
        caches.fill(0, first, 3, 'b');
        caches.fill(0, first, 4, 'c');
        assert_eq!(caches.deepest(0, first), Some((2, 'a')));
        assert_eq!(caches.deepest(0, near), Some((3, 'b')));
        assert_eq!((caches.deepest(0, far), caches.deepest(1, first)), (None, None));
        let counts = |cache: &NaiveWalkCache<char>| (cache.level, cache.accesses, cache.hits);
        assert_eq!(caches.0.iter().map(counts).collect::<Vec<_>>(), [(2, 5, 1), (3, 4, 1)]);
        assert_eq!(caches.invalidate(0, AddrRange::new(near, 4096)), 1);
        assert_eq!(caches.deepest(0, first), Some((2, 'a')));
    }
}
