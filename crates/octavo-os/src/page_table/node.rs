//! Allocation and release of page-table nodes.

use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

use super::entry::{ENTRIES, Entry};
use super::holes::EntryIndex;
use super::merged::{BLOCK, Part, entry_at};
use super::{MAX_LEVELS, PageTable, ROOT, index};
use crate::frames::{Frames, Order, OutOfMemory, Owner};

/// A node with its shadow node.
const PAIR: Order = Order::new(1).expect("two frames");

/// A rule for frames of nodes of level 1: the frame of the node that maps a base page. If it is not free, the node gets
/// any frame.
pub type NodePlace = Box<dyn Fn(PageNumber) -> FrameNumber + Send>;

/// A node. Free nodes are empty.
pub(super) struct Node {
    /// 0 in a record that hardware does not walk.
    pub frame: FrameNumber,
    pub entries: Box<[Entry; ENTRIES]>,
    /// The child node of each entry; 0, the root, for none.
    pub children: Box<[u32]>,
    pub present: u16,
    /// Whether the next frame is its shadow node.
    pub has_shadow: bool,
    /// Its role in a merged node or a region.
    pub part: Part,
}

impl Node {
    pub fn entry_addr(&self, index: usize) -> PhysAddr {
        entry_at(self.frame, index)
    }

    pub fn set(&mut self, index: usize, entry: Entry) {
        let before = std::mem::replace(&mut self.entries[index], entry);
        self.present -= u16::from(before.is_present());
        self.present += u16::from(entry.is_present());
    }
}

impl PageTable {
    /// Has a rule choose the frames of nodes of level 1 that are made from now on.
    pub fn place_nodes_by(&mut self, place: NodePlace) {
        self.node_place = Some(place);
    }

    pub(super) fn new_node(&mut self, level: u8, frames: &mut Frames) -> Result<u32, OutOfMemory> {
        let pair = match self.has_shadows(level) {
            true => frames.allocate_free(PAIR, Owner::PageTable).ok(),
            false => None,
        };
        let merged = self.block_to_merge(level, frames);
        let frame = match merged.or(pair) {
            Some(block) => block,
            None if self.hardware.is_some() => FrameNumber::new(0),
            None => frames.allocate(Order::BASE, Owner::PageTable)?,
        };
        if pair.is_some() {
            frames.change_owner(frame.plus(1), Order::BASE, Owner::Shadow);
        }
        let part = if merged.is_some() { Part::Upper } else { Part::Ordinary };
        Ok(self.add_node(level, frame, (part, pair.is_some())))
    }

    /// A new node of `level` for a base page, below an entry of the level above.
    pub(super) fn new_child(
        &mut self,
        slot: EntryIndex,
        page: PageNumber,
        level: u8,
        frames: &mut Frames,
    ) -> Result<u32, OutOfMemory> {
        if let Some(frame) = self.frame_in_block(slot) {
            return Ok(self.add_node(level, frame, (Part::Lower, false)));
        }
        match self.claim_place(page, level) {
            Some(frame) => Ok(self.add_node(level, frame, (Part::Sorted, false))),
            None => match self.take_chosen_place(page, level, frames) {
                Some(frame) => Ok(self.add_node(level, frame, (Part::Ordinary, false))),
                None => self.new_node(level, frames),
            },
        }
    }

    /// Takes the frame that the rule for nodes chooses for a new node of `level`, if it is free.
    fn take_chosen_place(
        &self,
        page: PageNumber,
        level: u8,
        frames: &mut Frames,
    ) -> Option<FrameNumber> {
        let place = self.node_place.as_ref().filter(|_| level == 1 && self.hardware.is_none())?;
        let frame = place(page);
        frames.allocate_at(frame, Order::BASE, Owner::PageTable).then_some(frame)
    }

    fn add_node(&mut self, level: u8, frame: FrameNumber, (part, has_shadow): (Part, bool)) -> u32 {
        self.count_node(level, has_shadow);
        self.merged.count(part);
        let children = if level > 1 { ENTRIES } else { 0 };
        let node = Node {
            frame,
            entries: Box::new([Entry::NONE; ENTRIES]),
            children: vec![ROOT; children].into(),
            present: 0,
            has_shadow,
            part,
        };
        match self.free.pop() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        }
    }

    /// Updates page counts before an entry of a node of `level` is overwritten.
    pub(super) fn uncount_entry(&mut self, number: u32, index: usize, level: u8) {
        let entry = self.nodes[number as usize].entries[index];
        self.folded_entries -= u64::from(entry.is_contiguous());
        if entry.has_holes() {
            self.holes.pages -= 1;
        } else if entry.is_gapped() {
            unreachable!("a page with gaps is split before its entry goes");
        } else if entry.is_page(level) {
            self.entries_by_order[Order::of(entry.size(level)).index()] -= 1;
        }
    }

    /// Adds `entries` to the number of entries that map pages of a size.
    pub(super) fn count_page(&mut self, size: PageSize, entries: u64) {
        self.entries_by_order[Order::of(size).index()] += entries;
    }

    /// Frees the nodes below an entry of `level`.
    pub(super) fn drop_child(&mut self, number: u32, index: usize, level: u8, frames: &mut Frames) {
        if level == 1 {
            return;
        }
        self.remove_holes(number, index, frames);
        if self.nodes[number as usize].entries[index].is_gapped() {
            self.split_gapped((number, index), frames);
        }
        let child = std::mem::replace(&mut self.nodes[number as usize].children[index], ROOT);
        if child == ROOT {
            return;
        }
        for below in 0..ENTRIES {
            self.drop_child(child, below, level - 1, frames);
            self.uncount_entry(child, below, level - 1);
        }
        self.free_node(child, level - 1, frames);
        self.free.push(child);
    }

    /// Frees the frames of a node.
    pub(super) fn free_node(&mut self, number: u32, level: u8, frames: &mut Frames) {
        if self.hardware.is_some() {
            return;
        }
        let Node { frame, has_shadow, part, .. } = self.nodes[number as usize];
        match part {
            Part::Ordinary => frames.free(frame, if has_shadow { PAIR } else { Order::BASE }),
            Part::Upper => frames.free(frame, BLOCK),
            Part::Lower => {}
            Part::Sorted => self.release_place(frame, level),
        }
        self.uncount_node(level, has_shadow);
        self.merged.uncount(part);
    }

    /// Frees the empty nodes on the path to a base page.
    pub(super) fn free_empty_nodes(&mut self, page: PageNumber, frames: &mut Frames) {
        if let Some(table) = &mut self.hardware {
            table.free_empty(frames);
        }
        if !self.free_empty_page_with_holes(page, frames) {
            return;
        }
        let mut path = [(ROOT, 0); MAX_LEVELS as usize + 1];
        let (mut number, mut bottom) = (ROOT, self.format.levels);
        while bottom > 1 {
            let index = index(page, bottom);
            path[usize::from(bottom)] = (number, index);
            number = self.nodes[number as usize].children[index];
            if number == ROOT {
                break;
            }
            bottom -= 1;
        }
        // The lowest node on the path has level `bottom`, below an entry of the level above.
        for level in bottom + 1..=self.format.levels {
            let (above, index) = path[usize::from(level)];
            let child = self.nodes[above as usize].children[index];
            if self.nodes[child as usize].present > 0 {
                break;
            }
            self.drop_child(above, index, level, frames);
            self.nodes[above as usize].set(index, Entry::NONE);
        }
    }
}
