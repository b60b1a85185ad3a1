//! Walks to [gapped pages](octavo_os::page_table::Gapped): walkers read the bitmap of the chunk after the page's entry (Park et al.,
//! ISCA 2020, Section VII-D).

use octavo_hw::Caches;
use octavo_os::frames::{Frames, SubBlocks};
use octavo_os::page_table::Gapped;
use octavo_types::{FrameNumber, PageNumber};

use super::Env;
use super::walk::WalkerCounters;
use crate::front::Lines;

/// Reads the bitmap of the chunk with this first frame through the data caches. Returns its sub-blocks and
/// the latency in cycles.
pub(super) fn read_chunk_bitmap(
    frames: &Frames,
    chunk: FrameNumber,
    walker: &mut WalkerCounters,
    (caches, lines): (&mut Caches, Lines),
) -> (SubBlocks, u32) {
    let bitmaps = frames.chunk_bitmaps();
    let latency_cycles = walker.read_bitmap(caches, lines, bitmaps.place_of(chunk));
    let blocks = bitmaps.of(chunk);
    let blocks = blocks.expect("a TLB holds no page of an unused chunk");
    (blocks, latency_cycles)
}

impl Env {
    /// The gapped page of the running process that holds a base page, if any.
    pub(super) fn gapped(&self, page: PageNumber) -> Option<Gapped> {
        self.os.memory().process(self.process).table.gapped(page)
    }

    /// Reads the bitmap of the chunk with this first frame through the data caches; in a guest, of a chunk of
    /// host memory, since guest pages have no gaps. With `continues_walk` the read is part of the
    /// [walk](Env::walk) just made.
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
        self.charge_walk_part(latency_cycles, continues_walk);
        blocks
    }
}
