//! Walks to [gapped pages](octavo_os::page_table::Gapped): walkers read the bitmap of the chunk after the page's
//! entry (Park et al., ISCA 2020, Section VII-D).

use octavo_os::Memory;
use octavo_os::frames::{Frames, OutOfMemory, Owner, SubBlocks};
use octavo_os::page_table::PageTable;
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

use crate::counters::Counters;
use crate::env::{CompositePages, Env, Host, HostAccess, Port};
use crate::tlb::Translation;

/// Gapped pages, of a process or, if there is a host, of the host.
pub struct Pages;

impl CompositePages for Pages {
    fn entry(&self, table: &PageTable, page: PageNumber) -> Option<Translation> {
        table.gapped(page).map(|gapped| Translation::gapped(&gapped, gapped.used.1))
    }

    fn is_composite(&self, translation: &Translation) -> bool {
        translation.is_gapped()
    }

    fn is_undecided(&self, translation: &Translation, _page: PageNumber) -> bool {
        translation.is_gapped()
    }

    /// All base pages have the permissions of the page.
    fn ends_walks(&self) -> bool {
        false
    }

    fn plain(&self, translation: &Translation) -> Translation {
        Translation { entry: translation.entry.with_spare(0), ..*translation }
    }

    /// A gapped page in the host's chunk.
    fn compose(
        &self,
        page: Translation,
        _guest: &Translation,
        backing: &Translation,
    ) -> Translation {
        if backing.is_gapped() { page.as_gapped() } else { page }
    }

    fn find_in_host(
        &self,
        host: &mut Host,
        access: &HostAccess<'_>,
        port: &mut Port<'_>,
        latency_cycles: &mut u32,
    ) -> Result<Option<(Translation, bool)>, OutOfMemory> {
        let (at, blocks) = bitmap_of(host.frames(), access.translation.chunk());
        *latency_cycles += host.read_table(at, port);
        Ok(Some((access.translation.part_of_chunk(access.page, blocks), true)))
    }

    fn report_walks(&self, env: &Env, counters: &mut Counters) {
        env.report_table_reads("bitmap_references", counters);
    }

    /// Only for an operating system whose page tables have gapped pages.
    fn report_memory(&self, component: &str, memory: &Memory, counters: &mut Counters) {
        if !memory.frames.chunk_bitmaps().are_reserved() {
            return;
        }
        counters.add(component, "gapped", memory.counters.gapped);
        let bitmaps = memory.frames.used_frames(Owner::HoleBitmap) * PageSize::BASE.bytes();
        counters.level(component, "bitmap_bytes", bitmaps);
        counters.level(&format!("{component}.pages.gapped"), "mapped", memory.gapped_pages());
    }
}

/// The place of the bitmap of the chunk with this first frame, and its sub-blocks.
fn bitmap_of(frames: &Frames, chunk: FrameNumber) -> (PhysAddr, SubBlocks) {
    let bitmaps = frames.chunk_bitmaps();
    let blocks = bitmaps.of(chunk).expect("a TLB holds no page of an unused chunk");
    (bitmaps.place_of(chunk), blocks)
}

/// Reads the bitmap of the chunk with this first frame through the data caches; in a guest, of a chunk of
/// host memory, since guest pages have no gaps. With `continues_walk` the read is part of the
/// [walk](Env::walk) just made.
pub fn read_bitmap(env: &mut Env, chunk: FrameNumber, continues_walk: bool) -> SubBlocks {
    let (blocks, latency_cycles) = if env.is_guest() {
        let read = env.with_host_port(|host, port| {
            let (at, blocks) = bitmap_of(host.frames(), chunk);
            Ok((blocks, host.read_table(at, port)))
        });
        read.expect("reads of the machine's memory succeed")
    } else {
        let (at, blocks) = bitmap_of(&env.os().memory().frames, chunk);
        (blocks, env.read_table(at))
    };
    env.charge_walk_part(latency_cycles, continues_walk);
    blocks
}
