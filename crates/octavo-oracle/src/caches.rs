//! Data caches, one access at a time.

use crate::prefetch::NaivePrefetchers;
use crate::{NaiveArray, NaiveReplacement};

/// The counts of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NaiveCounts {
    /// All accesses.
    pub accesses: u64,
    /// Accesses that hit.
    pub hits: u64,
    /// Dirty lines evicted.
    pub write_backs: u64,
}

/// A cache, and the number of the cache behind it.
struct Level {
    sets: u64,
    /// Line numbers, and whether they are dirty.
    lines: NaiveArray<u64, bool>,
    behind: Option<usize>,
    counts: NaiveCounts,
    /// Prefetched lines that have not been used.
    unused: Vec<u64>,
    prefetchers: NaivePrefetchers,
    prefetches: NaivePrefetchCounts,
}

/// The counts of the prefetchers of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NaivePrefetchCounts {
    /// Lines prefetched.
    pub issued: u64,
    /// Prefetched lines that were used.
    pub useful: u64,
    /// Prefetched lines that were evicted without a use.
    pub unused: u64,
    /// Lines not prefetched, because the cache had them or they belong to the set of the accessed line.
    pub dropped: u64,
}

/// A prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaivePrefetch {
    /// The cache prefetched into.
    pub level: usize,
    /// The line.
    pub line: u64,
    /// The cache that had the line, or `None` for the memory.
    pub found: Option<usize>,
}

/// Write-back, write-allocate caches. Behind each is another cache or the memory, so that they form a tree
/// with the memory at its root.
#[derive(Default)]
pub struct NaiveCaches {
    levels: Vec<Level>,
    /// Lines read from memory, in order.
    pub lines_read: Vec<u64>,
    /// Lines written to memory, in order.
    pub lines_written: Vec<u64>,
    /// All prefetches.
    pub prefetches: Vec<NaivePrefetch>,
}

impl NaiveCaches {
    /// Adds a cache in front of another one, or of the memory, and returns its number.
    pub fn add(
        &mut self,
        sets: usize,
        ways: usize,
        replacement: NaiveReplacement,
        behind: Option<usize>,
    ) -> usize {
        let lines = NaiveArray::new(sets, ways, replacement);
        self.levels.push(Level {
            sets: sets as u64,
            lines,
            behind,
            counts: NaiveCounts::default(),
            unused: Vec::new(),
            prefetchers: NaivePrefetchers::default(),
            prefetches: NaivePrefetchCounts::default(),
        });
        self.levels.len() - 1
    }

    /// The counts of a level.
    pub fn counts(&self, level: usize) -> NaiveCounts {
        self.levels[level].counts
    }

    /// Gives a cache prefetchers.
    pub fn prefetch_into(&mut self, level: usize, prefetchers: NaivePrefetchers) {
        self.levels[level].prefetchers = prefetchers;
    }

    /// The counts of a level's prefetchers.
    pub fn prefetch_counts(&self, level: usize) -> NaivePrefetchCounts {
        self.levels[level].prefetches
    }

    /// Number of prefetched lines that are present in a level and have not been used.
    pub fn unused(&self, level: usize) -> usize {
        self.levels[level].unused.len()
    }

    /// The instruction at `site` accesses data in a first level. As [`Self::access`], with the prefetches that follow.
    pub fn access_data(
        &mut self,
        first: usize,
        line: u64,
        is_write: bool,
        site: u64,
    ) -> Option<usize> {
        let second = self.levels[first].behind.expect("a second level");
        let has = |caches: &mut Self, level: usize| {
            let cache = &mut caches.levels[level];
            cache.lines.probe((line % cache.sets) as usize, &line).is_some()
        };
        let was_prefetched = if has(self, first) {
            self.use_line(first, line)
        } else {
            has(self, second) && self.use_line(second, line)
        };
        let found = self.access(first, line, is_write);
        if found != Some(first) {
            self.prefetch(second, site, line);
        }
        if found != Some(first) || was_prefetched {
            self.prefetch(first, site, line);
        }
        found
    }

    /// Uses a line of a cache. Returns whether this is the first use of a prefetched line.
    fn use_line(&mut self, level: usize, line: u64) -> bool {
        let cache = &mut self.levels[level];
        let before = cache.unused.len();
        cache.unused.retain(|unused| *unused != line);
        cache.prefetches.useful += (before - cache.unused.len()) as u64;
        cache.unused.len() < before
    }

    /// Trains the prefetchers of a cache, and issues their prefetches.
    fn prefetch(&mut self, level: usize, site: u64, accessed: u64) {
        let behind = self.levels[level].behind.expect("prefetches go into private caches");
        // A first level has two more caches behind it, a second level only one.
        let is_first = self.levels[behind].behind.is_some();
        for line in self.levels[level].prefetchers.train(site, accessed) {
            let cache = &mut self.levels[level];
            let is_here = cache.lines.probe((line % cache.sets) as usize, &line).is_some();
            if is_here || is_first && line % cache.sets == accessed % cache.sets {
                cache.prefetches.dropped += 1;
                continue;
            }
            cache.prefetches.issued += 1;
            let found = self.read(behind, line, is_first);
            self.fill(level, line, false);
            self.levels[level].unused.push(line);
            self.prefetches.push(NaivePrefetch { level, line, found });
            if is_first {
                self.prefetch(behind, site, line);
            }
        }
    }

