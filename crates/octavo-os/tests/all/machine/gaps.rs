//! A TLB of unlimited size that caches gapped pages.

use std::collections::BTreeMap;

use octavo_os::vmas::Pages;
use octavo_os::{Memory, ProcessId};
use octavo_types::{FrameNumber, PageNumber};

/// Entries of gapped pages, and chunk bitmaps.
#[derive(Default)]
pub struct CachedGappedPages {
    /// By region of 512 pages: its chunk, the chunk's bits, and store permission.
    pages: BTreeMap<(ProcessId, u64), (FrameNumber, u64, bool)>,
}

impl CachedGappedPages {
    /// Fills the entry of a walked page.
    pub fn walked(&mut self, memory: &Memory, process: ProcessId, page: PageNumber) {
        let Some(of) = memory.process(process).table.gapped(page) else { return };
        let bits = memory.frames.chunk_bitmaps().of(of.chunk).unwrap().bits();
        self.pages.insert((process, page.raw() / 512), (of.chunk, bits, of.rights.write));
    }

    /// Drops the entries of these pages.
    pub fn invalidate(&mut self, process: ProcessId, pages: &Pages) {
        self.pages.retain(|(of, region), _| {
            *of != process || region * 512 >= pages.end || pages.start >= (region + 1) * 512
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
