//! The two cache levels of one side, instructions or data.

use std::collections::VecDeque;

use octavo_types::{FrameNumber, Instructions};

use super::addr::GlobalAddr;
use super::config::VirtualCacheError;
use super::level::Level;
use super::line::Line;
use super::{Change, L1Lookup, L2Lookup, Swept, WriteBack};
use crate::caches::{CacheConfig, CacheCounters};

/// The caches of one side.
#[derive(Clone, Debug)]
pub(super) struct Side {
    pub l1: Level,
    pub l2: Level,
    /// Queued write-backs to memory, in order.
    pub write_backs: VecDeque<WriteBack>,
}

impl Side {
    /// Empty caches, with the names `l1` and `l2` in errors.
    pub fn new(
        [l1, l2]: [&CacheConfig; 2],
        [l1_name, l2_name]: [&'static str; 2],
        instructions: Instructions,
    ) -> Result<Self, VirtualCacheError> {
        let side = Side {
            l1: Level::new(l1, l1_name, instructions)?,
            l2: Level::new(l2, l2_name, instructions)?,
            write_backs: VecDeque::new(),
        };
        let (cache, bytes, l1_bytes) = (l2_name, l2.line_bytes, l1.line_bytes);
        if bytes < l1_bytes {
            return Err(VirtualCacheError::SmallLines { cache, bytes, l1_bytes });
        }
        Ok(side)
    }

    #[inline(always)]
    pub fn look_up_l1(&mut self, addr: GlobalAddr, stores: bool, repeats: u32) -> L1Lookup {
        let Some(line) = self.l1.look_up(addr) else { return L1Lookup::Miss };
        if stores {
            if !line.may_store() {
                return L1Lookup::Denied;
            }
            *line = line.with_dirty(true);
        }
        let frame = line.frame();
        self.l1.counters.hits += 1 + u64::from(repeats);
        L1Lookup::Hit(frame)
    }

    pub fn look_up_l2(&mut self, addr: GlobalAddr, stores: bool, repeats: u32) -> L2Lookup {
        let Some(line) = self.l2.look_up(addr).copied() else {
            self.l1.counters.misses += 1;
            self.l2.counters.misses += 1;
            return L2Lookup::Miss;
        };
        if stores && !line.may_store() {
            return L2Lookup::Denied;
        }
        self.l1.counters.misses += 1;
        self.l1.counters.hits += u64::from(repeats);
        self.l2.counters.hits += 1;
        self.fill_l1(addr, line.with_dirty(stores));
        L2Lookup::Hit(line.frame())
    }

    pub fn load_and_map(
        &mut self,
        addr: GlobalAddr,
        frame: FrameNumber,
        may_store: bool,
        stores: bool,
        repeats: u32,
    ) {
        let line = Line::new(frame, may_store);
        if let Some((at, evicted)) = self.l2.fill(addr, line) {
            self.write_to_memory(at, evicted, self.l2.line_log2);
        }
        self.fill_l1(addr, line.with_dirty(stores));
        self.l1.counters.hits += u64::from(repeats);
    }

    /// Fills a line into the first level, and writes back its dirty eviction.
    fn fill_l1(&mut self, addr: GlobalAddr, line: Line) {
        if let Some((at, evicted)) = self.l1.fill(addr, line) {
            self.write_back_l1(at, evicted);
        }
    }

    /// Writes a dirty first-level line back to the second level or, if that does not hold it, to memory.
    fn write_back_l1(&mut self, at: GlobalAddr, line: Line) {
        match self.l2.probe_mut(at) {
            Some(l2_line) => *l2_line = l2_line.with_dirty(true),
            None => self.write_to_memory(at, line, self.l1.line_log2),
        }
    }

    fn write_to_memory(&mut self, at: GlobalAddr, line: Line, line_log2: u32) {
        self.write_backs.push_back(WriteBack { at, bytes: 1 << line_log2, frame: line.frame() });
    }

    pub fn sweep(&mut self, from: GlobalAddr, bytes: u64, change: Change) -> Swept {
        let mut swept = Swept::default();
        // First level first, since its dirty lines are written back to the second.
        for at in lines(from, bytes, self.l1.line_log2) {
            swept.checked[0] += 1;
            let Some(line) = self.l1.probe(at) else { continue };
            swept.changed[0] += 1;
            let kept = self.change(0, at, line, change);
            if line.is_dirty() && !kept {
                swept.written_back[0] += 1;
                self.write_back_l1(at, line);
            }
        }
        for at in lines(from, bytes, self.l2.line_log2) {
            swept.checked[1] += 1;
            let Some(line) = self.l2.probe(at) else { continue };
            swept.changed[1] += 1;
            let kept = self.change(1, at, line, change);
            if line.is_dirty() && !kept {
                swept.written_back[1] += 1;
                self.write_to_memory(at, line, self.l2.line_log2);
            }
        }
        swept
    }

    /// Changes a present line. Returns whether it may stay dirty.
    fn change(&mut self, level: usize, at: GlobalAddr, line: Line, change: Change) -> bool {
        let level = if level == 0 { &mut self.l1 } else { &mut self.l2 };
        match change {
            Change::Drop => level.drop_line(at),
            Change::Rights { may_store } => {
                let changed = line.with_rights(may_store);
                let changed = if may_store { changed } else { changed.with_dirty(false) };
                *level.probe_mut(at).expect("it is there") = changed;
                return may_store;
            }
        }
        false
    }

    pub fn counters(&self) -> [CacheCounters; 2] {
        [self.l1.counters, self.l2.counters]
    }
}

/// The addresses of the lines of a range.
fn lines(from: GlobalAddr, bytes: u64, line_log2: u32) -> impl Iterator<Item = GlobalAddr> {
    let first = from.line(line_log2);
    let last = from.plus(bytes - 1).line(line_log2);
    (first..=last).map(move |line| GlobalAddr::of_line(line, line_log2))
}
