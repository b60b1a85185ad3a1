//! The shared last-level cache and the memory.

use std::num::NonZero;

use octavo_types::Instructions;

use super::config::{CacheError, MemoryTierConfig, SharedConfig};
use super::level::{CacheCounters, Level};
use super::{Served, ServedBy};

/// The tag (line number divided by the number of sets) of the first lines that programs outside the machine fill: above
/// the tags of any memory, but small enough for a row of tags.
const MAX_TAG: u64 = (1 << 31) - 2;

/// Maximum lines of others filled by one call, for each line of the last level: enough to evict nearly all lines of the
/// machine.
const MAX_FILLS_PER_LINE: u64 = 8;

/// Counters of the memory, in lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MemoryCounters {
    /// Lines read.
    pub reads: u64,
    /// Lines written back.
    pub writes: u64,
}

/// A line that passed between the last level and memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryTransfer {
    /// The physical line, twice, plus 1 if it was written.
    bits: u64,
}

impl MemoryTransfer {
    /// A line read or written.
    pub fn new(line: u64, is_write: bool) -> Self {
        MemoryTransfer { bits: line << 1 | u64::from(is_write) }
    }

    /// The physical line.
    pub fn line(self) -> u64 {
        self.bits >> 1
    }

    /// Whether it was written to memory.
    pub fn is_write(self) -> bool {
        self.bits & 1 != 0
    }
}

/// The last level and the memory behind it.
#[derive(Clone, Debug)]
pub struct SharedCache {
    llc: Level,
    memory: MemoryCounters,
    memory_latency_cycles: u32,
    /// Slower parts of memory, by address, with the counters of each.
    tiers: Box<[(MemoryTierConfig, MemoryCounters)]>,
    line_bytes: u64,
    /// Capacity of the last level, in lines.
    lines: u64,
    /// Cycles between two lines that programs outside the machine fill, if there are any.
    others_fill_every_cycles: Option<NonZero<u32>>,
    filled_by_others: u64,
    /// Whether transfers are logged.
    logs_transfers: bool,
    /// The logged transfers, in order.
    transfers: Vec<MemoryTransfer>,
}

impl SharedCache {
    /// An empty cache.
    pub fn new(config: &SharedConfig, instructions: Instructions) -> Result<Self, CacheError> {
        Ok(SharedCache {
            llc: Level::new(&config.llc, "llc", instructions)?,
            memory: MemoryCounters::default(),
            memory_latency_cycles: config.memory_latency_cycles,
            tiers: config.tiers.iter().map(|tier| (*tier, MemoryCounters::default())).collect(),
            line_bytes: config.llc.line_bytes,
            lines: config.llc.bytes / config.llc.line_bytes,
            others_fill_every_cycles: NonZero::new(config.others_fill_every_cycles),
            filled_by_others: 0,
            logs_transfers: false,
            transfers: Vec::new(),
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

    /// The counters of each slower tier, whose lines [`Self::memory`] includes.
    pub fn memory_tiers(&self) -> impl Iterator<Item = MemoryCounters> {
        self.tiers.iter().map(|(_, counters)| *counters)
    }

    /// Bytes of a line.
    pub fn line_bytes(&self) -> u64 {
        self.line_bytes
    }

    /// Reads a line; a miss fills it.
    pub(super) fn read(&mut self, line: u64) -> Served {
        if self.llc.access(line, false) {
            return Served { by: ServedBy::Llc, latency_cycles: self.llc.latency_cycles };
        }
        self.fill(line)
    }

    /// Reads a line for a prefetch, without counting an access of the last level.
    pub(super) fn prefetch(&mut self, line: u64) -> Served {
        if self.llc.look_up(line, false) {
            return Served { by: ServedBy::Llc, latency_cycles: self.llc.latency_cycles };
        }
        self.fill(line)
    }

    /// Reads a missed line from memory.
    #[inline]
    fn fill(&mut self, line: u64) -> Served {
        self.memory.reads += 1;
        let mut latency_cycles = self.memory_latency_cycles;
        if let Some((tier, counters)) = self.tier(line) {
            counters.reads += 1;
            latency_cycles += tier.added_latency_cycles;
        }
        self.log(line, false);
        let written = self.llc.fill(line, false);
        self.count_write(written);
        Served { by: ServedBy::Memory, latency_cycles }
    }

    /// The slower tier of a line; `None` for local memory.
    #[inline]
    fn tier(&mut self, line: u64) -> Option<&mut (MemoryTierConfig, MemoryCounters)> {
        self.tiers.iter_mut().rev().find(|(tier, _)| tier.first_line <= line)
    }

    /// Fills the lines that others fill in the first `cycles` cycles, one set after another. No machine's memory has
    /// these lines; they evict lines of the machine by the cache's policy. If more than [`MAX_FILLS_PER_LINE`] times
    /// the capacity are due since the last call, only the last of them are filled.
    pub fn fill_by_others(&mut self, cycles: u64) {
        let Some(every) = self.others_fill_every_cycles else { return };
        let (due, sets) = (cycles / u64::from(every.get()), self.llc.count_sets());
        let first = due.saturating_sub(MAX_FILLS_PER_LINE * self.lines).max(self.filled_by_others);
        for number in first..due {
            let line = (MAX_TAG - number / sets % MAX_TAG) * sets + number % sets;
            let written = self.llc.fill(line, false);
            self.count_write(written);
        }
        self.filled_by_others = due;
    }

    /// Number of lines that others have filled so far, if any share the last level.
    pub fn filled_by_others(&self) -> Option<u64> {
        self.others_fill_every_cycles.map(|_| self.filled_by_others)
    }

    /// Accepts a write-back.
    pub(super) fn write_back(&mut self, line: u64) {
        let written = self.llc.write_back(line);
        self.count_write(written);
    }

    /// Starts to log the lines that pass between the last level and memory.
    pub fn log_transfers(&mut self) {
        self.logs_transfers = true;
    }

    /// Stops logging transfers, and clears the log.
    pub fn stop_logging_transfers(&mut self) {
        self.logs_transfers = false;
        self.transfers.clear();
    }

    /// The logged transfers, in order. The caller removes them.
    pub fn transfers(&mut self) -> &mut Vec<MemoryTransfer> {
        &mut self.transfers
    }

    /// Number of transfers in the log.
    pub(super) fn logged_transfers(&self) -> usize {
        self.transfers.len()
    }

    fn count_write(&mut self, written: Option<u64>) {
        if let Some(line) = written {
            self.memory.writes += 1;
            if let Some((_, counters)) = self.tier(line) {
                counters.writes += 1;
            }
            self.log(line, true);
        }
    }

    fn log(&mut self, line: u64, is_write: bool) {
        if self.logs_transfers {
            self.transfers.push(MemoryTransfer::new(line, is_write));
        }
    }
}
