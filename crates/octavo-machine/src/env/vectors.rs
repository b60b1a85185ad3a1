//! Hardware sets the accessed and dirty bits of the parts of tailored pages (Guvenilir and Patt, ISCA 2020,
//! section III.C.1; [`octavo_os::page_table::Vectors`]).

use octavo_types::PageNumber;

use super::Env;
use super::walk::{line_of, to_read};
use crate::counters::Counters;

/// What setting bits of parts took.
#[derive(Clone, Copy, Default)]
pub(super) struct VectorCounters {
    /// Vectors stored.
    stores: u64,
    /// Of those, such that changed a bit: in the others it was set already.
    marked: u64,
    /// Entries read to find the vectors.
    reads: u64,
}

impl Env {
    /// A reference uses, and perhaps stores to, a part of a tailored page of which the TLB does not know that the
    /// bits are set: they are stored to the page's first alias, "using the same mechanism already used by the
    /// existing modify bit update operation": a walk to the entry, unless one has just been there. This does "not
    /// block forward progress": it is counted, goes through the caches, and takes no cycles of the program.
    #[cold]
    pub(crate) fn mark_part(&mut self, page: PageNumber, stores: bool, has_walked: bool) {
        if !has_walked {
            let walk = self.table_walk(page);
            let (asid, addr, known) = self.known_of(page);
            for (step, leads_on) in to_read(&walk, known) {
                self.vectors.reads += 1;
                self.caches.read_pte(line_of(step.at, self.lines));
                if leads_on {
                    self.walk_caches.fill(asid, addr, step.level, ());
                }
            }
        }
        let process = self.process;
        let table = &mut self.os.memory_mut().process_mut(process).table;
        // A page that has grown to one of the processor's own sizes has no alias any more.
        let Some((at, has_changed)) = table.mark_part(page, stores) else { return };
        self.vectors.stores += 1;
        self.vectors.marked += u64::from(has_changed);
        self.caches.write_pte(line_of(at, self.lines));
    }

    /// Adds what was counted of vectors, and what they say.
    pub(super) fn report_vectors(&self, counters: &mut Counters) {
        let memory = self.os.memory();
        if !memory.has_vectors() {
            return;
        }
        let VectorCounters { stores, marked, reads } = self.vectors;
        for (name, value) in [("stores", stores), ("marked", marked), ("references", reads)] {
            counters.add("walker.vectors", name, value);
        }
        let of = memory.parts_used();
        for (name, bytes) in [
            ("mapped_bytes", of.mapped),
            ("accessed_bytes", of.accessed),
            ("accessed_parts_bytes", of.accessed_parts),
            ("dirty_bytes", of.dirty),
            ("dirty_parts_bytes", of.dirty_parts),
        ] {
            counters.level("os.vectors", name, bytes);
        }
    }
}
