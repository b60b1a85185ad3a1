//! Linux's multi-size transparent huge pages: the first touch allocates the largest enabled size whose
//! aligned range is untouched, lies in the mapping, and has a free block (`alloc_anon_folio` in
//! `mm/memory.c`; `Documentation/admin-guide/mm/transhuge.rst`).
//!
//! If the page table does not support a size, as on x86-64 between 4 KiB and 2 MiB, such a page is mapped as
//! Linux does: as contiguous base pages, all at once. Hardware that coalesces translations finds them
//! contiguous.
//!
//! `khugepaged` also makes huge pages of 2 MiB, from base pages only.

use octavo_types::PageSize;
use serde::{Deserialize, Serialize};

use super::defrag::Defrag;
use super::texts::{AllowedValues, Texts};
use super::{Fault, FaultHuge, Policy, PolicySettings, Thp, ThpConfig};
use crate::frames::{Order, OutOfMemory};
use crate::memory::{Memory, around, base_pages};
use crate::vmas::{Advice, Vma};

/// Where pages of one size are used: `/sys/kernel/mm/transparent_hugepage/hugepages-<size>kB/enabled`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MthpEnabled {
    /// In all mappings without `MADV_NOHUGEPAGE`.
    Always,
    /// By the setting for all sizes.
    #[default]
    Inherit,
    /// In mappings with `MADV_HUGEPAGE`.
    Madvise,
    /// Nowhere.
    Never,
}

/// Settings of multi-size huge pages, by Linux's names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct MthpConfig {
    /// The setting for sizes that inherit it: `transparent_hugepage/enabled`; `None` for `never`.
    pub enabled: Option<FaultHuge>,
    /// The setting of each size, in any order; unnamed sizes are `never`.
    #[serde(skip)]
    pub sizes: Vec<(PageSize, MthpEnabled)>,
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
    /// All sizes of Linux on x86-64 with 4 KiB pages, 16 KiB to 2 MiB, set to `always`. (Linux's default
    /// enables 2 MiB only, which is the policy `thp`.)
    fn default() -> Self {
        let ThpConfig { max_ptes_none, scan_every_instructions, pages_to_scan, .. } =
            ThpConfig::default();
        let sizes = (14..=21).filter_map(PageSize::from_log2);
        MthpConfig {
            enabled: Some(FaultHuge::Always),
            sizes: sizes.map(|size| (size, MthpEnabled::Inherit)).collect(),
            defrag: Defrag::default(),
            khugepaged_defrag: true,
            max_ptes_none,
            scan_every_instructions,
            pages_to_scan,
        }
    }
}

impl MthpConfig {
    /// The settings of `khugepaged` that do not depend on the sizes.
    fn khugepaged(&self) -> ThpConfig {
        ThpConfig {
            enabled: FaultHuge::default(),
            max_ptes_none: self.max_ptes_none,
            scan_every_instructions: self.scan_every_instructions,
            pages_to_scan: self.pages_to_scan,
        }
    }
}

impl PolicySettings for MthpConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Mthp::new(self.clone()))
    }

    fn check(&self) -> Result<(), String> {
        self.khugepaged().check()
    }

    fn read(&self, texts: &Texts) -> Result<Self, AllowedValues> {
        Ok(MthpConfig { sizes: self.sizes.clone(), ..texts.read()? })
    }
}

/// Multi-size transparent huge pages.
#[derive(Clone, Debug)]
pub struct Mthp {
    config: MthpConfig,
    khugepaged: Thp,
}

impl Mthp {
    /// A policy before its first scan.
    pub fn new(mut config: MthpConfig) -> Self {
        config.sizes.sort_unstable_by_key(|(size, _)| std::cmp::Reverse(*size));
        let huge = config.sizes.iter().find(|(size, _)| *size == PageSize::HUGE);
        let mut khugepaged = config.khugepaged();
        match huge.map(|(_, setting)| (*setting, config.enabled)) {
            Some((MthpEnabled::Always, _) | (MthpEnabled::Inherit, Some(FaultHuge::Always))) => {
                khugepaged.enabled = FaultHuge::Always;
            }
            Some((MthpEnabled::Madvise, _) | (MthpEnabled::Inherit, Some(FaultHuge::Madvise))) => {
                khugepaged.enabled = FaultHuge::Madvise;
            }
            None | Some((MthpEnabled::Never, _) | (MthpEnabled::Inherit, None)) => {
                khugepaged.scan_every_instructions = 0;
            }
        }
        let khugepaged =
            Thp::new(khugepaged).defragmenting(config.defrag, config.khugepaged_defrag);
        Mthp { config, khugepaged }
    }

    fn allows(&self, setting: MthpEnabled, vma: &Vma) -> bool {
        let advised = vma.advice == Advice::Huge;
        vma.advice != Advice::NoHuge
            && match setting {
                MthpEnabled::Always => true,
                MthpEnabled::Madvise => advised,
                MthpEnabled::Never => false,
                MthpEnabled::Inherit => match self.config.enabled {
                    Some(FaultHuge::Always) => true,
                    Some(FaultHuge::Madvise) => advised,
                    None => false,
                },
            }
    }
}

impl Policy for Mthp {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let mut wanted = false;
        for (size, setting) in &self.config.sizes {
            let pages = around(fault.page, *size);
            let fits = fault.mapping.start <= pages.start && pages.end <= fault.mapping.end;
            if *size == PageSize::BASE
                || !fits
                || !self.allows(*setting, &fault.vma)
                || !memory.is_untouched(fault.process, &pages)
            {
                continue;
            }
            let advised = fault.vma.advice == Advice::Huge;
            let order = Order::of(*size);
            let Ok(block) = self.khugepaged.defragmenter.block(memory, order, advised) else {
                memory.counters.fallbacks += u64::from(!wanted);
                wanted = true;
                continue;
            };
            let rights = fault.vma.rights;
            if memory.map_run(fault.process, &pages, block, *size, rights).is_ok() {
                let untouched = (base_pages(*size) - 1) * PageSize::BASE.bytes();
                memory.counters.bytes_mapped_untouched += untouched;
                return Ok(());
            }
            if memory.process(fault.process).table.leaf(fault.page).is_some() {
                return Ok(());
            }
        }
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        self.khugepaged.background(memory, instructions);
    }
}