    /// Reads a line for a prefetch from a cache and, on a miss, from the caches behind it. Counts no access.
    fn read(&mut self, level: usize, line: u64, uses: bool) -> Option<usize> {
        let Level { sets, lines, behind, .. } = &mut self.levels[level];
        if lines.look_up((line % *sets) as usize, &line).is_some() {
            if uses {
                self.use_line(level, line);
            }
            return Some(level);
        }
        let found = match *behind {
            Some(behind) => self.read(behind, line, false),
            None => {
                self.lines_read.push(line);
                None
            }
        };
        self.fill(level, line, false);
        found
    }

    /// Accesses a line in a cache and, on a miss, in the caches behind it. Returns the number of the cache that
    /// had it, or `None` for memory. Fills every cache that missed; a write makes the line dirty in `level`.
    pub fn access(&mut self, level: usize, line: u64, is_write: bool) -> Option<usize> {
        let Level { sets, lines, behind, counts, .. } = &mut self.levels[level];
        counts.accesses += 1;
        if let Some(dirty) = lines.look_up((line % *sets) as usize, &line) {
            counts.hits += 1;
            *dirty |= is_write;
            return Some(level);
        }
        let found = match *behind {
            Some(behind) => self.access(behind, line, false),
            None => {
                self.lines_read.push(line);
                None
            }
        };
        self.fill(level, line, is_write);
        found
    }

    /// Fills a line into a cache, and writes the evicted line back if it is dirty.
    fn fill(&mut self, level: usize, line: u64, is_dirty: bool) {
        let set = line % self.levels[level].sets;
        self.fill_set(level, set, line, is_dirty);
    }

    /// As [`Self::fill`], into the given set.
    fn fill_set(&mut self, level: usize, set: u64, line: u64, is_dirty: bool) {
        let Level { lines, behind, counts, unused, prefetches, .. } = &mut self.levels[level];
        let evicted = lines.insert(set as usize, line, is_dirty);
        if let Some((evicted, _)) = evicted {
            let before = unused.len();
            unused.retain(|line| *line != evicted);
            prefetches.unused += (before - unused.len()) as u64;
        }
        if let Some((evicted, true)) = evicted {
            counts.write_backs += 1;
            match *behind {
                Some(behind) => self.write_back(behind, evicted),
                None => self.lines_written.push(evicted),
            }
        }
    }

    /// Fills lines of programs outside the machine, which have these numbers, into one set of a cache after another.
    /// No line of the machine equals them.
    pub fn fill_by_others(&mut self, level: usize, numbers: std::ops::Range<u64>) {
        for number in numbers {
            let sets = self.levels[level].sets;
            self.fill(level, (1 << 50) * sets + number, false);
        }
    }

    /// The key of a line that is not of memory.
    fn foreign_key(tag: u64) -> u64 {
        u64::MAX / 2 + tag
    }

    /// Looks up a line that is not of memory; `number` selects its set. Returns whether it hit.
    pub fn use_foreign(&mut self, level: usize, tag: u64, number: u64) -> bool {
        let Level { sets, lines, .. } = &mut self.levels[level];
        lines.look_up((number % *sets) as usize, &Self::foreign_key(tag)).is_some()
    }

    /// Fills a line that is not of memory into a cache.
    pub fn take_in_foreign(&mut self, level: usize, tag: u64, number: u64) {
        let set = number % self.levels[level].sets;
        self.fill_set(level, set, Self::foreign_key(tag), false);
    }

    /// Removes a line that is not of memory from a cache. Returns whether it was present.
    pub fn drop_foreign(&mut self, level: usize, tag: u64, number: u64) -> bool {
        let Level { sets, lines, .. } = &mut self.levels[level];
        lines.invalidate((number % *sets) as usize, &Self::foreign_key(tag)).is_some()
    }

    /// Writes a line back to a cache: makes it dirty if present, else fills it.
    fn write_back(&mut self, level: usize, line: u64) {
        let Level { sets, lines, .. } = &mut self.levels[level];
        match lines.probe((line % *sets) as usize, &line) {
            Some(dirty) => *dirty = true,
            None => self.fill(level, line, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cache of one line in front of a cache of two lines.
    #[test]
    fn evicted_dirty_line_is_found_in_the_next_level() {
        let mut caches = NaiveCaches::default();
        let second = caches.add(1, 2, NaiveReplacement::Lru, None);
        let first = caches.add(1, 1, NaiveReplacement::Lru, Some(second));
        assert_eq!(caches.access(first, 1, true), None);
        assert_eq!(caches.access(first, 1, false), Some(first));
        assert_eq!(caches.access(first, 2, false), None); // 1 is written back
        assert_eq!(caches.access(first, 1, false), Some(second));
        assert_eq!(caches.access(first, 3, false), None); // the second level evicts 2, clean
        assert_eq!(caches.access(first, 4, false), None); // the second level evicts 1, dirty
        assert_eq!(
            (&caches.lines_read[..], &caches.lines_written[..]),
            (&[1, 2, 3, 4][..], &[1][..])
        );
        let counts = NaiveCounts { accesses: 6, hits: 1, write_backs: 1 };
        assert_eq!(caches.counts(first), counts);
        let counts = NaiveCounts { accesses: 5, hits: 1, write_backs: 1 };
        assert_eq!(caches.counts(second), counts);
    }
}
