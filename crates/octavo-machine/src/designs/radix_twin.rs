//! Nodes of radix trees, for naive twins of page tables: how they divide the address space, and which have entries.

use std::collections::BTreeMap;

use octavo_types::PhysAddr;

/// A node: its level, and its number among those of that level.
pub type NodeKey = (u8, u64);

/// Mapped pages: their sizes, by their first pages, in base pages.
pub type MappedPages = BTreeMap<u64, u64>;

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
