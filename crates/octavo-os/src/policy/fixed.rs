//! A larger base page: 16 or 64 KiB, as in kernels for other machines, or any size up to 2 MiB.
//!
//! All anonymous memory uses this page size. A page at the end of a mapping is whole, since such a kernel
//! rounds mappings up; the excess is counted. Addresses, however, are those of a program with 4 KiB pages:
//! where two mappings share a page of the larger size, such a kernel would have placed them differently; here
//! each gets the largest pages that it does not share. File pages and shared pages stay base pages of 4 KiB
//! and may fragment memory; a page without a free block falls back to base pages.
//!
//! If the page table does not support the size, contiguous base pages are mapped at once.

use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::texts::page_size;
use super::{Fault, Policy, PolicySettings};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::memory::{Memory, ProcessId, around};
use crate::vmas::Pages;

/// Settings of the fixed-size policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct FixedConfig {
    /// The page size.
    #[serde(with = "page_size")]
    pub size: PageSize,
}

impl Default for FixedConfig {
    /// 16 KiB.
    fn default() -> Self {
        FixedConfig { size: PageSize::from_log2(14).expect("16 KiB") }
    }
}

impl PolicySettings for FixedConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Fixed::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        Some(self.size).filter(|size| *size > PageSize::BASE).into_iter().collect()
    }

    fn check(&self) -> Result<(), String> {
        if self.size > PageSize::HUGE {
            return Err(format!("size = {}: give a power of two from 4KiB to 2MiB", self.size));
        }
        Ok(())
    }
}

/// A larger base page size.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fixed {
    config: FixedConfig,
}

impl Fixed {
    /// A policy with this size.
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
        // Outside known mappings, the surroundings are unknown.
        let known = memory.process(process).vmas.find(fault.page).is_some();
        if let Some(size) = found.filter(|_| known) {
            let pages = around(fault.page, size);
            match memory.frames.allocate_free(Order::of(size), Owner::Data) {
                Ok(block) => {
                    memory.map_run(process, &pages, block, size, fault.vma.rights)?;
                    memory.count_untouched(size);
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
