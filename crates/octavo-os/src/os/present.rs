//! Memory that a process already has when its trace begins.

use octavo_types::{Access, PageNumber, PageSize, Protection};

use super::Os;
use crate::counters::Counters;
use crate::frames::OutOfMemory;
use crate::memory::{Memory, ProcessId, is_shared};
use crate::policy::Fault;
use crate::vmas::Pages;

/// Limit of the memory mapped as present in total, as a multiple of physical memory; the rest is mapped at its first
/// touch. Without a limit, a short trace that unmaps memory and reports it as present again could cost any amount of
/// work.
const MAX_PRESENT_MEMORIES: u64 = 16;

impl Os {
    /// Maps the pages of a range that a process has had since before its first instruction, in order of
    /// addresses, as stores to them would, and sets their accessed and dirty bits. Pages that are already mapped
    /// stay; addresses in shared memory or outside mappings are skipped.
    ///
    /// Only [`Counters::bytes_present`] counts this work, since it was done before the trace. Counters of designs do not
    /// report it either.
    ///
    /// # Errors
    ///
    /// If memory runs out. Earlier pages of the range stay mapped.
    pub(super) fn present(&mut self, process: ProcessId, pages: &Pages) -> Result<(), OutOfMemory> {
        let (before, of_designs) = (self.memory.counters, self.memory.design_counters());
        let result = self.map_present(process, pages);
        // Copies of that time are not counted either.
        drop(self.memory.take_exchanges());
        self.memory.exclude_design_events_since(&of_designs);
        let bytes_present = self.memory.counters.bytes_present;
        self.memory.counters = Counters { bytes_present, ..before };
        result
    }

    fn map_present(&mut self, process: ProcessId, pages: &Pages) -> Result<(), OutOfMemory> {
        let most_bytes =
            MAX_PRESENT_MEMORIES * self.memory.frames.shape().frames() * PageSize::BASE.bytes();
        for (part, vma) in self.memory.process(process).vmas.within(pages) {
            if is_shared(&vma) {
                continue;
            }
            let first = PageNumber::new(part.start);
            let found = self.memory.process(process).vmas.find(first);
            let (mapping, mut vma) = found.expect("a part of a mapping");
            vma.rights = Protection { read: true, ..vma.rights };
            for page in part.map(PageNumber::new) {
                if self.memory.counters.bytes_present >= most_bytes {
                    return Ok(());
                }
                match self.memory.process(process).table.leaf(page) {
                    None => {
                        let fault = Fault { process, page, mapping: mapping.clone(), vma };
                        self.first_touch(&fault, Access::Store)?;
                    }
                    Some(leaf) if vma.rights.write && !leaf.rights.write => {
                        self.store_to_shared(process, page, leaf, &vma)?;
                    }
                    Some(_) => {}
                }
                self.memory.mark_written(process, page);
                self.memory.counters.bytes_present += PageSize::BASE.bytes();
            }
        }
        Ok(())
    }
}

impl Memory {
    /// Marks a mapped base page as a store of the program would.
    fn mark_written(&mut self, process: ProcessId, page: PageNumber) {
        let table = &mut self.process_mut(process).table;
        table.mark(page, true);
        table.mark_part(page, true);
        if self.tracks_stores()
            && let Some(leaf) = self.process(process).table.leaf(page)
        {
            self.record_store(leaf.frame_of(page));
        }
    }
}
