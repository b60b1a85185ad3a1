//! Mapping of many contiguous pages at once.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::{Memory, ProcessId, around, base_pages};
use crate::frames::OutOfMemory;
use crate::page_table::Leaf;
use crate::vmas::Pages;

impl Memory {
    /// Clears contiguous data frames of the caller, and maps them at unmapped pages, by the fewest pages of
    /// allowed sizes up to `largest`.
    ///
    /// # Errors
    /// If there is no frame for a page table: frames not mapped by then are freed.
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

    /// Unmaps a private page; its frames become the caller's.
    pub fn unmap_keeping_frames(&mut self, process: ProcessId, leaf: &Leaf) {
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        space.table.unmap(leaf.page, &mut self.frames);
        self.invalidate(process, around(leaf.page, leaf.size));
    }

    /// The unmapped parts of a range.
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
