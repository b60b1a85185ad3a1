//! What walkers read beyond the entry of a page with gaps (paper 004, Section VII-D): the bitmap of its chunk.

use octavo_hw::Caches;
use octavo_os::frames::{Frames, SubBlocks};
use octavo_os::page_table::Gapped;
use octavo_types::{FrameNumber, PageNumber};

use super::Env;
use super::walk::WalkerCounters;
use crate::front::Lines;

/// Reads the bitmap of a chunk of this memory, told by its first frame, through the data caches; and what that
/// cost, in cycles.
pub(super) fn read_chunk_bitmap(
    frames: &Frames,
    chunk: FrameNumber,
    walker: &mut WalkerCounters,
    (caches, lines): (&mut Caches, Lines),
) -> (SubBlocks, u32) {
    let bitmaps = frames.chunk_bitmaps();
    let latency_cycles = walker.read_bitmap(caches, lines, bitmaps.place_of(chunk));
    let blocks = bitmaps.of(chunk);
    let blocks =
        blocks.expect("what a TLB knows of a chunk without a page is stale, and forgotten");
    (blocks, latency_cycles)
}

impl Env {
    /// The page with gaps of the process that runs which holds a base page, if one does.
    pub(super) fn gapped(&self, page: PageNumber) -> Option<Gapped> {
        self.os.memory().process(self.process).table.gapped(page)
    }

    /// Reads the bitmap of a chunk, told by its first frame, through the data caches: in a guest, of a chunk of
    /// the host's, since no page of a guest has gaps. `continues_walk` says whether this goes on with a
    /// [walk](Env::walk).
    pub(crate) fn read_chunk_bitmap(
        &mut self,
        chunk: FrameNumber,
        continues_walk: bool,
    ) -> SubBlocks {
        let Env { os, host, walker, caches, lines, .. } = self;
        let (os, walker) = match host {
            Some(host) => (&host.os, &mut host.walker),
            None => (&*os, walker),
        };
        let port = (caches, *lines);
        let (blocks, latency_cycles) = read_chunk_bitmap(&os.memory().frames, chunk, walker, port);
        self.add_or_extend_walk(latency_cycles, continues_walk);
        blocks
    }
}
