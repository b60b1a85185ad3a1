//! The page table of an address space: a radix tree of nodes in simulated frames, with x86-64 entries and
//! four or five levels.
//!
//! A page larger than its level's own size has one entry per page of that size: the first is its *true*
//! entry, the others are *aliases* (Guvenilir and Patt, ISCA 2020, section III.A.1).

mod anchors;
mod change;
mod contiguous;
mod entry;
mod format;
mod gapped;
mod hardware;
mod holes;
mod merged;
mod node;
mod ranges;
mod sorted;
#[cfg(test)]
mod tests;
mod vectors;

pub use anchors::AnchorFormat;
pub use contiguous::Conversion;
pub use entry::{ENTRIES, Entry, INDEX_BITS, SizeEncoding, level_log2, level_of};
pub use format::{Aliases, Format, HoleFilter};
pub use gapped::Gapped;
pub use hardware::{DesignCounter, HardwareTable, MakeTable};
pub use holes::{Holes, PageWithHoles};
pub use node::NodePlace;
pub use ranges::{Range, Ranges};
pub use sorted::{SORTED_LEVELS, SortedFormat};
pub use vectors::{MAX_VECTOR_BITS, PartsUsed, Vectors, parts_of};

use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr, Protection};

use self::anchors::Anchors;
use self::contiguous::ChangedBlocks;
use self::gapped::GappedState;
use self::holes::HoleState;
use self::merged::{MergedNodes, Part};
use self::node::Node;
use self::sorted::SortedNodes;
use crate::frames::{Frames, Order, OutOfMemory};

/// Maximum number of levels.
pub const MAX_LEVELS: u8 = 5;

/// The accessed and dirty bits of a page.
pub type Used = (bool, bool);

/// A mapped page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// Its first base page.
    pub page: PageNumber,
    /// Its first base frame.
    pub frame: FrameNumber,
    /// Its size.
    pub size: PageSize,
    /// Its permissions.
    pub rights: Protection,
}

impl Leaf {
    /// The base frame of one of its base pages.
    #[inline(always)]
    pub fn frame_of(&self, page: PageNumber) -> FrameNumber {
        self.frame.plus(page.raw() & ((1 << self.size.base_shift()) - 1))
    }
}

/// An entry read by a walk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its physical address.
    pub at: PhysAddr,
    /// Its level, 1 for the lowest.
    pub level: u8,
}

/// The entries from the root to a page, in the order in which a walk reads them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    steps: [Step; MAX_LEVELS as usize + 1],
    len: u8,
    /// Whether the last entry read maps a composite page: one with holes ([`PageTable::page_with_holes`]) or a
    /// gapped one ([`PageTable::gapped`]).
    pub is_composite: bool,
    /// The page; `None` if the last entry read maps nothing.
    pub leaf: Option<Leaf>,
    /// The accessed and dirty bits of its true entry.
    pub used: Used,
    /// log2 of the base pages of its block, if its entry has the contiguous hint; otherwise 0.
    block_log2: u8,
}

impl Walk {
    /// The entries: one per level, and the true entry behind an alias.
    pub fn steps(&self) -> &[Step] {
        &self.steps[..usize::from(self.len)]
    }

    fn read(&mut self, at: PhysAddr, level: u8) {
        self.steps[usize::from(self.len)] = Step { at, level };
        self.len += 1;
    }
}

/// Number of entries written by a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Entries of pages, aliases included.
    pub entries: u64,
    /// Aliases among them.
    pub aliases: u64,
}

/// A page table.
pub struct PageTable {
    format: Format,
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// Number of entries that map pages, including aliases, by order of the page.
    entries_by_order: [u64; Order::COUNT],
    /// Ranges of contiguous pages, if enabled.
    ranges: Option<Ranges>,
    holes: HoleState,
    gaps: GappedState,
    merged: MergedNodes,
    sorted: SortedNodes,
    anchors: Anchors,
    /// Blocks with entries changed by the current operation.
    changed_blocks: ChangedBlocks,
    /// Number of entries with the contiguous hint.
    folded_entries: u64,
    /// The table that hardware walks, if it is not the radix tree, whose nodes then have no frames.
    hardware: Option<Box<dyn HardwareTable>>,
    /// Chooses the frames of nodes of level 1, if not any will do.
    node_place: Option<NodePlace>,
}

const ROOT: u32 = 0;

