//! One cache.

use octavo_types::Instructions;

use super::config::{CacheConfig, CacheError};
use crate::SetArray;

/// What a cache counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Accesses that found their line.
    pub hits: u64,
    /// Accesses that did not.
    pub misses: u64,
    /// Dirty lines that gave way, and were written to the level behind.
    pub write_backs: u64,
}

impl CacheCounters {
    /// All accesses.
    pub const fn accesses(&self) -> u64 {
        self.hits + self.misses
    }
}

/// A cache: lines that are dirty or not.
#[derive(Clone, Debug)]
pub(super) struct Level {
    lines: SetArray<bool>,
    pub latency_cycles: u32,
    pub counters: CacheCounters,
}

impl Level {
    /// An empty cache; `name` is its name in errors.
    pub fn new(
        config: &CacheConfig,
        name: &'static str,
        instructions: Instructions,
    ) -> Result<Self, CacheError> {
        let lines = SetArray::new(config.geometry(name)?, config.replacement, instructions);
        let latency_cycles = config.latency_cycles;
        Ok(Level { lines, latency_cycles, counters: CacheCounters::default() })
    }

    /// An access: whether it hit. A write makes a line that is here dirty.
    #[inline(always)]
    pub fn access(&mut self, line: u64, is_write: bool) -> bool {
        let set = self.lines.geometry().set_of(line);
        match self.lines.look_up(set, line) {
            Some(dirty) => {
                if is_write {
                    *dirty = true;
                }
                self.counters.hits += 1;
                true
            }
            None => {
                self.counters.misses += 1;
                false
            }
        }
    }

    /// An access, and so many that find what it finds or brings: whether it hit.
    #[inline(always)]
    pub fn hits(&mut self, line: u64, is_write: bool, repeats: u32) -> bool {
        let set = self.lines.geometry().set_of(line);
        let found = self.lines.look_up(set, line);
        let is_hit = found.is_some();
        if let Some(dirty) = found {
            *dirty |= is_write;
        }
        self.counters.hits += u64::from(repeats) + u64::from(is_hit);
        is_hit
    }

    /// A line that was missed comes in. Returns the line that has to be written back for it.
    #[inline]
    pub fn fill(&mut self, line: u64, dirty: bool) -> Option<u64> {
        let set = self.lines.geometry().set_of(line);
        let (evicted, was_dirty) = self.lines.insert_missed(set, line, dirty)?;
        self.counters.write_backs += u64::from(was_dirty);
        was_dirty.then_some(evicted)
    }

    /// A line is written back from the level before. Returns the line that has to be written back
    /// for it, in turn.
    pub fn write_back(&mut self, line: u64) -> Option<u64> {
        let set = self.lines.geometry().set_of(line);
        match self.lines.probe_mut(set, line) {
            Some(dirty) => {
                *dirty = true;
                None
            }
            None => self.fill(line, true),
        }
    }
}
