//! Radix trees for naive twins of page tables: nodes, their frames, and the parts of the address space that they cover.

use std::collections::BTreeMap;

use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_types::{PageNumber, PageSize, PhysAddr};

/// A node: its level, and its number among those of that level.
pub type NodeKey = (u8, u64);

/// Mapped pages: their sizes, by their first pages, in base pages.
pub type MappedPages = BTreeMap<u64, u64>;

/// The pages and nodes of a tree of `levels` levels.
pub struct Tree {
    pub levels: u8,
    pub pages: MappedPages,
    /// Frames by node.
    pub nodes: BTreeMap<NodeKey, u64>,
    pub exhausted: Option<OutOfMemory>,
}

impl Tree {
    pub fn new(levels: u8) -> Tree {
        Tree { levels, pages: BTreeMap::new(), nodes: BTreeMap::new(), exhausted: None }
    }

    /// The missing nodes for a page, from the root on.
    pub fn missing(&self, page: PageNumber, size: PageSize) -> Vec<NodeKey> {
        let levels =
            (1..=self.levels).rev().filter(|level| pages_of_node(*level) > size.bytes() >> 12);
        let keys = levels.map(|level| key(level, page.raw()));
        keys.filter(|key| !self.nodes.contains_key(key)).collect()
    }

    /// Adds a node at a place, or else in a frame that is free.
    pub fn add(&mut self, key: NodeKey, place: Option<u64>, frames: &mut Frames) {
        let allocate = || Ok(frames.allocate(Order::BASE, Owner::PageTable)?.raw());
        match place.map_or_else(allocate, Ok) {
            Ok(frame) => drop(self.nodes.insert(key, frame)),
            Err(error) => self.exhausted = Some(error),
        }
    }

    /// Removes the nodes without entries, but the root. Returns them with their frames.
    pub fn take_empty(&mut self) -> BTreeMap<NodeKey, u64> {
        let (levels, pages) = (self.levels, &self.pages);
        let is_empty = |key: &NodeKey| key.0 < levels && !has_entries(pages, *key);
        let nodes = std::mem::take(&mut self.nodes).into_iter();
        let (empty, kept) = nodes.partition(|(key, _)| is_empty(key));
        self.nodes = kept;
        empty
    }
}

/// The number of base pages in the part of the address space that a node of a level covers.
pub fn pages_of_node(level: u8) -> u64 {
    512u64.pow(u32::from(level))
}

/// The node of a level for a base page.
pub fn key(level: u8, page: u64) -> NodeKey {
    (level, page / pages_of_node(level))
}

/// The address of the entry for a base page in a node of a level that is in this frame.
pub fn entry(frame: u64, level: u8, page: u64) -> PhysAddr {
    PhysAddr::new(frame * 4096 + page / pages_of_node(level - 1) % 512 * 8)
}

/// Whether a node has entries: pages in its part of the address space that are smaller than the part.
pub fn has_entries(pages: &MappedPages, (level, number): NodeKey) -> bool {
    let part = pages_of_node(level);
    pages.range(number * part..(number + 1) * part).any(|(_, size)| *size < part)
}

/// Whether a base page is mapped.
pub fn is_mapped(pages: &MappedPages, page: u64) -> bool {
    pages.range(..=page).next_back().is_some_and(|(first, size)| page < first + size)
}