impl PageTable {
    /// An empty page table: a root node. Hardware walks the table that `make` makes, or else the radix tree.
    pub fn new(
        format: Format,
        make: Option<&MakeTable>,
        frames: &mut Frames,
    ) -> Result<Self, OutOfMemory> {
        let mut table = PageTable {
            format,
            nodes: Vec::new(),
            free: Vec::new(),
            entries_by_order: [0; Order::COUNT],
            ranges: (format.keeps_ranges || format.anchors.is_some()).then(Ranges::default),
            holes: HoleState::default(),
            gaps: GappedState::default(),
            merged: MergedNodes::default(),
            sorted: SortedNodes::default(),
            anchors: Anchors::new(format.anchors.map_or(0, |anchors| anchors.first_log2)),
            changed_blocks: ChangedBlocks::default(),
            folded_entries: 0,
            hardware: make.map(|make| make(format.levels, frames)),
            node_place: None,
        };
        table.new_node(format.levels, frames)?;
        Ok(table)
    }

    /// Its format.
    pub fn format(&self) -> Format {
        self.format
    }

    /// The size of the address space in base pages.
    pub fn reach_pages(&self) -> u64 {
        1 << (self.format.levels * INDEX_BITS)
    }

    /// The number of frames of its nodes, with empty places for sorted nodes, or of the table that hardware walks.
    pub fn nodes(&self) -> u64 {
        if let Some(table) = &self.hardware {
            return table.frames();
        }
        self.merged.frames(self.count_nodes()) + self.unused_places()
    }

    fn count_nodes(&self) -> u64 {
        (self.nodes.len() - self.free.len()) as u64
    }

    /// The number of mapped pages of a size.
    pub fn pages(&self, size: PageSize) -> u64 {
        let aliases = aliases_of(size, level_of(size)) as u64;
        self.entries_by_order[Order::of(size).index()] / aliases
    }

    /// The ranges of all pages, if kept.
    pub fn ranges(&self) -> Option<&Ranges> {
        self.ranges.as_ref()
    }

    /// Keeps ranges from now on, including those of pages already mapped.
    pub fn keep_ranges(&mut self) {
        if self.ranges.is_some() {
            return;
        }
        let (mut ranges, mut from) = (Ranges::default(), 0);
        while let Some(leaf) = self.next(PageNumber::new(from), PageNumber::new(u64::MAX)) {
            from = leaf.page.raw() + (1 << leaf.size.base_shift());
            ranges.set(leaf.page.raw()..from, leaf.frame, leaf.rights);
        }
        self.ranges = Some(ranges);
    }

    /// The walk of a base page, from the root on. It has no entries if hardware walks another table.
    pub fn walk(&self, page: PageNumber) -> Walk {
        let mut walk = self.walk_record(page);
        if self.hardware.is_some() {
            walk.len = 0;
        }
        walk
    }

    #[inline(always)]
    fn walk_record(&self, page: PageNumber) -> Walk {
        let none = Step { at: PhysAddr::new(0), level: 0 };
        let mut walk = Walk {
            steps: [none; MAX_LEVELS as usize + 1],
            len: 0,
            is_composite: false,
            leaf: None,
            used: (false, false),
            block_log2: 0,
        };
        let (mut number, mut level) = (ROOT, self.format.levels);
        loop {
            let node = &self.nodes[number as usize];
            let index = index(page, level);
            let entry = node.entries[index];
            match node.part {
                Part::Upper => {
                    if let Some((at, level)) = node.read_in_upper(page, (index, level)) {
                        walk.read(at, level);
                    }
                }
                _ => walk.read(node.entry_addr(index), level),
            }
            if entry.is_page(level) {
                let size = entry.size(level);
                let first = index & !(aliases_of(size, level) - 1);
                if index != first && self.format.aliases == Aliases::Pointers {
                    walk.read(node.entry_addr(first), level);
                }
                let entry = node.entries[first];
                if entry.has_holes() {
                    self.walk_with_holes(page, (number, index), &mut walk);
                    return walk;
                }
                walk.is_composite = entry.is_gapped();
                walk.block_log2 = if entry.is_contiguous() { self.format.block_log2 } else { 0 };
                (walk.leaf, walk.used) =
                    (Some(self.leaf_of(page, (number, first), level)), entry.used());
                return walk;
            }
            if !entry.is_present() {
                return walk;
            }
            (number, level) = (node.children[index], level - 1);
        }
    }

    /// The mapped page that holds a base page, if any.
    pub fn leaf(&self, page: PageNumber) -> Option<Leaf> {
        let (node, index, level) = self.find(page)?;
        Some(self.leaf_of(page, (node, index), level))
    }

    /// The page of the true entry of a level that holds a base page.
    fn leaf_of(&self, page: PageNumber, slot: (u32, usize), level: u8) -> Leaf {
        let entry = self.nodes[slot.0 as usize].entries[slot.1];
        match entry.is_gapped() {
            true => self.base_page_of_gapped(page, slot),
            false => leaf(page, entry, level),
        }
    }

