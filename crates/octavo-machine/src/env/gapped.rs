//! What walkers read beyond the entry of a page with gaps (paper 004, Section VII-D): the bitmap of its chunk.

use octavo_os::frames::SubBlocks;
use octavo_os::page_table::Gapped;
use octavo_types::{FrameNumber, PageNumber};

use super::Env;

impl Env {
    /// The page with gaps of the process that runs which holds a base page, if one does.
    pub fn gapped(&self, page: PageNumber) -> Option<Gapped> {
        self.os.memory().process(self.process).table.gapped(page)
    }

    /// Reads the bitmap of a chunk, told by its first frame, through the data caches; `is_under_way` says
    /// whether this goes on with a [walk](Env::walk).
    pub(crate) fn read_chunk_bitmap(
        &mut self,
        chunk: FrameNumber,
        is_under_way: bool,
    ) -> SubBlocks {
        let bitmaps = self.os.memory().frames.chunk_bitmaps();
        let (at, blocks) = (bitmaps.place_of(chunk), bitmaps.of(chunk));
        self.read_bitmap_at(at, is_under_way);
        blocks.expect("what a TLB knows of a chunk without a page is stale, and forgotten")
    }
}
