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

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use serde::{Deserialize, Serialize};

use super::base::place_last;
use super::texts::{AllowedValues, Texts};
use super::{Capability, Fault, Policy, PolicySettings, Thp, ThpConfig};
use crate::frames::{Frames, OutOfMemory, Owner, SubBlocks};
use crate::memory::{Memory, ProcessId, around};
use crate::vmas::Pages;

/// Huge pages made of sub-blocks.
pub const GAPPED_PAGES: Capability = Capability("pages of 2 MiB with gaps");

/// Settings of GTSM.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct GtsmConfig {
    /// Whether free blocks of 2 MiB are used as plain huge pages.
    pub whole_blocks: bool,
    /// Which mappings may have huge pages, and background scans.
    #[serde(flatten, skip_deserializing)]
    pub huge: ThpConfig,
}

impl GtsmConfig {
    /// Whether a process uses free blocks of 2 MiB as plain huge pages.
    fn takes_whole_blocks(&self, memory: &Memory, process: ProcessId) -> bool {
        self.whole_blocks || !has_gapped(memory, process)
    }
}

impl Default for GtsmConfig {
    fn default() -> Self {
        GtsmConfig { whole_blocks: true, huge: ThpConfig::default() }
    }
}

impl PolicySettings for GtsmConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(Gtsm::new(*self))
    }

    fn required_sizes(&self) -> Vec<PageSize> {
        vec![PageSize::HUGE]
    }

    fn capabilities(&self) -> &'static [Capability] {
        &[GAPPED_PAGES]
    }

    fn read(&self, texts: &Texts) -> Result<Self, AllowedValues> {
        Ok(GtsmConfig { huge: texts.read()?, ..texts.read()? })
    }
}

/// Gap-Tolerant Sequential Mapping.
pub struct Gtsm {
    config: GtsmConfig,
    huge: Thp,
    chunks: Chunks,
}

/// The search for chunks.
#[derive(Default)]
struct Chunks {
    /// Chunks before this one are skipped until a range is unmapped or a scan begins.
    next: u64,
}

impl Gtsm {
    /// A policy without pages.
    pub fn new(config: GtsmConfig) -> Self {
        Gtsm { config, huge: Thp::new(config.huge), chunks: Chunks::default() }
    }
}

impl Chunks {
    /// Makes the 2 MiB from a page on a gapped page; it is unmapped or consists of private base pages.
    fn map_gapped(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        first: PageNumber,
        rights: Protection,
    ) {
        if !has_gapped(memory, process) {
            return;
        }
        let Some((chunk, blocks)) = self.choose(&memory.frames) else { return };
        let frames = |number: u64| chunk.plus(number * SubBlocks::ORDER.frames());
        for block in blocks.iter().map(frames) {
            let taken = memory.frames.allocate_at(block, SubBlocks::ORDER, Owner::Data);
            assert!(taken, "a sub-block that is free");
        }
        // If its page table cannot hold it, base pages are used.
        if !memory.map_gapped(process, first, (chunk, blocks), rights).unwrap_or(false) {
            blocks.iter().for_each(|number| memory.frames.free(frames(number), SubBlocks::ORDER));
        }
    }

    /// The next chunk with enough free sub-blocks and no page.
    fn choose(&mut self, frames: &Frames) -> Option<(FrameNumber, SubBlocks)> {
        let of_chunk = SubBlocks::CHUNK.frames();
        while self.next < frames.shape().frames() / of_chunk {
            let chunk = FrameNumber::new(self.next * of_chunk);
            self.next += 1;
            if frames.chunk_bitmaps().of(chunk).is_some() {
                continue;
            }
            let is_free = |number: &u64| {
                let first = chunk.plus(number * SubBlocks::ORDER.frames());
                frames.is_free(first, SubBlocks::ORDER)
            };
            let free = (0..64).filter(is_free).fold(0, |bits, number| bits | 1 << number);
            if let Some(blocks) = SubBlocks::first_of(free) {
                return Some((chunk, blocks));
            }
        }
        None
    }
}

/// Whether the page table of a process supports gapped pages.
fn has_gapped(memory: &Memory, process: ProcessId) -> bool {
    memory.process(process).table.format().has_gapped
}

impl Policy for Gtsm {
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
        }
        place_last(memory, process, page, vma.rights)
    }

    fn unmapped(&mut self, _memory: &mut Memory, _process: ProcessId, _pages: &Pages) {
        self.chunks = Chunks::default();
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        if !self.huge.is_due(instructions) {
            return;
        }
        self.chunks = Chunks::default();
        let Gtsm { config, huge, chunks } = self;
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
