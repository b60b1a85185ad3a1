//! Linux's multi-size transparent huge pages: the first touch allocates the largest enabled size whose
//! aligned range is untouched, lies in the mapping, and has a free block (`alloc_anon_folio` in
//! `mm/memory.c`; `Documentation/admin-guide/mm/transhuge.rst`).
//!
//! If the page table does not support a size, as on x86-64 between 4 KiB and 2 MiB, such a page is mapped as
//! in Linux: as contiguous base pages, all at once. Hardware can then coalesce their translations.
//!
//! `khugepaged` also makes huge pages of 2 MiB, from base pages only.

use std::ops::RangeInclusive;

use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::defrag::Defrag;
use super::texts::page_size;
use super::{Fault, FaultHuge, Policy, PolicySettings, Thp, ThpConfig};
use crate::frames::{Order, OutOfMemory};
use crate::memory::{Memory, around};
use crate::vmas::Advice;

/// Binary logarithms of the sizes of Linux on x86-64 with 4 KiB pages: 16 KiB to 2 MiB. (Linux's default enables
/// 2 MiB only, which is the policy `thp`.)
const SIZES_LOG2: RangeInclusive<u8> = 14..=21;

/// Settings of multi-size huge pages, by Linux's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MthpConfig {
    /// Where pages of all sizes are used: `transparent_hugepage/enabled`; `None` for `never`.
    pub enabled: Option<FaultHuge>,
    /// The smallest size in use: `hugepages-<size>kB/enabled` is set for all sizes from `smallest` to `largest`.
    #[serde(with = "page_size")]
    pub smallest: PageSize,
    /// The largest size in use: see [`MthpConfig::smallest`]. Below 2 MiB, `khugepaged` does not run.
    #[serde(with = "page_size")]
    pub largest: PageSize,
    /// The reaction of a fault to a missing free block.
    pub defrag: Defrag,
    /// As [`DefragmentingThpConfig::khugepaged_defrag`](super::DefragmentingThpConfig::khugepaged_defrag).
    pub khugepaged_defrag: bool,
    /// As [`ThpConfig::max_ptes_none`].
    pub max_ptes_none: u32,
    /// As [`ThpConfig::scan_every_instructions`].
    pub scan_every_instructions: u64,
    /// As [`ThpConfig::pages_to_scan`].
    pub pages_to_scan: u64,
}

impl Default for MthpConfig {
    /// Linux's defaults, with pages in all mappings.
    fn default() -> Self {
        let ThpConfig { max_ptes_none, scan_every_instructions, pages_to_scan, .. } =
            ThpConfig::default();
        MthpConfig {
            enabled: Some(FaultHuge::Always),
            smallest: PageSize::from_log2(*SIZES_LOG2.start()).expect("a size"),
            largest: PageSize::HUGE,
            defrag: Defrag::default(),
            khugepaged_defrag: true,
            max_ptes_none,
            scan_every_instructions,
            pages_to_scan,
        }
    }
}

impl MthpConfig {
    /// The settings of `khugepaged`, which runs only if huge pages are enabled and 2 MiB is among the sizes.
    fn khugepaged(&self) -> ThpConfig {
        let runs = self.enabled.is_some() && self.largest == PageSize::HUGE;
        ThpConfig {
            enabled: self.enabled.unwrap_or_default(),
            max_ptes_none: self.max_ptes_none,
            scan_every_instructions: if runs { self.scan_every_instructions } else { 0 },
            pages_to_scan: self.pages_to_scan,
        }
    }
}

impl PolicySettings for MthpConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Mthp::new(*self))
    }

    fn check(&self) -> Result<(), String> {
        for (name, size) in [("smallest", self.smallest), ("largest", self.largest)] {
            if !SIZES_LOG2.contains(&size.log2()) {
                return Err(format!("{name} = {size}: give a power of two from 16KiB to 2MiB"));
            }
        }
        if self.smallest > self.largest {
            let (smallest, largest) = (self.smallest, self.largest);
            return Err(format!("smallest = {smallest}: give at most largest = {largest}"));
        }
        self.khugepaged().check()
    }
}

/// Multi-size transparent huge pages.
#[derive(Clone, Debug)]
pub struct Mthp {
    is_enabled: bool,
    /// log2 of the sizes in use.
    sizes_log2: RangeInclusive<u8>,
    khugepaged: Thp,
}

impl Mthp {
    /// A policy before its first scan.
    pub fn new(config: MthpConfig) -> Self {
        let khugepaged =
            Thp::new(config.khugepaged()).defragmenting(config.defrag, config.khugepaged_defrag);
        let sizes_log2 = config.smallest.log2()..=config.largest.log2();
        Mthp { is_enabled: config.enabled.is_some(), sizes_log2, khugepaged }
    }
}

impl Policy for Mthp {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let Fault { process, page, ref mapping, ref vma } = *fault;
        let mut has_fallen_back = false;
        let allowed = self.is_enabled && self.khugepaged.allows(vma);
        let sizes = self.sizes_log2.clone().rev().filter_map(PageSize::from_log2);
        for size in sizes.filter(|_| allowed) {
            let pages = around(page, size);
            let fits = mapping.start <= pages.start && pages.end <= mapping.end;
            if !fits || !memory.is_untouched(process, &pages) {
                continue;
            }
            let (order, advised) = (Order::of(size), vma.advice == Advice::Huge);
            let Ok(block) = self.khugepaged.defragmenter.block(memory, order, advised) else {
                memory.counters.fallbacks += u64::from(!has_fallen_back);
                has_fallen_back = true;
                continue;
            };
            if memory.map_run(process, &pages, block, size, vma.rights).is_ok() {
                memory.count_untouched(size);
                return Ok(());
            }
            if memory.process(process).table.leaf(page).is_some() {
                return Ok(());
            }
        }
        memory.place_new(process, page, PageSize::BASE, vma.rights)
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        self.khugepaged.background(memory, instructions);
    }
}
