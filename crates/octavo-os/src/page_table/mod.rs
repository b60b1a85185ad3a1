//! The page table of an address space: a radix tree of nodes in simulated frames, with the entries
//! of x86-64, on four levels or five.
//!
//! A page larger than its level's own size has an entry for each page of that size in it: its
//! *true* entry is the first, the others are *aliases* (Tailored Page Sizes, section III.A.1).

mod change;
mod entry;
mod format;
mod gapped;
mod node;
mod perforated;
mod ranges;
#[cfg(test)]
mod tests;
mod vectors;

pub use entry::{ENTRIES, Entry, INDEX_BITS, SizeEncoding, level_log2, level_of};
pub use format::{Aliases, Format};
pub use gapped::Gapped;
pub use perforated::{Holes, Perforated};
pub use ranges::{Range, Ranges};
pub use vectors::{MAX_VECTOR_BITS, PartsUsed, Vectors, parts_of};

use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr, Protection};

use self::gapped::GappedState;
use self::node::Node;
use self::perforated::PerforationState;
use crate::frames::{Frames, Order, OutOfMemory};

/// The most levels that a page table has.
pub const MAX_LEVELS: u8 = 5;

/// Whether a page has been used, and written to.
pub type Used = (bool, bool);

/// A page and where it lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaf {
    /// Its first base page.
    pub page: PageNumber,
    /// Its first base frame.
    pub frame: FrameNumber,
    /// Its size.
    pub size: PageSize,
    /// What it may be used for.
    pub rights: Protection,
}

impl Leaf {
    /// The base frame of one of its base pages.
    #[inline(always)]
    pub fn frame_of(&self, page: PageNumber) -> FrameNumber {
        self.frame.plus(page.raw() & ((1 << self.size.base_shift()) - 1))
    }
}

/// One entry that a walk reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Where the entry lies.
    pub at: PhysAddr,
    /// Of which level it is, 1 the lowest.
    pub level: u8,
}

/// All entries between the root and a page, in the order in which a walk reads them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Walk {
    steps: [Step; MAX_LEVELS as usize + 1],
    len: u8,
    /// Whether the last entry read is of a perforated page: [`PageTable::perforated`] tells what else
    /// there is to it.
    pub is_perforated: bool,
    /// The page; none where the last entry read maps nothing.
    pub leaf: Option<Leaf>,
    /// How its true entry says that the page was used.
    pub used: Used,
}

impl Walk {
    /// The entries: one a level, and the true entry behind an alias.
    pub fn steps(&self) -> &[Step] {
        &self.steps[..usize::from(self.len)]
    }

    fn read(&mut self, at: PhysAddr, level: u8) {
        self.steps[usize::from(self.len)] = Step { at, level };
        self.len += 1;
    }
}

/// The entries that a change has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Entries of pages, aliases included.
    pub entries: u64,
    /// How many of those are aliases.
    pub aliases: u64,
}

/// A page table.
pub struct PageTable {
    format: Format,
    nodes: Vec<Node>,
    free: Vec<u32>,
    /// Entries that map pages, aliases included, by the order of the page.
    entries_by_order: [u64; Order::COUNT],
    /// Kept where somebody asked for them.
    ranges: Option<Ranges>,
    perforations: PerforationState,
    gaps: GappedState,
}

const ROOT: u32 = 0;

impl PageTable {
    /// An empty one: a root that leads nowhere.
    pub fn new(format: Format, frames: &mut Frames) -> Result<Self, OutOfMemory> {
        let mut table = PageTable {
            format,
            nodes: Vec::new(),
            free: Vec::new(),
            entries_by_order: [0; Order::COUNT],
            ranges: None,
            perforations: PerforationState::default(),
            gaps: GappedState::default(),
        };
        table.new_node(format.levels, frames)?;
        Ok(table)
    }

    /// What it looks like.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How many base pages it can translate: the address space has no others.
    pub fn reach_pages(&self) -> u64 {
        1 << (self.format.levels * INDEX_BITS)
    }

    /// How many frames it takes.
    pub fn nodes(&self) -> u64 {
        (self.nodes.len() - self.free.len()) as u64
    }

    /// How many pages of a size are mapped.
    pub fn pages(&self, size: PageSize) -> u64 {
        let aliases = aliases_of(size, level_of(size)) as u64;
        self.entries_by_order[Order::of(size).index()] / aliases
    }

    /// The ranges that all pages make up, where they are kept.
    pub fn ranges(&self) -> Option<&Ranges> {
        self.ranges.as_ref()
    }

    /// Keeps ranges from now on, of what is mapped already, too.
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

