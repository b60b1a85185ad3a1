//! The page tables of a process as ChampSim has them: a table is found by all address bits from its own index upwards
//! (`get_pte_pa` in `src/vmem.cc`).

use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_os::page_table::HardwareTable;
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};
use rustc_hash::FxHashMap;

/// Address bits that a level resolves.
pub const INDEX_BITS: u8 = 9;
/// The level below the root; level 1 has the entries of pages of 4 KiB.
pub const BELOW_ROOT: u8 = 4;
const ENTRY_BYTES: u64 = 8;

/// The tables of a process, a frame each.
pub struct Tables {
    root: Option<FrameNumber>,
    /// By level and page number, without the bits of the levels below.
    tables: FxHashMap<(u8, u64), Table>,
    exhausted: Option<OutOfMemory>,
}

/// A table with its one entry.
#[derive(Clone, Copy)]
pub struct Table {
    /// The frame of the table.
    pub frame: FrameNumber,
    /// Whether the entry is that of a page, not of the next table.
    pub has_page: bool,
}

/// The level of the entry of a page: 1 for 4 KiB.
fn level_of(size: PageSize) -> u8 {
    1 + size.base_shift() / INDEX_BITS
}

/// The bits of a page number from a level's index upwards.
fn number(page: PageNumber, level: u8) -> u64 {
    page.raw() >> (INDEX_BITS * (level - 1))
}

/// The address of the entry that the index of a level selects in a table.
pub fn entry(table: FrameNumber, page: PageNumber, level: u8) -> PhysAddr {
    let index = number(page, level) & ((1 << INDEX_BITS) - 1);
    PhysAddr::new(table.start().raw() + index * ENTRY_BYTES)
}

impl Tables {
    /// The root alone.
    pub fn new(frames: &mut Frames) -> Self {
        let mut tables = Tables { root: None, tables: FxHashMap::default(), exhausted: None };
        tables.root = tables.allocate(frames);
        tables
    }

    /// The root; `None` if there was no memory for it.
    pub fn root(&self) -> Option<FrameNumber> {
        self.root
    }

    /// The table with the entry of a page on a level from 1 to [`BELOW_ROOT`], if any.
    pub fn table_of(&self, page: PageNumber, level: u8) -> Option<Table> {
        self.tables.get(&(level, number(page, level))).copied()
    }

    fn allocate(&mut self, frames: &mut Frames) -> Option<FrameNumber> {
        let frame = frames.allocate(Order::BASE, Owner::PageTable);
        self.exhausted = self.exhausted.or(frame.as_ref().err().copied());
        frame.ok()
    }
}

impl HardwareTable for Tables {
    fn map(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames) {
        for level in (level_of(size)..=BELOW_ROOT).rev() {
            let key = (level, number(page, level));
            if !self.tables.contains_key(&key) {
                let Some(frame) = self.allocate(frames) else { return };
                self.tables.insert(key, Table { frame, has_page: false });
            }
        }
        let page_key = (level_of(size), number(page, level_of(size)));
        self.tables.entry(page_key).and_modify(|table| table.has_page = true);
    }

    fn unmap(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames) {
        let level = level_of(size);
        if let Some(table) = self.tables.remove(&(level, number(page, level))) {
            frames.free(table.frame, Order::BASE);
        }
    }

    fn frames(&self) -> u64 {
        self.tables.len() as u64 + u64::from(self.root.is_some())
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        self.exhausted
    }

    fn free(self: Box<Self>, frames: &mut Frames) {
        let tables = self.tables.into_values().map(|table| table.frame);
        for frame in tables.chain(self.root) {
            frames.free(frame, Order::BASE);
        }
    }
}
