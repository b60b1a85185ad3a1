//! The twin of Trident: plain lists of frames and pages, for one process with one mapping whose upper page-table nodes
//! exist, under faults, scans of all memory and clearing.

use std::collections::BTreeMap;
use std::ops::Range;

use octavo_oracle::{NaiveCompaction, NaiveFrame};
use octavo_os::Counters;

/// A frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cell {
    /// Not allocated; clear if nothing was there since it was cleared.
    Free { is_clear: bool },
    /// A base page, or other memory that may be moved.
    Movable,
    /// Anything else.
    Fixed,
}

/// When memory is compacted for a page that a fault wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultCompaction {
    Never,
    /// Before the scan that follows.
    Later,
    AtOnce,
}

const HUGE: usize = 512;
const PAGE_BYTES: u64 = 4096;

/// Memory, and a process.
pub struct NaiveTrident {
    pub cells: Vec<Cell>,
    mapping: Range<u64>,
    /// Base pages of the largest page, and of the largest block of memory.
    largest: usize,
    /// The first frame and the number of base pages of each page.
    pages: BTreeMap<u64, (usize, u64)>,
    /// Nodes of the last level, by 2 MiB of addresses.
    nodes: BTreeMap<u64, usize>,
    pub counters: Counters,
    pub max_none: u64,
    pub max_none_largest: u64,
    /// Whether promotion compacts memory.
    pub compacts: bool,
    /// When memory is compacted for a fault.
    pub at_faults: FaultCompaction,
    /// Whether compaction for huge pages, and for the largest, is due in the background.
    wanted: [bool; 2],
    /// Whether free memory is cleared.
    pub clears: bool,
    /// Where compaction for huge pages goes on.
    next_block: usize,
    /// Of compaction for huge pages, and for the largest: failures in succession, and requests since the last one.
    deferrals: [(u32, u32); 2],
}

impl NaiveTrident {
    pub fn new(cells: Vec<Cell>, mapping: Range<u64>, largest: usize) -> Self {
        NaiveTrident {
            cells,
            mapping,
            largest,
            pages: BTreeMap::new(),
            nodes: BTreeMap::new(),
            counters: Counters::default(),
            max_none: 511,
            max_none_largest: u64::MAX,
            compacts: true,
            at_faults: FaultCompaction::Never,
            wanted: [false; 2],
            clears: true,
            next_block: 0,
            deferrals: [(0, 0); 2],
        }
    }

    /// The pages: first base page, first frame, and number of base pages.
    pub fn pages(&self) -> Vec<(u64, (usize, u64))> {
        self.pages.clone().into_iter().collect()
    }

    pub fn free_frames(&self) -> usize {
        self.cells.iter().filter(|cell| is_free(cell)).count()
    }

    /// A store to a page.
    pub fn touch(&mut self, page: u64) {
        if !self.within(&(page..page + 1)).is_empty() {
            return;
        }
        self.counters.faults += 1;
        let mut has_missed = false;
        for size in [self.largest, HUGE] {
            let range = around(page, size);
            let fits = self.mapping.start <= range.start && range.end <= self.mapping.end;
            if !fits || !self.within(&range).is_empty() {
                continue;
            }
            if self.lowest(size).is_none() {
                match self.at_faults {
                    FaultCompaction::Never => {}
                    FaultCompaction::Later => self.wanted[usize::from(size == self.largest)] = true,
                    FaultCompaction::AtOnce => self.compact_for(size),
                }
            }
            let clear = self.clear_block().filter(|_| size == self.largest && self.clears);
            if let Some(block) = clear.or_else(|| self.lowest(size)) {
                if clear.is_none() {
                    self.counters.bytes_zeroed += size as u64 * PAGE_BYTES;
                }
                self.counters.bytes_mapped_untouched += (size as u64 - 1) * PAGE_BYTES;
                self.cells[block..block + size].fill(Cell::Fixed);
                self.pages.insert(range.start, (block, size as u64));
                return;
            }
            self.counters.fallbacks += u64::from(!has_missed);
            has_missed = true;
        }
        let frame = self.lowest(1).expect("frames are free");
        self.cells[frame] = Cell::Movable;
        self.counters.bytes_zeroed += PAGE_BYTES;
        self.pages.insert(page, (frame, 1));
        if !self.nodes.contains_key(&(page / HUGE as u64)) {
            let node = self.lowest(1).expect("frames are free");
            self.cells[node] = Cell::Fixed;
            self.nodes.insert(page / HUGE as u64, node);
        }
    }