    /// What a walk for a base page reads, from the root on.
    pub fn walk(&self, page: PageNumber) -> Walk {
        let none = Step { at: PhysAddr::new(0), level: 0 };
        let mut walk = Walk {
            steps: [none; MAX_LEVELS as usize + 1],
            len: 0,
            is_perforated: false,
            leaf: None,
            used: (false, false),
        };
        let (mut number, mut level) = (ROOT, self.format.levels);
        loop {
            let node = &self.nodes[number as usize];
            let index = index(page, level);
            let entry = node.entries[index];
            walk.read(node.entry_addr(index), level);
            if entry.is_page(level) {
                let size = entry.size(level);
                let first = index & !(aliases_of(size, level) - 1);
                if index != first && self.format.aliases == Aliases::Pointers {
                    walk.read(node.entry_addr(first), level);
                }
                let entry = node.entries[first];
                if entry.is_perforated() {
                    self.walk_perforated(page, (number, index), &mut walk);
                    return walk;
                }
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

    /// The page that holds a base page, if one is mapped.
    pub fn leaf(&self, page: PageNumber) -> Option<Leaf> {
        let (node, index, level) = self.find(page)?;
        Some(self.leaf_of(page, (node, index), level))
    }

    /// The page of a true entry of a level that holds a base page.
    fn leaf_of(&self, page: PageNumber, of: (u32, usize), level: u8) -> Leaf {
        let entry = self.nodes[of.0 as usize].entries[of.1];
        match entry.is_gapped() {
            true => self.base_page_of_gapped(page, of),
            false => leaf(page, entry, level),
        }
    }

    /// The `count` entries (a power of two, up to [`ENTRIES`]) around that of a base page, from a
    /// multiple of `count` on: what one read of memory shows beside it. None where no page of 4 KiB
    /// is mapped there.
    pub fn neighbour_entries(&self, page: PageNumber, count: usize) -> Option<&[Entry]> {
        let (node, index, level) = self.find(page)?;
        let entries = &self.nodes[node as usize].entries;
        if level > 1 || entries[index].size(level) > PageSize::BASE {
            return None;
        }
        let first = index & !(count - 1);
        Some(&entries[first..first + count])
    }

    /// Notes that a page was used, and perhaps written to, in its true entry. Returns whether that
    /// changed it: hardware then stores the entry.
    pub fn mark(&mut self, page: PageNumber, written: bool) -> bool {
        let Some((node, index, _)) = self.find(page) else { return false };
        let entry = &mut self.nodes[node as usize].entries[index];
        let before = *entry;
        *entry = entry.marked(written);
        before != *entry
    }

    /// Whether the page that holds a base page has been used, and written to.
    pub fn used(&self, page: PageNumber) -> Option<Used> {
        let (node, index, _) = self.find(page)?;
        Some(self.nodes[node as usize].entries[index].used())
    }

    /// The first page that is mapped in a range of base pages, if any: one that begins before it
    /// and reaches into it counts.
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

    /// Gives all nodes back. Pages that are still mapped are their owner's.
    pub fn free_all(mut self, frames: &mut Frames) {
        for index in 0..ENTRIES {
            self.drop_child(ROOT, index, self.format.levels, frames);
        }
        self.free_node(ROOT, self.format.levels, frames);
    }

    /// The node, index and level of the true entry of the page that holds a base page, or the first
    /// base page past what is known not to be mapped.
    fn reach(&self, page: PageNumber) -> Result<(u32, usize, u8), u64> {
        let (mut number, mut level) = (ROOT, self.format.levels);
        loop {
            let node = &self.nodes[number as usize];
            let index = index(page, level);
            let entry = node.entries[index];
            if entry.is_page(level) {
                if entry.is_perforated() {
                    return self.reach_perforated(page, (number, index));
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

/// Which entry of its node of `level` leads to a base page.
#[inline(always)]
fn index(page: PageNumber, level: u8) -> usize {
    (page.raw() >> ((level - 1) * INDEX_BITS)) as usize % ENTRIES
}

/// How many entries of `level` a page of `size` has.
#[inline(always)]
fn aliases_of(size: PageSize, level: u8) -> usize {
    1 << (size.log2() - level_log2(level))
}

/// The page of an entry of `level` that holds a base page: of a perforated page, that base page.
fn leaf(page: PageNumber, entry: Entry, level: u8) -> Leaf {
    let size = entry.size(level);
    if entry.is_perforated() {
        let frame = entry.frame(level).plus(page.raw() % ENTRIES as u64);
        return Leaf { page, frame, size: PageSize::BASE, rights: entry.rights() };
    }
    let first = page.raw() >> size.base_shift() << size.base_shift();
    Leaf { page: PageNumber::new(first), frame: entry.frame(level), size, rights: entry.rights() }
}
