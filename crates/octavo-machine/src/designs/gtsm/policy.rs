//! Gap-Tolerant Sequential Mapping (Du et al., "Supporting Superpages in Non-Contiguous Physical Memory",
//! HPCA 2015; Park et al., ISCA 2020, Section VII-D): huge pages in memory with faulty frames.
//!
//! - The first touch of 2 MiB allocates a free block, as with transparent huge pages. If none is free, it
//!   uses 32 sub-blocks of 64 KiB of a 4 MiB chunk, the lowest that are entirely free; faulty or used
//!   sub-blocks are skipped. A chunk has at most one such page, so that gapped pages take at most half of
//!   memory.
//! - The other sub-blocks of a chunk serve base pages. Base pages are allocated from the end of memory, to
//!   keep chunks intact.
//! - An operation on a part of a gapped page splits it: it has no holes.
//! - In the background, base pages become huge or gapped pages, as by `khugepaged`.
//!
//! Assumptions: the paper does not specify when an operating system prefers which. With `whole_blocks=false`,
//! free blocks of 2 MiB are not used directly: every page consists of sub-blocks. If page tables do not
//! support gapped pages (in a guest, whose memory has no faults, and with other hardware), whole blocks are
//! used.

use octavo_os::frames::OutOfMemory;
use octavo_os::policy::{
    AllowedValues, Capability, Fault, Policy, PolicySettings, Texts, Thp, ThpConfig, place_last,
};
use octavo_os::vmas::Pages;
use octavo_os::{ChunkSearch, Memory, ProcessId, around};
use octavo_types::{PageNumber, PageSize};
use serde::{Deserialize, Serialize};

/// Huge pages made of sub-blocks.
pub const GAPPED_PAGES: Capability = Capability("pages of 2 MiB with gaps");

/// Settings of the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GtsmPolicyConfig {
    /// Whether free blocks of 2 MiB are used as plain huge pages.
    pub whole_blocks: bool,
    /// Which mappings may have huge pages, and background scans.
    #[serde(flatten, skip_deserializing)]
    pub huge: ThpConfig,
}

impl GtsmPolicyConfig {
    /// Whether a process uses free blocks of 2 MiB as plain huge pages.
    fn takes_whole_blocks(&self, memory: &Memory, process: ProcessId) -> bool {
        self.whole_blocks || !has_gapped(memory, process)
    }
}

impl Default for GtsmPolicyConfig {
    fn default() -> Self {
        GtsmPolicyConfig { whole_blocks: true, huge: ThpConfig::default() }
    }
}

impl PolicySettings for GtsmPolicyConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(GtsmPolicy::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        vec![PageSize::HUGE]
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[GAPPED_PAGES]
    }

    fn check(&self) -> Result<(), String> {
        self.huge.check()
    }

    fn read(&self, texts: &Texts) -> Result<Self, AllowedValues> {
        Ok(GtsmPolicyConfig { huge: texts.read()?, ..texts.read()? })
    }
}

/// Gap-Tolerant Sequential Mapping.
pub struct GtsmPolicy {
    config: GtsmPolicyConfig,
    huge: Thp,
    chunks: ChunkSearch,
}

impl GtsmPolicy {
    /// A policy without pages.
    pub fn new(config: GtsmPolicyConfig) -> Self {
        GtsmPolicy { config, huge: Thp::new(config.huge), chunks: ChunkSearch::default() }
    }
}

/// Whether the page table of a process supports gapped pages.
fn has_gapped(memory: &Memory, process: ProcessId) -> bool {
    memory.process(process).table.format().has_gapped
}

impl Policy for GtsmPolicy {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let Fault { process, page, ref mapping, ref vma } = *fault;
        let huge = around(page, PageSize::HUGE);
        let fits = mapping.start <= huge.start && huge.end <= mapping.end;
        if fits && self.huge.allows(vma) && memory.is_untouched(process, &huge) {
            let first = PageNumber::new(huge.start);
            if self.config.takes_whole_blocks(memory, process)
                && memory.place_new(process, first, PageSize::HUGE, vma.rights).is_ok()
            {
                return Ok(());
            }
            self.chunks.map_gapped(memory, process, first, vma.rights);
            if memory.process(process).table.gapped(page).is_some() {
                return Ok(());
            }
            memory.counters.fallbacks +=
                u64::from(memory.process(process).table.leaf(page).is_none());
        }
        place_last(memory, process, page, vma.rights)
    }

    fn unmapped(&mut self, _memory: &mut Memory, _process: ProcessId, _pages: &Pages) {
        self.chunks = ChunkSearch::default();
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        if !self.huge.is_due(instructions) {
            return;
        }
        self.chunks = ChunkSearch::default();
        let GtsmPolicy { config, huge, chunks } = self;
        huge.scan(memory, |memory, process, first, vma| {
            if memory.process(process).table.gapped(first).is_some() {
                return;
            }
            let is_whole = config.takes_whole_blocks(memory, process)
                && memory.collapse(process, first, PageSize::HUGE, vma.rights).is_ok();
            if !is_whole {
                chunks.map_gapped(memory, process, first, vma.rights);
            }
        });
    }
}
