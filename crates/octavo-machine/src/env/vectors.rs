//! Accessed and dirty bits of parts of pages of intermediate sizes, set by hardware (Guvenilir and Patt, ISCA
//! 2020, section III.C.1; [`octavo_os::page_table::Vectors`]).

use octavo_types::PageNumber;

use super::Env;
use super::walk::{EntryReads, WalkerCounters, line_of};
use crate::counters::Counters;

/// Counters of vector updates.
#[derive(Clone, Copy, Default)]
pub(super) struct VectorCounters {
    /// Vectors stored.
    stores: u64,
    /// Stores that changed a bit; the others found it set.
    marked: u64,
    /// Entries read to find the vectors.
    reads: u64,
}

impl Env {
    /// Sets the accessed bit, and for a store the dirty bit, of a part of a page of an intermediate size, where the
    /// TLB entry does not know them to be set. They are written to the page's first alias, "using the same
    /// mechanism already used by the existing modify bit update operation": a walk to the entry, unless one
    /// has just been made. The update does "not block forward progress": it is counted and goes through the
    /// caches, but costs the program no cycles.
    #[cold]
    pub(crate) fn mark_part(&mut self, page: PageNumber, stores: bool, has_walked: bool) {
        if !has_walked {
            let walk = self.table_walk(page);
            let planned = self.plan_walk(&walk, page);
            let Env { vectors, caches, lines, .. } = self;
            let mut walker = WalkerCounters::default();
            let reads = EntryReads { caches, lines: *lines, walker: &mut walker, entry: None };
            planned.execute(&walk, &mut { reads });
            vectors.reads += walker.reads;
        }
        let process = self.process;
        // A page promoted to a conventional size has no alias any more.
        let Some((at, has_changed)) = self.os.mark_part(process, page, stores) else { return };
        self.vectors.stores += 1;
        self.vectors.marked += u64::from(has_changed);
        self.caches.write_pte(line_of(at, self.lines));
    }

    /// Reports the updates of vectors, and the bytes that they mark.
    pub(super) fn report_vectors(&self, counters: &mut Counters) {
        let memory = self.os.memory();
        if !memory.has_vectors() {
            return;
        }
        let VectorCounters { stores, marked, reads } = self.vectors;
        for (name, value) in [("stores", stores), ("marked", marked), ("references", reads)] {
            counters.add("walker.vectors", name, value);
        }
        let used = memory.parts_used();
        for (name, bytes) in [
            ("mapped_bytes", used.mapped),
            ("accessed_bytes", used.accessed),
            ("accessed_parts_bytes", used.accessed_parts),
            ("dirty_bytes", used.dirty),
            ("dirty_parts_bytes", used.dirty_parts),
        ] {
            counters.level("os.vectors", name, bytes);
        }
    }
}
