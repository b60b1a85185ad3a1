//! Live blocks as a list, and misses of data by block and instruction.

use std::collections::BTreeMap;

use octavo_types::{AddrRange, Consumer, Event, ItemKind, PageSize, Segment, VirtAddr};

use crate::{NaiveHierarchy, executed, pages_touched};

/// A live block.
struct Block {
    start: u64,
    end: u64,
    stack: u32,
}

/// Counts of the blocks of one stack.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NaiveBlockCounts {
    /// Blocks allocated by the process itself.
    pub allocated: u64,
    /// The most bytes live at one time.
    pub most_bytes: u64,
}

/// Misses of fully associative LRU TLBs by allocation stack and instruction, for each page size. The stack is
/// the number of the one that allocated the block of the address, or `None` outside blocks. Each stack is a
/// site of its own.
pub struct NaiveAllocations {
    sizes: Vec<PageSize>,
    tlbs: Vec<NaiveHierarchy>,
    blocks: Vec<Block>,
    counts: BTreeMap<u32, NaiveBlockCounts>,
    misses: BTreeMap<(Option<u32>, VirtAddr), Vec<u64>>,
    levels: usize,
    /// The current instruction.
    instruction: VirtAddr,
}

impl NaiveAllocations {
    /// TLBs of `entries` by level at each page size.
    pub fn new(sizes: &[PageSize], entries: &[usize]) -> Self {
        NaiveAllocations {
            sizes: sizes.to_vec(),
            tlbs: sizes.iter().map(|_| NaiveHierarchy::new(entries)).collect(),
            blocks: Vec::new(),
            counts: BTreeMap::new(),
            misses: BTreeMap::new(),
            levels: entries.len(),
            instruction: VirtAddr::NULL,
        }
    }

    /// Misses of all levels by stack and instruction, for each page size.
    pub fn misses(&self) -> &BTreeMap<(Option<u32>, VirtAddr), Vec<u64>> {
        &self.misses
    }

    /// The counts of each stack that has allocated a block.
    pub fn counts(&self) -> &BTreeMap<u32, NaiveBlockCounts> {
        &self.counts
    }

    /// The stack of the last block that begins at or before the address, if the block extends to the address.
    fn stack_at(&self, addr: VirtAddr) -> Option<u32> {
        let before = self.blocks.iter().filter(|block| block.start <= addr.raw());
        let last = before.max_by_key(|block| block.start)?;
        (addr.raw() < last.end).then_some(last.stack)
    }

    fn reference(&mut self, addr: VirtAddr, bytes: u16) {
        for index in 0..self.sizes.len() {
            for (page, first_byte) in pages_touched(addr, bytes, self.sizes[index]) {
                if self.tlbs[index].access(page) == self.levels {
                    let stack = self.stack_at(first_byte);
                    let zeros = vec![0; self.sizes.len()];
                    self.misses.entry((stack, self.instruction)).or_insert(zeros)[index] += 1;
                }
            }
        }
    }

    fn live_bytes(&self, stack: u32) -> u64 {
        let own = self.blocks.iter().filter(|block| block.stack == stack);
        own.map(|block| block.end - block.start).sum()
    }

    /// Removes the blocks that begin in a range, and cuts the block that extends into it.
    fn cut(&mut self, range: AddrRange) {
        let (start, end) = (range.start().raw(), range.end().raw());
        if start == end {
            return;
        }
        self.blocks.retain(|block| !(start..end).contains(&block.start));
        let before = self.blocks.iter_mut().filter(|block| block.start < start);
        if let Some(last) = before.max_by_key(|block| block.start) {
            last.end = last.end.min(start);
        }
    }
}

impl Consumer for NaiveAllocations {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        for (item, addr) in executed(segment, addresses) {
            match item.kind {
                ItemKind::Fetch => self.instruction = item.addr,
                ItemKind::Load | ItemKind::Store => self.reference(addr, item.size_bytes),
                ItemKind::Modify => {
                    self.reference(addr, item.size_bytes);
                    self.reference(addr, item.size_bytes);
                }
            }
        }
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Allocate { block, stack, freed, inherited } => {
                self.blocks.retain(|old| Some(VirtAddr::new(old.start)) != *freed);
                let (start, end) = (block.start().raw(), block.end().raw());
                if start == end {
                    return;
                }
                self.blocks.retain(|old| !(start..end).contains(&old.start));
                self.blocks.push(Block { start, end, stack: *stack });
                let live = self.live_bytes(*stack);
                let counts = self.counts.entry(*stack).or_default();
                counts.allocated += u64::from(!inherited);
                counts.most_bytes = counts.most_bytes.max(live);
            }
            Event::Release { start } => self.blocks.retain(|block| block.start != start.raw()),
            Event::Map { range, .. } | Event::Unmap { range } => self.cut(*range),
            Event::Remap { from, to } if from.start() != to.start() => {
                self.cut(*from);
                self.cut(*to);
            }
            Event::Remap { from, to } => {
                let removed_bytes = from.bytes().saturating_sub(to.bytes());
                self.cut(AddrRange::new(to.end(), removed_bytes));
            }
            _ => {}
        }
    }
}
