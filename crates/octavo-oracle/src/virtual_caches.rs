//! Virtual caches of one side, one access at a time, with the contents of their lines.

use std::collections::HashMap;

use crate::{NaiveArray, NaiveCounts, NaiveReplacement};

/// Where an access found its line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveFound {
    /// In the first level.
    L1,
    /// In the second.
    L2,
    /// In neither: it came from memory.
    Memory,
    /// In either level, without store permission: nothing has changed.
    Denied,
}

/// The action of a sweep on the lines of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NaiveChange {
    /// Sets store permission. Dirty lines that lose it are written back.
    MayStore(bool),
    /// Writes dirty lines back, and drops all.
    Drop,
}

/// A line written to memory: its address, its bytes, its frame.
pub type NaiveWriteBack = (u64, u64, u64);

#[derive(Clone)]
struct Line {
    may_store: bool,
    is_dirty: bool,
    frame: u64,
    /// Its data: a number for each first-level line in it.
    data: Vec<u64>,
}

struct Level {
    bytes: u64,
    sets: u64,
    lines: NaiveArray<u64, Line>,
    counts: NaiveCounts,
}

impl Level {
    fn place(&self, addr: u64) -> (usize, u64) {
        let line = addr / self.bytes;
        ((line % self.sets) as usize, line)
    }

    fn probe(&mut self, addr: u64) -> Option<&mut Line> {
        let (set, line) = self.place(addr);
        self.lines.probe(set, &line)
    }
}

/// A first and a second level of caches by virtual address, write-back, and the memory behind them.
pub struct NaiveVirtualSide {
    levels: [Level; 2],
    /// The data of memory by frame and first-level line in the frame; 0 if absent.
    pub memory: HashMap<(u64, u64), u64>,
    /// The lines written to memory, in order.
    pub written: Vec<NaiveWriteBack>,
}

impl NaiveVirtualSide {
    /// Empty caches. Each level has its bytes per line, sets, ways and policy.
    pub fn new(levels: [(u64, usize, usize, NaiveReplacement); 2]) -> Self {
        let levels = levels.map(|(bytes, sets, ways, replacement)| Level {
            bytes,
            sets: sets as u64,
            lines: NaiveArray::new(sets, ways, replacement),
            counts: NaiveCounts::default(),
        });
        NaiveVirtualSide { levels, memory: HashMap::new(), written: Vec::new() }
    }

    /// The counts of a level.
    pub fn counts(&self, level: usize) -> NaiveCounts {
        self.levels[level].counts
    }

    /// The lines of a level: address, store permission, dirty bit, frame.
    pub fn lines(&self, level: usize) -> Vec<(u64, bool, bool, u64)> {
        let Level { bytes, lines, .. } = &self.levels[level];
        let all = lines.entries().into_iter();
        all.map(|(_, number, line)| (number * bytes, line.may_store, line.is_dirty, line.frame))
            .collect()
    }

    /// Loads a line of the first level, or stores a number to it. `page` is the frame and the store permission
    /// of its page, used if the line comes from memory. Returns where the line was found, and its data.
    pub fn access(
        &mut self,
        addr: u64,
        store: Option<u64>,
        page: (u64, bool),
    ) -> (NaiveFound, u64) {
        let first = self.levels[0].place(addr);
        if let Some(line) = self.levels[0].lines.look_up(first.0, &first.1) {
            if store.is_some() && !line.may_store {
                return (NaiveFound::Denied, 0);
            }
            if let Some(number) = store {
                line.data[0] = number;
                line.is_dirty = true;
            }
            let data = line.data[0];
            self.count(0, true);
            return (NaiveFound::L1, data);
        }
        let second = self.levels[1].place(addr);
        let in_second = self.levels[1].lines.look_up(second.0, &second.1).cloned();
        if let Some(line) = &in_second
            && store.is_some()
            && !line.may_store
        {
            return (NaiveFound::Denied, 0);
        }
        self.count(0, false);
        self.count(1, in_second.is_some());
        let found = if in_second.is_some() { NaiveFound::L2 } else { NaiveFound::Memory };
        let l2_line = in_second.unwrap_or_else(|| {
            let line = self.read_memory(addr, page);
            if let Some((line_number, old)) =
                self.levels[1].lines.insert(second.0, second.1, line.clone())
                && old.is_dirty
            {
                self.levels[1].counts.write_backs += 1;
                self.write_memory(1, line_number * self.levels[1].bytes, &old);
            }
            line
        });
        let at = (addr % self.levels[1].bytes) / self.levels[0].bytes;
        let data = store.unwrap_or(l2_line.data[at as usize]);
        let line = Line { is_dirty: store.is_some(), data: vec![data], ..l2_line };
        if let Some((line_number, old)) = self.levels[0].lines.insert(first.0, first.1, line)
            && old.is_dirty
        {
            self.levels[0].counts.write_backs += 1;
            self.write_back_l1(line_number * self.levels[0].bytes, &old);
        }
        (found, data)
    }

