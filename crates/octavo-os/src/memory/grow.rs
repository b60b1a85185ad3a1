//! Pages that grow where they are.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::{Memory, ProcessId, around};
use crate::frames::{Order, OutOfMemory};
use crate::page_table::level_of;
use crate::vmas::Pages;

impl Memory {
    /// Maps the page of `size` that holds `page`, of which `new_pages` base pages are new and are
    /// cleared; the others are mapped already where they would lie in it, as the process' own.
    ///
    /// Nothing becomes stale: "the PTE that may have been present in a TLB for the smaller page
    /// size will still be correct for its portion of the larger page" (paper 003, Section III-C.2).
    /// Only a page that takes the place of tables below it makes walk caches forget the way there:
    /// the paper does not say so, but hardware has to.
    ///
    /// What has happened to the parts has happened to the whole: it counts as used, and as written
    /// to, if one of them was.
    pub fn grow(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        size: PageSize,
        frame: FrameNumber,
        rights: Protection,
        new_pages: u64,
    ) -> Result<(), OutOfMemory> {
        let pages = around(page, size);
        let first = PageNumber::new(pages.start);
        let table = &self.process(process).table;
        let (mut parts, mut frees_tables) = (0u64, false);
        let (mut used, mut written) = (false, false);
        if size > PageSize::BASE {
            for leaf in self.leaves(process, &pages) {
                frees_tables |= level_of(leaf.size) < level_of(size);
                let of = table.used(leaf.page).unwrap_or_default();
                (used, written) = (used | of.0, written | of.1);
                parts += 1;
            }
        }
        self.map(process, first, size, frame, rights)?;
        if used {
            self.process_mut(process).table.mark(first, written);
        }
        if parts > 0 {
            self.counters.promotions += 1;
            self.counters.grown_by_order[Order::of(size).index()] += 1;
        }
        if frees_tables {
            self.forget(process, pages);
        }
        self.counters.bytes_zeroed += new_pages * PageSize::BASE.bytes();
        Ok(())
    }

    /// Unmaps what pages that reach out of `pages` have beyond every mapping: the rest of a page
    /// that was made larger than what the program asked for.
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
                // Where there is no room to split the page, it stays whole.
                let _ = self.release(process, &gap);
            }
        }
    }

    /// The parts of a range that no mapping has.
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
