//! Misses of data attributed to the block that holds the address at the time of the miss, and to the
//! instruction. Misses outside blocks are attributed to the region.
//!
//! The study counts misses as usual, and calls the attribution only after an access that has missed. The cost
//! of each miss is one look-up of the block, and one of the pair of stack and instruction.

mod blocks;
mod result;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use octavo_trace::{CodeMap, RegionId};
use octavo_types::{AddrRange, DataItem, Event, ItemKind, PageSize, Segment, VirtAddr};

use super::machine::MachineState;
use crate::sizes::Sizes;
use blocks::Blocks;
pub use result::{AllocationSite, Allocations, AttributedMisses, CodePlace, NamedStack};

/// Maximum number of pairs of place and instruction. Misses of further pairs are counted by place only.
const MOST_PAIRS: usize = 1 << 20;

/// Misses of all levels at one page size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MissColumn {
    /// The page size.
    pub page_size: PageSize,
    /// Whether the column counts page walks of the modelled machine, or misses of the fully associative TLBs.
    pub modelled: bool,
}

impl MissColumn {
    /// The columns of a study.
    pub fn all(sizes: &Sizes, machine: Option<&MachineState>) -> Vec<MissColumn> {
        let column = |modelled| move |page_size| MissColumn { page_size, modelled };
        let machine = machine.into_iter().flat_map(MachineState::page_sizes);
        sizes.iter().map(column(false)).chain(machine.map(column(true))).collect()
    }
}

/// The memory whose access missed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Place {
    /// A block that was allocated by this stack.
    Stack(u32),
    /// No block.
    Region(RegionId),
}

/// The misses of one process by place and instruction.
pub struct Attribution {
    columns: Vec<MissColumn>,
    /// Number of columns of the fully associative TLBs.
    ideal: usize,
    code: CodeMap,
    blocks: Blocks,
    /// The row in `counts`.
    rows: HashMap<(Place, VirtAddr), u32, RandomState>,
    counts: Vec<u64>,
    /// The instruction executed last before the current segment.
    last: VirtAddr,
    is_counting: bool,
}

impl Attribution {
    /// No misses. `wrappers` are patterns of functions that name no site.
    pub fn new(columns: Vec<MissColumn>, wrappers: Vec<String>) -> Self {
        Attribution {
            ideal: columns.iter().filter(|column| !column.modelled).count(),
            columns,
            code: CodeMap::new(),
            blocks: Blocks::new(wrappers),
            rows: HashMap::default(),
            counts: Vec::new(),
            last: VirtAddr::NULL,
            is_counting: true,
        }
    }

    /// Turns the counting of misses on or off. Blocks are always tracked.
    pub fn set_counting(&mut self, counting: bool) {
        self.is_counting = counting;
    }

    /// Records that a segment has executed.
    pub fn executed(&mut self, segment: &Segment) {
        let fetch = segment.items().iter().rev().find(|item| item.kind == ItemKind::Fetch);
        if let Some(fetch) = fetch {
            self.last = fetch.addr;
        }
    }

    /// Counts misses of an item of a segment at `addr`: a bit for each page size of the fully associative TLBs, and for
    /// each page size of the machine. `region` is called outside blocks.
    pub fn missed(
        &mut self,
        segment: &Segment,
        item: &DataItem,
        addr: VirtAddr,
        region: impl FnOnce() -> RegionId,
        [ideal, modelled]: [u32; 2],
    ) {
        if !self.is_counting {
            return;
        }
        let place =
            self.blocks.stack_at(addr).map_or_else(|| Place::Region(region()), Place::Stack);
        let instruction = self.instruction(segment, item);
        let row = self.row(place, instruction) * self.columns.len();
        let counts = &mut self.counts[row..][..self.columns.len()];
        let mut bits = u64::from(ideal) | u64::from(modelled) << self.ideal;
        while bits != 0 {
            counts[bits.trailing_zeros() as usize] += 1;
            bits &= bits - 1;
        }
    }

    fn instruction(&self, segment: &Segment, item: &DataItem) -> VirtAddr {
        let Some(before) = item.fetches_before.checked_sub(1) else { return self.last };
        let mut fetches = segment.items().iter().filter(|item| item.kind == ItemKind::Fetch);
        fetches.nth(before as usize).map_or(VirtAddr::NULL, |item| item.addr)
    }

    fn row(&mut self, place: Place, instruction: VirtAddr) -> usize {
        if let Some(row) = self.rows.get(&(place, instruction)) {
            return *row as usize;
        }
        let instruction = if self.rows.len() < MOST_PAIRS { instruction } else { VirtAddr::NULL };
        let next = self.rows.len() as u32;
        let row = *self.rows.entry((place, instruction)).or_insert(next);
        if row == next {
            self.counts.resize(self.counts.len() + self.columns.len(), 0);
        }
        row as usize
    }

    /// Applies an event that changes blocks or mappings.
    pub fn event(&mut self, event: &Event) {
        match event {
            Event::AllocationStack { number, frames } => self.blocks.define(*number, frames),
            Event::Allocate { block, stack, freed, inherited } => {
                freed.iter().for_each(|freed| self.blocks.release(*freed));
                self.blocks.allocate(*block, *stack, *inherited);
            }
            Event::Release { start } => self.blocks.release(*start),
            Event::Map { range, .. } | Event::Unmap { range } => self.blocks.cut(*range),
            Event::Remap { from, to } if from.start() == to.start() => {
                let removed_bytes = from.bytes().saturating_sub(to.bytes());
                self.blocks.cut(AddrRange::new(to.end(), removed_bytes));
            }
            Event::Remap { from, to } => {
                self.blocks.cut(*from);
                self.blocks.cut(*to);
            }
            _ => {}
        }
        self.code.apply(event);
    }

    /// The counts without the blocks, if only results are read from now on.
    pub fn results_only(&self) -> Self {
        Attribution {
            columns: self.columns.clone(),
            ideal: self.ideal,
            code: self.code.clone(),
            blocks: self.blocks.results_only(),
            rows: self.rows.clone(),
            counts: self.counts.clone(),
            last: self.last,
            is_counting: self.is_counting,
        }
    }
}