    /// The aligned group of `count` entries (a power of two, up to [`ENTRIES`]) around the entry of a base
    /// page, which one memory read returns. `None` if no 4 KiB page is mapped there.
    pub fn neighbour_entries(&self, page: PageNumber, count: usize) -> Option<&[Entry]> {
        let (node, index, level) = self.find(page)?;
        if level > 1 || self.nodes[node as usize].entries[index].size(level) > PageSize::BASE {
            return None;
        }
        self.entries_around(page, count).map(|(entries, _)| entries)
    }

    /// The aligned group of `count` entries (a power of two, up to [`ENTRIES`]) around the true entry of the page that
    /// holds a base page, which one memory read returns, and their level. `None` if no page is mapped there.
    pub fn entries_around(&self, page: PageNumber, count: usize) -> Option<(&[Entry], u8)> {
        let (node, index, level) = self.find(page)?;
        let first = index & !(count - 1);
        Some((&self.nodes[node as usize].entries[first..first + count], level))
    }

    /// Sets the accessed and, if `written`, the dirty bit of a page's true entry. Returns whether the entry
    /// changed, so that hardware stores it.
    pub fn mark(&mut self, page: PageNumber, written: bool) -> bool {
        let Some((node, index, _)) = self.find(page) else { return false };
        let entry = &mut self.nodes[node as usize].entries[index];
        let before = *entry;
        *entry = entry.marked(written);
        before != *entry
    }

    /// The accessed and dirty bits of the page that holds a base page.
    pub fn used(&self, page: PageNumber) -> Option<Used> {
        let (node, index, _) = self.find(page)?;
        Some(self.used_in_block(node, index))
    }

    /// The first mapped page that overlaps a range of base pages.
    pub fn next(&self, from: PageNumber, end: PageNumber) -> Option<Leaf> {
        let mut page = from.raw();
        let end = end.raw().min(self.reach_pages());
        while page < end {
            match self.reach(PageNumber::new(page)) {
                Ok(_) => return self.leaf(PageNumber::new(page)),
                Err(next) => page = next,
            }
        }
        None
    }

    /// Frees all nodes. Frames of pages still mapped belong to the caller.
    pub fn free_all(mut self, frames: &mut Frames) {
        for index in 0..ENTRIES {
            self.drop_child(ROOT, index, self.format.levels, frames);
        }
        self.free_node(ROOT, self.format.levels, frames);
        self.free_regions(frames);
        if let Some(table) = self.hardware.take() {
            table.free(frames);
        }
    }

    /// The node, index and level of the true entry of the page that holds a base page; otherwise the first
    /// base page past the range known to be unmapped.
    fn reach(&self, page: PageNumber) -> Result<(u32, usize, u8), u64> {
        let (mut number, mut level) = (ROOT, self.format.levels);
        loop {
            let node = &self.nodes[number as usize];
            let index = index(page, level);
            let entry = node.entries[index];
            if entry.is_page(level) {
                if entry.has_holes() {
                    return self.reach_with_holes(page, (number, index));
                }
                let first = index & !(aliases_of(entry.size(level), level) - 1);
                return Ok((number, first, level));
            }
            if !entry.is_present() {
                let shift = (level - 1) * INDEX_BITS;
                return Err(((page.raw() >> shift) + 1) << shift);
            }
            (number, level) = (node.children[index], level - 1);
        }
    }

    /// The node, index and level of the true entry of the page that holds a base page.
    fn find(&self, page: PageNumber) -> Option<(u32, usize, u8)> {
        self.reach(page).ok()
    }
}

/// The index of a base page's entry in its node of `level`.
#[inline(always)]
fn index(page: PageNumber, level: u8) -> usize {
    (page.raw() >> ((level - 1) * INDEX_BITS)) as usize % ENTRIES
}

/// The number of entries of `level` of a page of `size`.
#[inline(always)]
fn aliases_of(size: PageSize, level: u8) -> usize {
    1 << (size.log2() - level_log2(level))
}

/// The page of an entry of `level` that holds a base page; for a page with holes, that base page.
fn leaf(page: PageNumber, entry: Entry, level: u8) -> Leaf {
    let size = entry.size(level);
    if entry.has_holes() {
        let frame = entry.frame(level).plus(page.raw() % ENTRIES as u64);
        return Leaf { page, frame, size: PageSize::BASE, rights: entry.rights() };
    }
    let first = page.raw() >> size.base_shift() << size.base_shift();
    Leaf { page: PageNumber::new(first), frame: entry.frame(level), size, rights: entry.rights() }
}
