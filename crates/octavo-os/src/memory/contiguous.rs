//! Contiguous hints of the page tables of all processes.

use octavo_types::PageNumber;

use super::{EVERYTHING, Memory, ProcessId};
use crate::page_table::Conversion;

impl Memory {
    /// Base pages of a block whose entries may have the contiguous hint, if page tables have such a hint.
    pub fn block_pages(&self) -> Option<u64> {
        Some(self.format.block_log2).filter(|log2| *log2 > 0).map(|log2| 1 << log2)
    }

    /// The number of page-table entries with the contiguous hint.
    pub fn folded_entries(&self) -> u64 {
        self.processes.iter().flatten().map(|space| space.table.folded_entries()).sum()
    }

    /// Ends an operation: folds and unfolds the blocks that it has changed. Each is a shootdown.
    pub(super) fn update_hints(&mut self) {
        let Some(entries) = self.block_pages() else { return };
        let live: Vec<ProcessId> = self.live().collect();
        for process in live {
            let space = self.processes[usize::from(process.0)].as_mut().expect("it lives");
            let (frames, log2) = (&self.frames, self.format.block_log2);
            let conversions =
                space.table.update_hints(|frame| frames.allocated_order(frame) >= log2);
            for Conversion { pages, is_fold } in conversions {
                self.counters.folds += u64::from(is_fold);
                self.counters.unfolds += u64::from(!is_fold);
                self.counters.entries_written += entries;
                self.invalidate(process, pages);
            }
        }
    }

    /// Checks that the hint is only in whole blocks of contiguous frames with equal permissions, and its count.
    pub(super) fn check_blocks(&self) -> Result<(), String> {
        let Some(pages) = self.block_pages() else { return Ok(()) };
        for process in self.live() {
            let table = &self.process(process).table;
            let leaves = self.leaves(process, &EVERYTHING).into_iter();
            let folded: Vec<_> = leaves.filter(|leaf| table.is_folded(leaf.page)).collect();
            if folded.len() as u64 != table.folded_entries() {
                let counted = table.folded_entries();
                return Err(format!(
                    "{} entries have the contiguous hint, not {counted}",
                    folded.len()
                ));
            }
            for leaf in folded {
                let first = leaf.page.raw() / pages * pages;
                let alike = |at: &u64| {
                    let other = table.leaf(PageNumber::new(first + at));
                    other.is_some_and(|other| {
                        other.frame.raw() == leaf.frame.raw() / pages * pages + at
                            && other.rights == leaf.rights
                            && table.is_folded(other.page)
                    })
                };
                if leaf.frame.raw() % pages != leaf.page.raw() % pages
                    || !(0..pages).all(|at| alike(&at))
                {
                    return Err(format!("the block of page {first:#x} is not contiguous"));
                }
            }
        }
        Ok(())
    }
}
