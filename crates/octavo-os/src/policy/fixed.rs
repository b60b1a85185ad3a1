//! A larger base page: 16 or 64 KiB, as kernels for other machines have them, or any size up to
//! 2 MiB.
//!
//! Every page of anonymous memory is of that size. Where a mapping ends inside one, the page is whole
//! all the same, as such a kernel rounds mappings up, and what lies past the end is counted. But the
//! addresses are those of a program that ran with 4 KiB pages: where two mappings share one page of
//! the larger size, such a kernel would have put them elsewhere, and here each gets the largest pages
//! that it does not share. Files' pages and what processes share stay base pages of 4 KiB, which is
//! how such memory is kept; so where memory is fragmented by them, a page may find no block, and is
//! made of base pages then (a fallback).
//!
//! Where the page table may not hold pages of the size, base pages side by side are mapped all at once.

use octavo_types::PageSize;

use super::{Fault, Policy};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::memory::{Memory, ProcessId, around, base_pages};
use crate::vmas::Pages;

/// Its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FixedConfig {
    /// The size of all pages.
    pub size: PageSize,
}

impl Default for FixedConfig {
    /// 16 KiB.
    fn default() -> Self {
        FixedConfig { size: PageSize::from_log2(14).expect("16 KiB") }
    }
}

/// One larger base page size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed {
    config: FixedConfig,
}

impl Fixed {
    /// With this size.
    pub fn new(config: FixedConfig) -> Self {
        Fixed { config }
    }
}

impl Policy for Fixed {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let process = fault.process;
        let is_alone = |pages: &Pages| {
            let others = memory.process(process).vmas.within(pages);
            others
                .iter()
                .all(|(part, _)| fault.mapping.start <= part.start && part.end <= fault.mapping.end)
        };
        let sizes = (PageSize::BASE.log2() + 1..=self.config.size.log2()).rev();
        let mut sizes = sizes.filter_map(PageSize::from_log2);
        let found = sizes.find(|size| {
            let pages = around(fault.page, *size);
            memory.is_untouched(process, &pages) && is_alone(&pages)
        });
        // Outside every mapping known, nobody knows what lies around.
        let known = memory.process(process).vmas.find(fault.page).is_some();
        if let Some(size) = found.filter(|_| known) {
            let pages = around(fault.page, size);
            match memory.frames.allocate_free(Order::of(size), Owner::Data) {
                Ok(block) => {
                    memory.map_run(process, &pages, block, size, fault.vma.rights)?;
                    let untouched = (base_pages(size) - 1) * PageSize::BASE.bytes();
                    memory.counters.bytes_mapped_untouched += untouched;
                    return Ok(());
                }
                Err(_) => memory.counters.fallbacks += 1,
            }
        }
        memory.place_new(process, fault.page, PageSize::BASE, fault.vma.rights)
    }

    fn moving(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        self.unmapped(memory, process, pages);
    }

    fn unmapped(&mut self, memory: &mut Memory, process: ProcessId, pages: &Pages) {
        for (part, _) in memory.process(process).vmas.within(pages) {
            memory.release_overhang(process, &part);
        }
    }
}