    /// A scan of all memory, and the clearing of a block.
    pub fn background(&mut self) {
        let [huge, largest] = std::mem::take(&mut self.wanted);
        for (_, size) in [(largest, self.largest), (huge, HUGE)].into_iter().filter(|(due, _)| *due)
        {
            self.compact_for(size);
        }
        let mut at = self.mapping.start.next_multiple_of(HUGE as u64);
        while at + HUGE as u64 <= self.mapping.end {
            let largest = around(at, self.largest);
            let fits = largest.start == at && largest.end <= self.mapping.end;
            if fits && self.promote(largest.clone(), HUGE as u64, self.max_none_largest) {
                at = largest.end;
                continue;
            }
            self.promote(at..at + HUGE as u64, 1, self.max_none);
            at += HUGE as u64;
        }
        if self.clears
            && let Some(block) = self.free_blocks().into_iter().find(|at| !self.is_clear(*at))
        {
            self.cells[block..block + self.largest].fill(Cell::Free { is_clear: true });
            self.counters.bytes_zeroed += self.largest as u64 * PAGE_BYTES;
            self.counters.bytes_zeroed_ahead += self.largest as u64 * PAGE_BYTES;
        }
    }

    /// Makes one page of a range whose pages have at most `part` base pages, of which at most `max_none` are missing.
    fn promote(&mut self, range: Range<u64>, part: u64, max_none: u64) -> bool {
        let size = (range.end - range.start) as usize;
        let old = self.within(&range);
        let missing =
            size as u64 - old.iter().map(|(_, (_, pages))| pages).sum::<u64>().min(size as u64);
        let is_small = old.iter().all(|(_, (_, pages))| *pages <= part);
        if old.is_empty() || !is_small || missing > max_none {
            return false;
        }
        if self.lowest(size).is_none() && self.compacts {
            self.compact_for(size);
        }
        let Some(block) = self.lowest(size) else { return false };
        self.cells[block..block + size].fill(Cell::Fixed);
        // Compaction may have moved them.
        for (page, (frame, pages)) in self.within(&range) {
            self.pages.remove(&page);
            self.free(frame, pages as usize);
            self.counters.bytes_copied += pages * PAGE_BYTES;
        }
        for region in range.start / HUGE as u64..range.end / HUGE as u64 {
            if let Some(node) = self.nodes.remove(&region) {
                self.free(node, 1);
            }
        }
        self.pages.insert(range.start, (block, size as u64));
        self.counters.bytes_zeroed += missing * PAGE_BYTES;
        self.counters.bytes_mapped_untouched += missing * PAGE_BYTES;
        self.counters.promotions += 1;
        true
    }

    /// Compacts memory for a page of `size`. After failures in succession, as many requests do nothing: 1, 3, 7, … and 63
    /// from the sixth on.
    fn compact_for(&mut self, size: usize) {
        let place = usize::from(size == self.largest);
        let (failures, requests) = self.deferrals[place];
        self.deferrals[place].1 += 1;
        if requests < [0, 1, 3, 7, 15, 31, 63][failures as usize] || self.free_frames() < size {
            return;
        }
        self.counters.compactions += 1;
        if size == self.largest {
            self.compact_smartly()
        } else {
            self.compact()
        }
        let failures = if self.lowest(size).is_some() { 0 } else { (failures + 1).min(6) };
        self.deferrals[place] = (failures, 0);
    }

