//! Gapped pages: a TLB of unlimited size that caches them, and a policy that makes them.

use std::collections::BTreeMap;

use octavo_os::frames::OutOfMemory;
use octavo_os::policy::{Fault, Policy, Thp, ThpConfig, place_last};
use octavo_os::vmas::Pages;
use octavo_os::{ChunkSearch, Memory, ProcessId, around};
use octavo_types::{FrameNumber, PageNumber, PageSize};

/// Entries of gapped pages, and chunk bitmaps.
#[derive(Default)]
pub struct CachedGappedPages {
    /// By region of 512 pages: its chunk, the chunk's bits, and store permission.
    pages: BTreeMap<(ProcessId, u64), (FrameNumber, u64, bool)>,
}

impl CachedGappedPages {
    /// Fills the entry of a walked page.
    pub fn walked(&mut self, memory: &Memory, process: ProcessId, page: PageNumber) {
        let Some(gapped) = memory.process(process).table.gapped(page) else { return };
        let bits = memory.frames.chunk_bitmaps().of(gapped.chunk).unwrap().bits();
        self.pages.insert((process, page.raw() / 512), (gapped.chunk, bits, gapped.rights.write));
    }

    /// Drops the entries of these pages.
    pub fn invalidate(&mut self, process: ProcessId, pages: &Pages) {
        self.pages.retain(|(owner, region), _| {
            *owner != process || region * 512 >= pages.end || pages.start >= (region + 1) * 512
        });
    }

    /// Checks that cached parts are where the bits place them, and that the bits match memory.
    pub fn check(&self, memory: &Memory) {
        for ((process, region), (chunk, bits, write)) in &self.pages {
            let now = memory.frames.chunk_bitmaps().of(*chunk);
            assert_eq!(now.map(|blocks| blocks.bits()), Some(*bits), "{region} is stale");
            let blocks = (0..64).filter(|number| bits >> number & 1 != 0);
            let frames = blocks.flat_map(|number| number * 16..(number + 1) * 16);
            for (at, frame) in frames.enumerate() {
                let page = PageNumber::new(region * 512 + at as u64);
                let leaf = memory.process(*process).table.leaf(page);
                let leaf = leaf.unwrap_or_else(|| panic!("{page:?} is stale: nothing is there"));
                assert_eq!(leaf.frame_of(page), chunk.plus(frame), "{page:?} is stale");
                assert!(leaf.rights.write || !write, "{page:?} is stale: no stores now");
            }
        }
    }
}

/// Pages of 2 MiB at first touch and in the background: always gapped pages, or only if no block is free.
pub struct GappedPages {
    whole_blocks: bool,
    huge: Thp,
    chunks: ChunkSearch,
}

impl GappedPages {
    /// A policy that scans in each background run.
    pub fn new(whole_blocks: bool) -> Self {
        let huge = Thp::new(ThpConfig { scan_every_instructions: 1, ..ThpConfig::default() });
        GappedPages { whole_blocks, huge, chunks: ChunkSearch::default() }
    }
}

impl Policy for GappedPages {
    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        let Fault { process, page, ref mapping, ref vma } = *fault;
        let huge = around(page, PageSize::HUGE);
        let fits = mapping.start <= huge.start && huge.end <= mapping.end;
        if fits && self.huge.allows(vma) && memory.is_untouched(process, &huge) {
            let first = PageNumber::new(huge.start);
            if self.whole_blocks
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

    fn unmapped(&mut self, _: &mut Memory, _: ProcessId, _: &Pages) {
        self.chunks = ChunkSearch::default();
    }

    fn background(&mut self, memory: &mut Memory, instructions: u64) {
        if !self.huge.is_due(instructions) {
            return;
        }
        self.chunks = ChunkSearch::default();
        let GappedPages { whole_blocks, huge, chunks } = self;
        huge.scan(memory, |memory, process, first, vma| {
            let is_whole = memory.process(process).table.gapped(first).is_some()
                || *whole_blocks
                    && memory.collapse(process, first, PageSize::HUGE, vma.rights).is_ok();
            if !is_whole {
                chunks.map_gapped(memory, process, first, vma.rights);
            }
        });
    }
}
