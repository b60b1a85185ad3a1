//! Pages that are mapped many at a time.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::{Memory, ProcessId, around, base_pages};
use crate::frames::OutOfMemory;
use crate::page_table::Leaf;
use crate::vmas::Pages;

impl Memory {
    /// Maps new, cleared frames that lie side by side, and were allocated as data, at pages that
    /// nothing is mapped at, by the fewest pages of the allowed sizes up to `largest`.
    ///
    /// # Errors
    /// Where there is no frame for a page table: what is not mapped by then is free.
    pub fn map_run(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        frame: FrameNumber,
        largest: PageSize,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let mut at = pages.start;
        while at < pages.end {
            let here = frame.plus(at - pages.start);
            let fits = |size: &PageSize| {
                let count = base_pages(*size);
                *size <= largest
                    && at.is_multiple_of(count)
                    && here.raw().is_multiple_of(count)
                    && at + count <= pages.end
            };
            let sizes = self.sizes().iter().rev().copied();
            let size = sizes.into_iter().find(fits).expect("base pages always fit");
            let mapped = self.map(process, PageNumber::new(at), size, here, rights);
            if mapped.is_err() {
                self.frames.free_range(here, pages.end - at);
                return mapped;
            }
            self.zeroed(here, base_pages(size));
            at += base_pages(size);
        }
        Ok(())
    }

    /// Unmaps a page that is the process' alone; its frames stay what they are, and are the caller's.
    pub fn take_away(&mut self, process: ProcessId, leaf: &Leaf) {
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        of.table.unmap(leaf.page, &mut self.frames);
        self.invalidate(process, around(leaf.page, leaf.size));
    }

    /// The parts of a range at which nothing is mapped.
    pub fn untouched_in(&self, process: ProcessId, pages: &Pages) -> Vec<Pages> {
        let (mut gaps, mut from) = (Vec::new(), pages.start);
        let table = &self.process(process).table;
        while from < pages.end {
            let next = table.next(PageNumber::new(from), PageNumber::new(pages.end));
            let end = next.map_or(pages.end, |leaf| leaf.page.raw().max(from));
            if end > from {
                gaps.push(from..end);
            }
            from = next.map_or(pages.end, |leaf| leaf.page.raw() + base_pages(leaf.size));
        }
        gaps
    }
}
