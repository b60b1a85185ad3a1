//! Data caches, one access at a time.

use crate::{NaiveArray, NaiveReplacement};

/// The counts of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NaiveCounts {
    /// All accesses.
    pub accesses: u64,
    /// Accesses that hit.
    pub hits: u64,
    /// Dirty lines that gave way.
    pub write_backs: u64,
}

/// A cache, and the number of the one behind it.
struct Level {
    sets: u64,
    /// Line numbers, and whether they are dirty.
    lines: NaiveArray<u64, bool>,
    behind: Option<usize>,
    counts: NaiveCounts,
}

/// Write-back, write-allocate caches, each with another or the memory behind it: a tree, with the
/// memory at its root.
#[derive(Default)]
pub struct NaiveCaches {
    levels: Vec<Level>,
    /// Lines read from memory.
    pub memory_reads: u64,
    /// Lines written to memory.
    pub memory_writes: u64,
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
        let counts = NaiveCounts::default();
        self.levels.push(Level { sets: sets as u64, lines, behind, counts });
        self.levels.len() - 1
    }

    /// The counts of a level.
    pub fn counts(&self, level: usize) -> NaiveCounts {
        self.levels[level].counts
    }

    /// Accesses a line from a cache on and says where it was: the number of a cache, or `None` in
    /// memory. Every cache that missed has the line then; a write makes it dirty in the first one.
    pub fn access(&mut self, level: usize, line: u64, is_write: bool) -> Option<usize> {
        let Level { sets, lines, behind, counts } = &mut self.levels[level];
        counts.accesses += 1;
        if let Some(dirty) = lines.look_up((line % *sets) as usize, &line) {
            counts.hits += 1;
            *dirty |= is_write;
            return Some(level);
        }
        let found = match *behind {
            Some(behind) => self.access(behind, line, false),
            None => {
                self.memory_reads += 1;
                None
            }
        };
        self.take_in(level, line, is_write);
        found
    }

    /// A cache takes a line in, and writes back what gives way if that is dirty.
    fn take_in(&mut self, level: usize, line: u64, is_dirty: bool) {
        let Level { sets, lines, behind, counts } = &mut self.levels[level];
        let evicted = lines.insert((line % *sets) as usize, line, is_dirty);
        if let Some((evicted, true)) = evicted {
            counts.write_backs += 1;
            match *behind {
                Some(behind) => self.write_back(behind, evicted),
                None => self.memory_writes += 1,
            }
        }
    }

    /// A line is written back to a cache: dirty there, or taken in.
    fn write_back(&mut self, level: usize, line: u64) {
        let Level { sets, lines, .. } = &mut self.levels[level];
        match lines.probe((line % *sets) as usize, &line) {
            Some(dirty) => *dirty = true,
            None => self.take_in(level, line, true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One line in front of two: what each access finds.
    #[test]
    fn evicted_dirty_line_is_found_in_the_next_level() {
        let mut caches = NaiveCaches::default();
        let second = caches.add(1, 2, NaiveReplacement::Lru, None);
        let first = caches.add(1, 1, NaiveReplacement::Lru, Some(second));
        assert_eq!(caches.access(first, 1, true), None);
        assert_eq!(caches.access(first, 1, false), Some(first));
        assert_eq!(caches.access(first, 2, false), None); // 1 is written back
        assert_eq!(caches.access(first, 1, false), Some(second));
        assert_eq!(caches.access(first, 3, false), None); // 2 leaves the second, clean
        assert_eq!(caches.access(first, 4, false), None); // 1 leaves it, dirty
        assert_eq!((caches.memory_reads, caches.memory_writes), (4, 1));
        let counts = NaiveCounts { accesses: 6, hits: 1, write_backs: 1 };
        assert_eq!(caches.counts(first), counts);
        let counts = NaiveCounts { accesses: 5, hits: 1, write_backs: 1 };
        assert_eq!(caches.counts(second), counts);
    }
}
