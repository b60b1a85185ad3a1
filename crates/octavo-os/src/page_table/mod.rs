//! The page table of an address space: a radix tree of nodes in simulated frames, with the entries
//! of x86-64, on four levels or five.
//!
//! A page larger than its level's own size has an entry for each page of that size in it: its
//! *true* entry is the first, the others are *aliases* (Tailored Page Sizes, section III.A.1).

mod entry;
mod ranges;
#[cfg(test)]
mod tests;

pub use entry::{ENTRIES, Entry, INDEX_BITS, SizeEncoding, level_log2, level_of};
pub use ranges::{Range, Ranges};

use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr, Protection};

use crate::frames::{Frames, Holder, Order, OutOfMemory};

/// The most levels that a page table has.
pub const MAX_LEVELS: u8 = 5;

/// What an alias holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Aliases {
    /// The size alone: a walk that meets one reads the true entry too.
    #[default]
    Pointers,
    /// A copy of the true entry, which every change of the page has to write.
    Copies,
}

/// What a page table looks like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    /// Four or five.
    pub levels: u8,
    /// How sizes between those of x86-64 are written.
    pub encoding: SizeEncoding,
    /// What stands in their aliases.
    pub aliases: Aliases,
}

impl Default for Format {
    fn default() -> Self {
        Format { levels: 4, encoding: SizeEncoding::default(), aliases: Aliases::default() }
    }
}

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
    /// The page; none where the last entry read maps nothing.
    pub leaf: Option<Leaf>,
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

/// A node. Those that are free hold nothing.
struct Node {
    frame: FrameNumber,
    entries: Box<[Entry; ENTRIES]>,
    /// The node that each entry leads to; 0, the root, where it leads to none.
    children: Box<[u32]>,
    present: u16,
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
    /// Kept where somebody asked for them.
    ranges: Option<Ranges>,
}

const ROOT: u32 = 0;

impl PageTable {
    /// An empty one: a root that leads nowhere.
    pub fn new(format: Format, frames: &mut Frames) -> Result<Self, OutOfMemory> {
        let mut table = PageTable { format, nodes: Vec::new(), free: Vec::new(), ranges: None };
        table.new_node(format.levels, frames)?;
        Ok(table)
    }

    /// What it looks like.
    pub fn format(&self) -> Format {
        self.format
    }

    /// How many frames it takes.
    pub fn nodes(&self) -> u64 {
        (self.nodes.len() - self.free.len()) as u64
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
        let mut walk = Walk { steps: [none; MAX_LEVELS as usize + 1], len: 0, leaf: None };
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
                walk.leaf = Some(leaf(page, node.entries[first], level));
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
        Some(leaf(page, self.nodes[node as usize].entries[index], level))
    }

    /// Maps a page of `size` from base page `page` on at `frame`; what its range held before is
    /// no longer mapped.
    ///
    /// # Panics
    /// Where the page or the frame is not aligned to the size, or a larger page is in the way: the
    /// caller splits that one first.
    pub fn map(
        &mut self,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        rights: Protection,
        frames: &mut Frames,
    ) -> Result<Written, OutOfMemory> {
        let base_pages = 1u64 << size.base_shift();
        let aligned = |number: u64| number.is_multiple_of(base_pages);
        assert!(aligned(page.raw()) && aligned(frame.raw()), "not aligned");
        let target = level_of(size);
        let (mut number, mut level) = (ROOT, self.format.levels);
        while level > target {
            let index = index(page, level);
            let entry = self.nodes[number as usize].entries[index];
            assert!(!entry.is_page(level), "a larger page is in the way");
            if !entry.is_present() {
                let child = self.new_node(level - 1, frames)?;
                let at = self.nodes[child as usize].frame;
                let node = &mut self.nodes[number as usize];
                node.set(index, Entry::node(at));
                node.children[index] = child;
            }
            (number, level) = (self.nodes[number as usize].children[index], level - 1);
        }
        let entry = Entry::page(frame, size, rights, self.format.encoding);
        let (first, count) = (index(page, level), aliases_of(size, level));
        for index in first..first + count {
            self.drop_child(number, index, level, frames);
            self.nodes[number as usize].set(index, entry);
        }
        if let Some(ranges) = &mut self.ranges {
            ranges.set(page.raw()..page.raw() + base_pages, frame, entry.rights());
        }
        Ok(Written { entries: count as u64, aliases: count as u64 - 1 })
    }

