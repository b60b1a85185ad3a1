//! Page tables in formats other than the radix tree.
//!
//! A process whose hardware walks another table keeps the radix tree as the operating system's own record of
//! its pages: the record takes no simulated memory, and no walk reads it.

use std::any::Any;
use std::sync::Arc;

use octavo_types::{PageNumber, PageSize};

use super::{Leaf, PageTable};
use crate::frames::{Frames, OutOfMemory};
use crate::vmas::{Pages, Vmas};

/// A page table that hardware walks in place of the radix tree. It holds the same pages.
///
/// It gives the places of entries; permissions, accessed and dirty bits are in the record. Its frames have the owner
/// [`Owner::PageTable`](crate::frames::Owner::PageTable).
pub trait HardwareTable: Any + Send {
    /// Adds a page, or changes the entry of a page of this size that is mapped there.
    fn map(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames);

    /// Removes a page. Other pages may be mapped in its place before the operation ends.
    fn unmap(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames);

    /// Ends an operation that has mapped, removed or replaced pages: structures that are now empty can be freed.
    fn free_empty(&mut self, _frames: &mut Frames) {}

    /// Called when the mappings in a range have changed: before pages of a new mapping are mapped; after those of one
    /// that has ended are unmapped; and when `mprotect` or `madvise` has split or merged mappings. If `mremap` moves a
    /// mapping, it is called for the old range and then for the new one, before the pages move. A child of `fork` gets
    /// its mappings before its pages.
    fn mappings_changed(&mut self, _pages: &Pages, _vmas: &Vmas, _frames: &mut Frames) {}

    /// The number of frames it takes.
    fn frames(&self) -> u64;

    /// The request for memory that failed, if any. The contents of the table are then undefined, and the machine stops.
    fn exhausted(&self) -> Option<OutOfMemory>;

    /// Its own counters: the same names at each call.
    fn counters(&self) -> Vec<DesignCounter> {
        Vec::new()
    }

    /// Frees its frames.
    fn free(self: Box<Self>, frames: &mut Frames);
}

/// A counter of what a design adds to the operating system: a table in its own format, or a
/// [`Placement`](crate::Placement).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DesignCounter {
    /// Its name.
    pub name: &'static str,
    /// The number of events so far, or the current level.
    pub value: u64,
    /// Whether the value is a level, which ends with the table, rather than a number of events.
    pub is_level: bool,
}

/// Makes the table of a new process, in place of a radix tree with this number of levels. A table that finds no memory
/// is [exhausted](HardwareTable::exhausted) from the start.
pub type MakeTable = Arc<dyn Fn(u8, &mut Frames) -> Box<dyn HardwareTable> + Send + Sync>;

impl PageTable {
    /// The table that hardware walks in place of the radix tree.
    ///
    /// # Panics
    ///
    /// If there is none of this type.
    pub fn hardware<T: HardwareTable>(&self) -> &T {
        let table: Option<&dyn Any> = self.hardware.as_deref().map(|table| table as _);
        table.and_then(<dyn Any>::downcast_ref).expect("a table of the design")
    }

    /// Adds the counters of the table that hardware walks, if it has any.
    pub(crate) fn add_counters(&self, sums: &mut Vec<DesignCounter>) {
        for counter in self.hardware.as_ref().map_or(Vec::new(), |table| table.counters()) {
            match sums.iter_mut().find(|sum| sum.name == counter.name) {
                Some(sum) => sum.value += counter.value,
                None => sums.push(counter),
            }
        }
    }

    /// # Errors
    ///
    /// If the table that hardware walks had no memory to grow.
    pub fn check_hardware(&self) -> Result<(), OutOfMemory> {
        match self.hardware.as_ref().and_then(|table| table.exhausted()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Adds a page to the table that hardware walks, in place of the pages in its range, which the record
    /// still holds.
    pub(super) fn map_in_hardware(
        &mut self,
        page: PageNumber,
        size: PageSize,
        frames: &mut Frames,
    ) {
        if self.hardware.is_none() {
            return;
        }
        let end = PageNumber::new(page.raw() + (1 << size.base_shift()));
        let mut replaced = Vec::new();
        let mut from = page;
        while let Some(leaf) = self.next(from, end) {
            from = PageNumber::new(leaf.page.raw() + (1 << leaf.size.base_shift()));
            if leaf.size != size {
                replaced.push(leaf);
            }
        }
        for leaf in &replaced {
            self.unmap_in_hardware(leaf, frames);
        }
        if let Some(table) = &mut self.hardware {
            table.map(page, size, frames);
            table.free_empty(frames);
        }
    }

    /// Removes a page from the table that hardware walks.
    pub(super) fn unmap_in_hardware(&mut self, leaf: &Leaf, frames: &mut Frames) {
        if let Some(table) = &mut self.hardware {
            table.unmap(leaf.page, leaf.size, frames);
        }
    }
}
