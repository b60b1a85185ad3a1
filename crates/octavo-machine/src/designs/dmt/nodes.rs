//! The nodes of a radix tree, and their frames.

use octavo_os::page_table::{INDEX_BITS, Step};
use octavo_types::{FrameNumber, PageNumber, PhysAddr};
use rustc_hash::FxHashMap;

/// A level and the number of a node: the base page that it begins with, divided by the pages that it maps.
pub type NodeKey = (u8, u64);

/// The highest level with pages: of 1 GiB.
const LAST_PAGE_LEVEL: u8 = 3;
const ENTRIES: usize = 1 << INDEX_BITS;
const ENTRY_BYTES: u64 = 8;

/// The nodes of a tree.
pub struct Nodes {
    levels: u8,
    all: FxHashMap<NodeKey, Node>,
    /// Nodes that have become empty.
    emptied: Vec<NodeKey>,
}

struct Node {
    frame: FrameNumber,
    /// Pages and nodes below. An entry that is changing from one to the other counts for both.
    below: u32,
    /// The entries that map pages.
    pages: [u64; ENTRIES / 64],
}

/// The node of a level that has the entries of a base page.
pub fn key(level: u8, page: PageNumber) -> NodeKey {
    (level, page.raw() >> (level * INDEX_BITS))
}

fn above((level, number): NodeKey) -> NodeKey {
    (level + 1, number >> INDEX_BITS)
}

fn index(level: u8, page: PageNumber) -> usize {
    (page.raw() >> ((level - 1) * INDEX_BITS)) as usize % ENTRIES
}

/// The address of a base page's entry in a node of a level.
pub fn entry_at(frame: FrameNumber, level: u8, page: PageNumber) -> PhysAddr {
    PhysAddr::new(frame.start().raw() + index(level, page) as u64 * ENTRY_BYTES)
}

impl Node {
    /// The word of an entry's bit, and the bit.
    fn bit(index: usize) -> (usize, u64) {
        (index / 64, 1 << (index % 64))
    }

    fn maps(&self, index: usize) -> bool {
        let (word, bit) = Node::bit(index);
        self.pages[word] & bit != 0
    }
}

impl Nodes {
    /// A tree of `levels` levels without nodes.
    pub fn new(levels: u8) -> Self {
        Nodes { levels, all: FxHashMap::default(), emptied: Vec::new() }
    }

    pub fn len(&self) -> u64 {
        self.all.len() as u64
    }

    pub fn frame(&self, key: NodeKey) -> Option<FrameNumber> {
        self.all.get(&key).map(|node| node.frame)
    }

    /// The frames of all nodes.
    pub fn frames(&self) -> impl Iterator<Item = FrameNumber> + '_ {
        self.all.values().map(|node| node.frame)
    }

    /// The missing nodes for a page that an entry of a level maps, from the top down.
    pub fn missing(&self, level: u8, page: PageNumber) -> impl Iterator<Item = NodeKey> + use<> {
        let missing = (level..=self.levels).rev().map(|level| key(level, page));
        missing.filter(|key| !self.all.contains_key(key)).collect::<Vec<_>>().into_iter()
    }

    /// Adds a node in a frame, below one that exists.
    pub fn add(&mut self, key: NodeKey, frame: FrameNumber) {
        self.all.insert(key, Node { frame, below: 0, pages: [0; ENTRIES / 64] });
        if let Some(above) = self.all.get_mut(&above(key)) {
            above.below += 1;
        }
    }

    /// Moves a node that exists.
    pub fn move_to(&mut self, key: NodeKey, frame: FrameNumber) {
        self.all.get_mut(&key).expect("the node exists").frame = frame;
    }

    /// Adds a page that an entry of a level maps.
    pub fn map(&mut self, level: u8, page: PageNumber) {
        let node = self.all.get_mut(&key(level, page)).expect("its nodes are there");
        let (word, bit) = Node::bit(index(level, page));
        node.below += u32::from(node.pages[word] & bit == 0);
        node.pages[word] |= bit;
    }

    /// Removes a page that an entry of a level maps.
    pub fn unmap(&mut self, level: u8, page: PageNumber) {
        let key = key(level, page);
        let Some(node) = self.all.get_mut(&key) else { return };
        let (word, bit) = Node::bit(index(level, page));
        node.below -= u32::from(node.pages[word] & bit != 0);
        node.pages[word] &= !bit;
        if node.below == 0 {
            self.emptied.push(key);
        }
    }

    /// Notes that the nodes above one that could not be made may be empty.
    pub fn note_unfinished(&mut self, key: NodeKey) {
        self.emptied.push(above(key));
    }

    /// Removes nodes that have stayed empty, with their frames. The root stays.
    pub fn take_empty(&mut self) -> Vec<(NodeKey, FrameNumber)> {
        let mut taken = Vec::new();
        for mut key in std::mem::take(&mut self.emptied) {
            while key.0 < self.levels && self.all.get(&key).is_some_and(|node| node.below == 0) {
                taken.extend(self.all.remove(&key).map(|node| (key, node.frame)));
                key = above(key);
                self.all.get_mut(&key).expect("a node is below another").below -= 1;
            }
        }
        taken
    }

    /// The entry of the page that holds a base page.
    pub fn entry(&self, page: PageNumber) -> Option<PhysAddr> {
        (1..=LAST_PAGE_LEVEL).find_map(|level| {
            let node = self.all.get(&key(level, page))?;
            node.maps(index(level, page)).then(|| entry_at(node.frame, level, page))
        })
    }

    /// The entries from the root to the page that holds a base page, or to the entry that is missing.
    pub fn walk(&self, page: PageNumber) -> impl Iterator<Item = Step> + '_ {
        let mut is_found = false;
        (1..=self.levels).rev().map_while(move |level| {
            let node = self.all.get(&key(level, page)).filter(|_| !is_found)?;
            is_found = node.maps(index(level, page));
            Some(Step { at: entry_at(node.frame, level, page), level })
        })
    }
}
