//! An operating system under running programs: changes of mappings, and the invalidations that they cause.

use octavo_types::{FrameNumber, PageNumber, PhysAddr};

use crate::memory::{Exchange, Invalidation, Memory, ProcessId};
use crate::os::Os;

/// An operating system whose mappings change only by [`RunningOs::change`], which returns the invalidations.
pub struct RunningOs(Os);

/// The invalidations that a change of mappings causes. Cached translations are wrong until all are delivered.
#[must_use = "cached translations are wrong until these are delivered"]
#[derive(Debug)]
pub struct Invalidations(Vec<Invalidation>);

impl Invalidations {
    /// The number of invalidations, each of which is one shootdown.
    pub fn count(&self) -> u64 {
        self.0.len() as u64
    }
}

impl IntoIterator for Invalidations {
    type Item = Invalidation;
    type IntoIter = std::vec::IntoIter<Invalidation>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl RunningOs {
    /// Wraps an operating system of which no translation is cached yet.
    pub fn new(mut os: Os) -> Self {
        drop(os.take_invalidations());
        RunningOs(os)
    }

    /// Its memory.
    pub fn memory(&self) -> &Memory {
        self.0.memory()
    }

    /// Runs `work`, one operation. Returns its result and the invalidations, also if memory has run out.
    pub fn change<T>(&mut self, work: impl FnOnce(&mut Os) -> T) -> (T, Invalidations) {
        let result = work(&mut self.0);
        (result, Invalidations(self.0.take_invalidations()))
    }

    /// [`PageTable::mark`](crate::page_table::PageTable::mark) by hardware, on the table of a process.
    pub fn mark(&mut self, process: ProcessId, page: PageNumber, written: bool) -> bool {
        self.0.memory_mut().process_mut(process).table.mark(page, written)
    }

    /// [`PageTable::mark_part`](crate::page_table::PageTable::mark_part) by hardware, on the table of a process.
    pub fn mark_part(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        written: bool,
    ) -> Option<(PhysAddr, bool)> {
        self.0.memory_mut().process_mut(process).table.mark_part(page, written)
    }

    /// As [`Frames::take_contiguous_tables`](crate::frames::Frames::take_contiguous_tables).
    pub fn take_contiguous_tables(&mut self) -> Vec<(FrameNumber, u64)> {
        self.0.memory_mut().frames.take_contiguous_tables()
    }

    /// As [`Memory::take_exchanges`].
    pub fn take_exchanges(&mut self) -> Vec<Exchange> {
        self.0.memory_mut().take_exchanges()
    }

    /// As [`Memory::count_exchanges`].
    pub fn count_exchanges(&mut self, exchanges: &[Exchange], made: Option<&[bool]>) {
        self.0.memory_mut().count_exchanges(exchanges, made);
    }

    /// As [`Memory::record_store`].
    pub fn record_store(&mut self, frame: FrameNumber) {
        self.0.memory_mut().record_store(frame);
    }
}