    /// "Smart compaction": frees the region with the most free frames that has nothing unmovable, and moves what it has
    /// to the regions with the fewest.
    fn compact_smartly(&mut self) {
        let (size, all) = (self.largest, self.cells.len());
        let free_in = |start: usize| {
            self.cells[start..(start + size).min(all)].iter().filter(|cell| is_free(cell)).count()
        };
        let mut partly_free: Vec<(usize, usize)> = (0..all)
            .step_by(size)
            .map(|start| (free_in(start), start))
            .filter(|(free, _)| *free > 0 && *free < size)
            .collect();
        partly_free.sort_unstable();
        let room: usize = partly_free.iter().map(|(free, _)| free).sum();
        let movable = partly_free.iter().filter(|(_, start)| {
            start + size <= all && !self.cells[*start..start + size].contains(&Cell::Fixed)
        });
        let most_free = movable.max_by_key(|(free, start)| (*free, std::cmp::Reverse(*start)));
        let Some((_, source)) = most_free.copied().filter(|_| room >= size) else { return };
        let used = source..source + size;
        for from in used.filter(|from| self.cells[*from] == Cell::Movable).collect::<Vec<_>>() {
            let target =
                partly_free.iter().filter(|(_, start)| *start != source).find_map(|(_, start)| {
                    (*start..(start + size).min(all)).rev().find(|at| is_free(&self.cells[*at]))
                });
            self.move_frame(from, target.expect("there is room"));
        }
    }

    /// Compaction for a huge page, as Linux's.
    fn compact(&mut self) {
        let memory = self.cells.iter().map(|cell| match cell {
            Cell::Free { .. } => NaiveFrame::Free,
            Cell::Movable => NaiveFrame::Movable,
            Cell::Fixed => NaiveFrame::Fixed,
        });
        let limits = (1, u64::MAX, u64::MAX);
        let done = NaiveCompaction::of(memory.collect(), &[], HUGE, self.next_block, limits);
        self.next_block = done.next;
        done.moves.into_iter().for_each(|(from, to)| self.move_frame(from, to));
    }

    fn move_frame(&mut self, from: usize, to: usize) {
        self.cells[to] = Cell::Movable;
        self.free(from, 1);
        for (frame, _) in
            self.pages.values_mut().filter(|(frame, pages)| (*frame, *pages) == (from, 1))
        {
            *frame = to;
        }
        self.counters.frames_compacted += 1;
        self.counters.bytes_copied += PAGE_BYTES;
    }

    fn free(&mut self, frame: usize, frames: usize) {
        self.cells[frame..frame + frames].fill(Cell::Free { is_clear: false });
    }

    /// The pages in a range.
    fn within(&self, range: &Range<u64>) -> Vec<(u64, (usize, u64))> {
        let overlaps = |(page, (_, pages)): &(u64, (usize, u64))| {
            *page < range.end && range.start < page + pages
        };
        self.pages().into_iter().filter(overlaps).collect()
    }

    /// The lowest of the smallest free blocks that have `size` frames.
    fn lowest(&self, size: usize) -> Option<usize> {
        let is_free_block = |start: usize, size: usize| {
            start + size <= self.cells.len() && self.cells[start..start + size].iter().all(is_free)
        };
        let mut sizes = std::iter::successors(Some(size), |size| Some(size * 2));
        let sizes: Vec<usize> = sizes.by_ref().take_while(|size| *size <= self.largest).collect();
        sizes.into_iter().find_map(|size| {
            (0..self.cells.len()).step_by(size).find(|start| {
                let is_part =
                    size < self.largest && is_free_block(start / (2 * size) * 2 * size, 2 * size);
                is_free_block(*start, size) && !is_part
            })
        })
    }

    /// The free blocks of the largest size.
    fn free_blocks(&self) -> Vec<usize> {
        let whole = self.cells.len() / self.largest;
        let blocks = (0..whole).map(|number| number * self.largest);
        blocks.filter(|at| self.cells[*at..at + self.largest].iter().all(is_free)).collect()
    }

    fn clear_block(&self) -> Option<usize> {
        self.free_blocks().into_iter().find(|at| self.is_clear(*at))
    }

    fn is_clear(&self, block: usize) -> bool {
        self.cells[block..block + self.largest]
            .iter()
            .all(|cell| *cell == Cell::Free { is_clear: true })
    }
}

fn is_free(cell: &Cell) -> bool {
    matches!(cell, Cell::Free { .. })
}

fn around(page: u64, size: usize) -> Range<u64> {
    let first = page / size as u64 * size as u64;
    first..first + size as u64
}
