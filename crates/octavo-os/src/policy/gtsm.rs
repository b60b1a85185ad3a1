//! Gap-Tolerant Sequential Mapping (paper 004, Section VII-D; Du et al., "Supporting Superpages in Non-Contiguous
//! Physical Memory", HPCA 2015): huge pages in memory with faults.
//!
//! - A first touch of 2 MiB gets a free block, as with transparent huge pages. Where none is free, it gets 32
//!   sub-blocks of 64 KiB of a chunk of 4 MiB, the lowest that are wholly free: what is faulty, or somebody's,
//!   is left out. A chunk has one such page, so that they take half of memory at most.
//! - The other sub-blocks of a chunk serve for base pages. These come from the end of memory, so that they do not
//!   wear away the chunks to be chosen.
//! - What is done to a part of such a page splits it: it has no holes.
//! - Beside the programs, base pages become huge pages or such pages, as `khugepaged` would have it.
//!
//! What is assumed: the paper does not say when an operating system prefers which. With `whole_blocks=false` free
//! blocks of 2 MiB are not used as such: each page is one of sub-blocks. Where page tables cannot say that (in a
//! guest, whose memory has no faults, and under other hardware), there are no other pages of 2 MiB than such
//! blocks, and they are used.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::base::place_last;
use super::{Fault, Policy, Thp, ThpConfig};
use crate::frames::{Frames, OutOfMemory, Owner, SubBlocks};
use crate::memory::{Memory, ProcessId, around};
use crate::vmas::Pages;

/// Its settings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GtsmConfig {
    /// Whether free blocks of 2 MiB are pages as they are.
    pub whole_blocks: bool,
    /// Which mappings may have huge pages, and what is done beside the programs.
    pub huge: ThpConfig,
}

impl GtsmConfig {
    /// Whether free blocks of 2 MiB are pages of a process as they are.
    fn takes_whole_blocks(&self, memory: &Memory, process: ProcessId) -> bool {
        self.whole_blocks || !has_gapped(memory, process)
    }
}

impl Default for GtsmConfig {
    fn default() -> Self {
        GtsmConfig { whole_blocks: true, huge: ThpConfig::default() }
    }
}

/// Gap-Tolerant Sequential Mapping.
pub struct Gtsm {
    config: GtsmConfig,
    huge: Thp,
    chunks: Chunks,
}

/// The chunks of memory.
#[derive(Default)]
struct Chunks {
    /// Those before this one are not looked at again until a range is unmapped or a scan begins.
    next: u64,
}

impl Gtsm {
    /// No page yet.
    pub fn new(config: GtsmConfig) -> Self {
        Gtsm { config, huge: Thp::new(config.huge), chunks: Chunks::default() }
    }
}

impl Chunks {
    /// Makes a page with gaps of the 2 MiB from a page on, which is all the process' own base pages or nothing.
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
        // Where its page table has no room, base pages serve.
        if !memory.map_gapped(process, first, (chunk, blocks), rights).unwrap_or(false) {
            blocks.iter().for_each(|number| memory.frames.free(frames(number), SubBlocks::ORDER));
        }
    }

    /// The next chunk with enough free sub-blocks, and no page yet.
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

/// Whether the page table of a process can say that a page has gaps.
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
