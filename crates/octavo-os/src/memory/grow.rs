//! Promotion of pages in place.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::{Memory, ProcessId, around};
use crate::frames::{Order, OutOfMemory};
use crate::page_table::level_of;
use crate::vmas::Pages;

impl Memory {
    /// Maps the page of `size` that holds `page`. Its parts are private and mapped in place already, or new
    /// and cleared by the caller. Accessed and dirty bits of the parts are kept.
    ///
    /// No translation is invalidated: "the PTE that may have been present in a TLB for the smaller page size
    /// will still be correct for its portion of the larger page" (Guvenilir and Patt, ISCA 2020, Section
    /// III-C.2). If the page moves to an entry of a higher level, however, the tables of its parts are freed,
    /// which the paper does not discuss: walk caches must drop them, by one shootdown.
    ///
    /// # Errors
    ///
    /// If there are no frames for its page table.
    pub fn grow(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let pages = around(page, size);
        let parts = if size > PageSize::BASE { self.leaves(process, &pages) } else { Vec::new() };
        self.map(process, PageNumber::new(pages.start), size, frame, rights)?;
        if !parts.is_empty() {
            self.counters.promotions += 1;
            self.counters.grown_by_order[Order::of(size).index()] += 1;
        }
        if parts.iter().any(|part| level_of(part.size) < level_of(size)) {
            self.invalidate(process, pages);
        }
        Ok(())
    }

    /// Unmaps the parts of pages overlapping `pages` that belong to no mapping: the rest of a page made
    /// larger than the requested memory.
    pub fn release_overhang(&mut self, process: ProcessId, pages: &Pages) {
        if pages.is_empty() {
            return;
        }
        for page in [pages.start, pages.end - 1] {
            let Some(leaf) = self.process(process).table.leaf(PageNumber::new(page)) else {
                continue;
            };
            let all = around(leaf.page, leaf.size);
            let outside = [all.start..pages.start.max(all.start), pages.end.min(all.end)..all.end];
            for gap in outside.map(|part| self.unmapped_in(process, &part)).concat() {
                // Without a frame to split the page, the rest stays.
                let _ = self.release(process, &gap);
            }
        }
    }

    /// The parts of a range outside all mappings.
    fn unmapped_in(&self, process: ProcessId, pages: &Pages) -> Vec<Pages> {
        let mut gaps = Vec::new();
        let mut from = pages.start;
        for (part, _) in self.process(process).vmas.within(pages) {
            gaps.push(from..part.start);
            from = part.end;
        }
        gaps.push(from..pages.end);
        gaps.retain(|gap| gap.start < gap.end);
        gaps
    }
}
