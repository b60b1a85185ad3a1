//! The shared last-level cache and the memory.

use octavo_types::Instructions;

use super::config::{CacheError, SharedConfig};
use super::level::{CacheCounters, Level};
use super::{Served, ServedBy};

/// Counters of the memory, in lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryCounters {
    /// Lines read.
    pub reads: u64,
    /// Lines written back.
    pub writes: u64,
}

/// The last level and the memory behind it.
#[derive(Clone, Debug)]
pub struct SharedCache {
    llc: Level,
    memory: MemoryCounters,
    memory_latency_cycles: u32,
    line_bytes: u64,
}

impl SharedCache {
    /// An empty cache.
    pub fn new(config: &SharedConfig, instructions: Instructions) -> Result<Self, CacheError> {
        Ok(SharedCache {
            llc: Level::new(&config.llc, "llc", instructions)?,
            memory: MemoryCounters::default(),
            memory_latency_cycles: config.memory_latency_cycles,
            line_bytes: config.llc.line_bytes,
        })
    }

    /// The counters of the last level.
    pub fn llc(&self) -> CacheCounters {
        self.llc.counters
    }

    /// The counters of the memory.
    pub fn memory(&self) -> MemoryCounters {
        self.memory
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Sets all counters to 0; lines stay.
    pub fn reset_counters(&mut self) {
        self.llc.counters = CacheCounters::default();
        self.memory = MemoryCounters::default();
    }

    /// Reads a line; a miss fills it.
    pub(super) fn read(&mut self, line: u64) -> Served {
        if self.llc.access(line, false) {
            return Served { by: ServedBy::Llc, latency_cycles: self.llc.latency_cycles };
        }
        self.memory.reads += 1;
        let written = self.llc.fill(line, false);
        self.memory.writes += u64::from(written.is_some());
        Served { by: ServedBy::Memory, latency_cycles: self.memory_latency_cycles }
    }

    /// Accepts a write-back.
    pub(super) fn write_back(&mut self, line: u64) {
        let written = self.llc.write_back(line);
        self.memory.writes += u64::from(written.is_some());
    }
}
