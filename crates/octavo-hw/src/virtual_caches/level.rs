//! One virtual cache level.

use octavo_types::Instructions;

use super::addr::GlobalAddr;
use super::line::Line;
use crate::SetArray;
use crate::caches::{CacheConfig, CacheCounters, CacheError};

/// A virtual cache: lines by their global number.
#[derive(Clone, Debug)]
pub(super) struct Level {
    lines: SetArray<Line>,
    pub line_log2: u32,
    pub counters: CacheCounters,
}

impl Level {
    pub fn new(
        config: &CacheConfig,
        name: &'static str,
        instructions: Instructions,
    ) -> Result<Self, CacheError> {
        let lines = SetArray::new(config.geometry(name)?, config.replacement, instructions);
        let line_log2 = config.line_bytes.trailing_zeros();
        Ok(Level { lines, line_log2, counters: CacheCounters::default() })
    }

    #[inline(always)]
    fn place(&self, addr: GlobalAddr) -> (usize, u64) {
        let line = addr.line(self.line_log2);
        (self.lines.geometry().set_of(line), line)
    }

    /// Looks up the line of an address. A hit uses it.
    #[inline(always)]
    pub fn look_up(&mut self, addr: GlobalAddr) -> Option<&mut Line> {
        let (set, line) = self.place(addr);
        self.lines.look_up(set, line)
    }

    /// The line of an address, without a use.
    #[inline(always)]
    pub fn probe(&self, addr: GlobalAddr) -> Option<Line> {
        let (set, line) = self.place(addr);
        self.lines.probe(set, line).copied()
    }

    /// The mutable line of an address, without a use.
    pub fn probe_mut(&mut self, addr: GlobalAddr) -> Option<&mut Line> {
        let (set, line) = self.place(addr);
        self.lines.probe_mut(set, line)
    }

    /// Fills a missed line. Returns the evicted line with its address, if dirty.
    pub fn fill(&mut self, addr: GlobalAddr, line: Line) -> Option<(GlobalAddr, Line)> {
        let (set, number) = self.place(addr);
        let (number, evicted) = self.lines.insert_missed(set, number, line)?;
        self.counters.write_backs += u64::from(evicted.is_dirty());
        evicted.is_dirty().then(|| (GlobalAddr::of_line(number, self.line_log2), evicted))
    }

    /// Drops the line of an address.
    pub fn drop_line(&mut self, addr: GlobalAddr) {
        let (set, line) = self.place(addr);
        self.lines.invalidate(set, line);
    }

    /// The capacity in lines.
    pub fn entries(&self) -> u64 {
        self.lines.geometry().entries() as u64
    }

    /// The number of sets.
    pub fn sets(&self) -> usize {
        self.lines.geometry().sets()
    }

    /// The addresses of the lines of a set.
    pub fn set(&self, set: usize) -> impl Iterator<Item = GlobalAddr> + '_ {
        self.lines.set(set).map(|(line, _)| GlobalAddr::of_line(line, self.line_log2))
    }

    /// All lines with their addresses.
    pub fn iter(&self) -> impl Iterator<Item = (GlobalAddr, Line)> + '_ {
        let log2 = self.line_log2;
        self.lines.iter().map(move |(_, line, bits)| (GlobalAddr::of_line(line, log2), *bits))
    }
}