    /// Changes the lines of a range at both levels. Returns for each level the lines checked, the lines
    /// present, and the dirty lines written back.
    pub fn sweep(&mut self, from: u64, bytes: u64, change: NaiveChange) -> [[u64; 3]; 2] {
        let mut swept = [[0; 3]; 2];
        for (level, swept) in swept.iter_mut().enumerate() {
            let line_bytes = self.levels[level].bytes;
            for line in from / line_bytes..(from + bytes).div_ceil(line_bytes) {
                swept[0] += 1;
                let at = line * line_bytes;
                let Some(old) = self.levels[level].probe(at).cloned() else { continue };
                swept[1] += 1;
                let cleans = change != NaiveChange::MayStore(true);
                match change {
                    NaiveChange::Drop => {
                        let (set, line) = self.levels[level].place(at);
                        self.levels[level].lines.invalidate(set, &line);
                    }
                    NaiveChange::MayStore(may_store) => {
                        let line = self.levels[level].probe(at).unwrap();
                        line.may_store = may_store;
                        line.is_dirty &= may_store;
                    }
                }
                if cleans && old.is_dirty {
                    swept[2] += 1;
                    match level {
                        0 => self.write_back_l1(at, &old),
                        _ => self.write_memory(1, at, &old),
                    }
                }
            }
        }
        swept
    }

    fn count(&mut self, level: usize, hits: bool) {
        self.levels[level].counts.accesses += 1;
        self.levels[level].counts.hits += u64::from(hits);
    }

    /// Writes a dirty first-level line back to the second level or, if that does not hold it, to memory.
    fn write_back_l1(&mut self, addr: u64, old: &Line) {
        let at = (addr % self.levels[1].bytes) / self.levels[0].bytes;
        match self.levels[1].probe(addr) {
            Some(line) => {
                line.data[at as usize] = old.data[0];
                line.is_dirty = true;
            }
            None => self.write_memory(0, addr, old),
        }
    }

    fn write_memory(&mut self, level: usize, addr: u64, old: &Line) {
        self.written.push((addr, self.levels[level].bytes, old.frame));
        for (place, data) in old.data.iter().enumerate() {
            let line = addr % 4096 / self.levels[0].bytes + place as u64;
            self.memory.insert((old.frame, line), *data);
        }
    }

    fn read_memory(&self, addr: u64, (frame, may_store): (u64, bool)) -> Line {
        let (l1_bytes, l2_bytes) = (self.levels[0].bytes, self.levels[1].bytes);
        let first = addr % 4096 / l2_bytes * l2_bytes / l1_bytes;
        let numbers = first..first + l2_bytes / l1_bytes;
        let data = numbers.map(|line| self.memory.get(&(frame, line)).copied().unwrap_or(0));
        Line { may_store, is_dirty: false, frame, data: data.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A first level of one line of 16 bytes, and a second level of one line of 32 bytes.
    #[test]
    fn stored_lines_are_written_back() {
        let level = |bytes| (bytes, 1, 1, NaiveReplacement::Lru);
        let mut side = NaiveVirtualSide::new([level(16), level(32)]);
        let page = (7, true);
        assert_eq!(side.access(0x1000, Some(1), page), (NaiveFound::Memory, 1));
        assert_eq!(side.access(0x1010, None, page), (NaiveFound::L2, 0));
        assert_eq!(side.lines(1), [(0x1000, true, true, 7)], "1 is behind");
        assert_eq!(side.access(0x1010, Some(2), page), (NaiveFound::L1, 2));
        assert_eq!(side.access(0x1020, None, page), (NaiveFound::Memory, 0));
        // First the second-level line with 1, then the first-level line with 2, around the second level.
        assert_eq!(side.written, [(0x1000, 32, 7), (0x1010, 16, 7)]);
        assert_eq!(side.access(0x1010, None, page), (NaiveFound::Memory, 2));
        assert_eq!(side.access(0x1000, None, page), (NaiveFound::L2, 1));
        assert_eq!(
            side.sweep(0x1000, 4096, NaiveChange::MayStore(false)),
            [[256, 1, 0], [128, 1, 0]]
        );
        assert_eq!(side.access(0x1000, Some(3), page), (NaiveFound::Denied, 0));
    }
}
