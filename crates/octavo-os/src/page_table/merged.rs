//! Merged nodes (Park, Vougioukas, Sandberg and Black-Schaffer, "Every Walk's a Hit: Making Page Walks Single-Access
//! Cache Hits", ASPLOS 2022): two levels of the radix tree as one, with 18 index bits, in an aligned block of 2 MiB.
//!
//! Levels 4 and 3 may be merged, and levels 2 and 1. A node of the upper level owns the block. The node below its entry
//! *i* is frame *i* of the block, and takes no memory of its own: the upper index selects a frame of the block, and the
//! lower index an entry in this frame. The tree here keeps both levels, but entries of upper nodes take no memory and
//! are not read: a walk reads one entry for both levels, which counts as an entry of the lower level.
//!
//! A page of 2 MiB below a merged node has 512 equal entries, a whole frame of the block. Its accessed and dirty bits
//! are kept once, as if all its entries shared them.
//!
//! If no block is free for a node of an upper level, this node and the nodes below it are ordinary. A block is
//! allocated only if all frames remain that operations have
//! [ensured and not used](crate::frames::Frames::allocate_surplus).

use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

use super::entry::{ENTRIES, Entry};
use super::holes::EntryIndex;
use super::node::Node;
use super::{PageTable, index};
use crate::frames::{Frames, Order, Owner};

/// The block of a merged node.
pub(super) const BLOCK: Order = Order::of(PageSize::HUGE);

/// The role of a node in a merged node or a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Part {
    /// None: the node has a frame of its own.
    #[default]
    Ordinary,
    /// The upper level of a merged node, which owns the block.
    Upper,
    /// The lower level of a merged node, in a frame of the block.
    Lower,
    /// A sorted node, in a region.
    Sorted,
}

/// The number of nodes that are parts of merged ones.
#[derive(Default)]
pub(super) struct MergedNodes {
    upper: u64,
    lower: u64,
}

impl MergedNodes {
    /// The number of frames of `nodes` nodes, which are all nodes of the table.
    pub fn frames(&self, nodes: u64) -> u64 {
        nodes - self.lower - self.upper + self.upper * BLOCK.frames()
    }

    pub fn count(&mut self, part: Part) {
        self.upper += u64::from(part == Part::Upper);
        self.lower += u64::from(part == Part::Lower);
    }

    pub fn uncount(&mut self, part: Part) {
        self.upper -= u64::from(part == Part::Upper);
        self.lower -= u64::from(part == Part::Lower);
    }
}

impl PageTable {
    /// Allocates a block for a new node of a level and the nodes below it, if these levels may be merged and memory has
    /// a spare block.
    pub(super) fn block_to_merge(&self, level: u8, frames: &mut Frames) -> Option<FrameNumber> {
        let merges = level.is_multiple_of(2) && self.format.merges[usize::from(level / 2 - 1)];
        if merges { frames.allocate_surplus(BLOCK, Owner::PageTable) } else { None }
    }

    /// The frame of the node below an entry of a merged node's upper level.
    pub(super) fn frame_in_block(&self, (node, at): EntryIndex) -> Option<FrameNumber> {
        let node = &self.nodes[node as usize];
        (node.part == Part::Upper).then(|| node.frame.plus(at as u64))
    }

    /// The number of frames of new nodes of these levels for a base page, from the top down, below a node.
    pub(super) fn frames_below(
        &self,
        node: u32,
        page: PageNumber,
        levels: impl Iterator<Item = u8>,
    ) -> u64 {
        let is_in_block = self.nodes[node as usize].part == Part::Upper;
        levels.skip(usize::from(is_in_block)).map(|level| self.frames_of_new(page, level)).sum()
    }

    /// The number of frames of a new node of a level for a base page.
    pub(super) fn frames_of_new(&self, page: PageNumber, level: u8) -> u64 {
        if self.has_place(page, level) { 0 } else { self.frames_of_node(level) }
    }

    /// The number of equal entries in memory for each entry of a node.
    pub(super) fn copies_of_entry(&self, node: u32) -> u64 {
        if self.nodes[node as usize].part == Part::Upper { ENTRIES as u64 } else { 1 }
    }
}

impl Node {
    /// The address and level of the entry that a walk of a base page reads in an upper node; `None` if the walk
    /// continues in the node below.
    #[inline(never)]
    pub(super) fn read_in_upper(
        &self,
        page: PageNumber,
        (at, level): (usize, u8),
    ) -> Option<(PhysAddr, u8)> {
        let entry = self.entries[at];
        let is_last = !entry.is_present() || entry.is_page(level);
        is_last.then(|| (entry_at(self.frame.plus(at as u64), index(page, level - 1)), level - 1))
    }
}

/// The address of an entry of a node in a frame.
pub(super) fn entry_at(frame: FrameNumber, index: usize) -> PhysAddr {
    PhysAddr::new(frame.start().raw() + index as u64 * size_of::<Entry>() as u64)
}