    /// Unmaps the page that holds a base page, and tells which it was. Nodes that become empty are
    /// given back.
    pub fn unmap(&mut self, page: PageNumber, frames: &mut Frames) -> Option<Leaf> {
        let (node, first, level) = self.find(page)?;
        let leaf = leaf(page, self.nodes[node as usize].entries[first], level);
        for index in first..first + aliases_of(leaf.size, level) {
            self.nodes[node as usize].set(index, Entry::NONE);
        }
        if let Some(ranges) = &mut self.ranges {
            let first = leaf.page.raw();
            ranges.clear(first..first + (1 << leaf.size.base_shift()));
        }
        self.give_back_empty(page, frames);
        Some(leaf)
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
    pub fn used(&self, page: PageNumber) -> Option<(bool, bool)> {
        let (node, index, _) = self.find(page)?;
        Some(self.nodes[node as usize].entries[index].used())
    }

    /// The first page that is mapped in a range of base pages, if any: one that begins before it
    /// and reaches into it counts.
    pub fn next(&self, from: PageNumber, end: PageNumber) -> Option<Leaf> {
        let mut page = from.raw();
        let end = end.raw().min(1 << (self.format.levels * INDEX_BITS));
        while page < end {
            match self.reach(PageNumber::new(page)) {
                Ok(_) => return self.leaf(PageNumber::new(page)),
                Err(next) => page = next,
            }
        }
        None
    }

    /// Gives all nodes back. Pages that are still mapped are their owner's.
    pub fn dissolve(mut self, frames: &mut Frames) {
        for index in 0..ENTRIES {
            self.drop_child(ROOT, index, self.format.levels, frames);
        }
        frames.free(self.nodes[ROOT as usize].frame, Order::BASE);
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

    fn new_node(&mut self, level: u8, frames: &mut Frames) -> Result<u32, OutOfMemory> {
        let frame = frames.allocate(Order::BASE, Holder::PageTable)?;
        let children = if level > 1 { ENTRIES } else { 0 };
        let node = Node {
            frame,
            entries: Box::new([Entry::NONE; ENTRIES]),
            children: vec![ROOT; children].into(),
            present: 0,
        };
        Ok(match self.free.pop() {
            Some(number) => {
                self.nodes[number as usize] = node;
                number
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        })
    }

    /// Gives back the nodes below an entry of `level`.
    fn drop_child(&mut self, number: u32, index: usize, level: u8, frames: &mut Frames) {
        if level == 1 {
            return;
        }
        let child = std::mem::replace(&mut self.nodes[number as usize].children[index], ROOT);
        if child == ROOT {
            return;
        }
        for below in 0..ENTRIES {
            self.drop_child(child, below, level - 1, frames);
        }
        frames.free(self.nodes[child as usize].frame, Order::BASE);
        self.free.push(child);
    }

    /// Gives back the nodes on the way to a base page that hold nothing any more.
    fn give_back_empty(&mut self, page: PageNumber, frames: &mut Frames) {
        let mut way = Vec::with_capacity(usize::from(MAX_LEVELS));
        let (mut number, mut level) = (ROOT, self.format.levels);
        while level > 1 {
            let index = index(page, level);
            way.push((number, index, level));
            number = self.nodes[number as usize].children[index];
            level -= 1;
            if number == ROOT {
                break;
            }
        }
        for (above, index, level) in way.into_iter().rev() {
            let child = self.nodes[above as usize].children[index];
            if child != ROOT && self.nodes[child as usize].present > 0 {
                break;
            }
            if child != ROOT {
                self.drop_child(above, index, level, frames);
                self.nodes[above as usize].set(index, Entry::NONE);
            }
        }
    }
}

impl Node {
    fn entry_addr(&self, index: usize) -> PhysAddr {
        PhysAddr::new(self.frame.start().raw() + index as u64 * size_of::<Entry>() as u64)
    }

    fn set(&mut self, index: usize, entry: Entry) {
        let before = std::mem::replace(&mut self.entries[index], entry);
        self.present -= u16::from(before.is_present());
        self.present += u16::from(entry.is_present());
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

fn leaf(page: PageNumber, entry: Entry, level: u8) -> Leaf {
    let size = entry.size(level);
    let first = page.raw() >> size.base_shift() << size.base_shift();
    Leaf { page: PageNumber::new(first), frame: entry.frame(level), size, rights: entry.rights() }
}
