//! A page table as two maps: pages by their first base page, and frames of nodes by level and prefix.
//!
//! Written from the format of x86-64 (Intel SDM, volume 3, "Hierarchical Paging Structures") and, for pages of
//! other sizes, from Guvenilir and Patt, ISCA 2020, section III-A.1. Merged nodes are written from Park et al., ASPLOS
//! 2022: an index of 18 bits into a block of 2 MiB, with the entry of a 2 MiB page repeated.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use octavo_types::Protection;

/// A mapped page of `2^order` base pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaivePage {
    pub order: u8,
    /// Its first base frame.
    pub frame: u64,
    pub rights: Protection,
    pub accessed: bool,
    pub dirty: bool,
}

impl NaivePage {
    pub fn base_pages(&self) -> u64 {
        1 << self.order
    }

    /// The level of its entries: level 1 for 4 KiB pages and their multiples below 2 MiB, and so on.
    pub fn level(&self) -> u8 {
        1 + self.order / 9
    }

    /// The number of its entries: one per page of the level's own size, so that every address of the page reads one.
    pub fn entries(&self) -> u64 {
        1 << (self.order % 9)
    }
}

/// An entry that a walk reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NaiveStep {
    pub level: u8,
    pub addr: u64,
}

/// A node: its level, and the bits of the page number above those that index into it.
pub type NodeKey = (u8, u64);

#[derive(Clone, Debug)]
pub struct NaiveTable {
    levels: u8,
    /// Whether alias entries are copies of the true entry, so that walks need not read the true entry.
    has_copies: bool,
    pub pages: BTreeMap<u64, NaivePage>,
    pub nodes: BTreeMap<NodeKey, u64>,
    /// The nodes that are blocks of 2 MiB, merged with the nodes below; these are not in `nodes`.
    pub merged: BTreeSet<NodeKey>,
}

impl NaiveTable {
    /// A table without nodes.
    pub fn new(levels: u8, has_copies: bool) -> Self {
        NaiveTable {
            levels,
            has_copies,
            pages: BTreeMap::new(),
            nodes: BTreeMap::new(),
            merged: BTreeSet::new(),
        }
    }

    /// The number of frames of its nodes.
    pub fn node_frames(&self) -> u64 {
        self.nodes.keys().map(|key| 1 << self.order_of_node(key)).sum()
    }

    /// The order of a node's block.
    pub fn order_of_node(&self, key: &NodeKey) -> u8 {
        if self.merged.contains(key) { 9 } else { 0 }
    }

    /// Whether a node exists: by itself, or merged into the node above.
    pub fn has_node(&self, key: &NodeKey) -> bool {
        let &(level, prefix) = key;
        self.nodes.contains_key(key) || self.merged.contains(&(level + 1, prefix >> 9))
    }

    /// The page that holds a base page, and its first base page.
    pub fn find(&self, page: u64) -> Option<(u64, NaivePage)> {
        let (&first, &held) = self.pages.range(..=page).next_back()?;
        (page < first + held.base_pages()).then_some((first, held))
    }

    /// The pages that overlap a range.
    pub fn overlapping(&self, range: &Range<u64>) -> Vec<(u64, NaivePage)> {
        if range.is_empty() {
            return Vec::new();
        }
        let before = self.find(range.start).filter(|(first, _)| *first < range.start);
        let inside = self.pages.range(range.clone()).map(|(first, page)| (*first, *page));
        before.into_iter().chain(inside).collect()
    }

    /// The keys of the nodes that lead to a page's entries, from the root down.
    pub fn path_to(&self, first: u64, page: &NaivePage) -> Vec<NodeKey> {
        (page.level()..=self.levels).rev().map(|level| (level, first >> (9 * level))).collect()
    }

    /// The nodes below the root that lead to no page.
    pub fn empty_nodes(&self, range: &Range<u64>) -> Vec<NodeKey> {
        let is_empty = |&&(level, prefix): &&NodeKey| {
            let (start, end) = (prefix << (9 * level), (prefix + 1) << (9 * level));
            let overlaps = start < range.end && range.start < end;
            // Pages of the levels above have no entries in this node.
            let has_entries = |(_, page): &(u64, NaivePage)| page.level() <= level;
            level < self.levels
                && overlaps
                && !self.overlapping(&(start..end)).iter().any(has_entries)
        };
        self.nodes.keys().filter(is_empty).copied().collect()
    }

    /// The entries that a walk to a base page reads, from the root on.
    pub fn walk(&self, page: u64) -> Vec<NaiveStep> {
        let mut steps = Vec::new();
        for level in (1..=self.levels).rev() {
            let key = (level, page >> (9 * level));
            if self.merged.contains(&(level + 1, key.1 >> 9)) {
                // The entry of the merged node above serves both levels.
                continue;
            }
            let Some(node) = self.nodes.get(&key) else { break };
            if self.merged.contains(&key) {
                let index = page >> (9 * (level - 2)) & 0x3_ffff;
                steps.push(NaiveStep { level: level - 1, addr: (node << 12) + index * 8 });
                if self.find(page).is_some_and(|(_, held)| held.level() >= level - 1) {
                    break;
                }
                continue;
            }
            let entry_of = |page: u64| {
                let index = page >> (9 * (level - 1)) & 511;
                NaiveStep { level, addr: (node << 12) + index * 8 }
            };
            steps.push(entry_of(page));
            if let Some((first, held)) = self.find(page).filter(|(_, held)| held.level() == level) {
                // "The additional memory access is performed with the bits of virtual address that are actually
                // part of the page offset set to zero."
                let is_alias = entry_of(first) != entry_of(page);
                if held.entries() > 1 && is_alias && !self.has_copies {
                    steps.push(entry_of(first));
                }
                break;
            }
        }
        steps
    }

    /// Sets the accessed bit and, for a store, the dirty bit of a mapped page. Returns whether a bit has changed.
    pub fn mark(&mut self, page: u64, stores: bool) -> bool {
        let (first, before) = self.find(page).unwrap();
        let after = NaivePage { accessed: true, dirty: before.dirty || stores, ..before };
        self.pages.insert(first, after);
        after != before
    }
}
