//! Finds room for [gapped pages](crate::page_table::Gapped) of 2 MiB, creates and counts them. Operations on
//! whole gapped pages are in [`composite_pages`](super::composite_pages); an operation on a
//! part splits the page.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use rustc_hash::FxHashMap;

use super::ranges::contains;
use super::{EVERYTHING, Memory, ProcessId, around, base_pages};
use crate::frames::{Frames, OutOfMemory, Owner, SubBlocks};
use crate::page_table::{Gapped, Holes, Leaf, PageTable};
use crate::vmas::Pages;

/// A search for chunks with room for a gapped page, in the order of memory. A chunk has at most one such page,
/// of the lowest sub-blocks that are entirely free.
#[derive(Default)]
pub struct ChunkSearch {
    /// Chunks before this one are skipped.
    next: u64,
}

impl ChunkSearch {
    /// Makes the 2 MiB from a page on a gapped page; it is unmapped or consists of private base pages. Without
    /// a chunk or a page table with room for it, nothing changes.
    pub fn map_gapped(
        &mut self,
        memory: &mut Memory,
        process: ProcessId,
        first: PageNumber,
        rights: Protection,
    ) {
        if !memory.process(process).table.format().has_gapped {
            return;
        }
        let Some((chunk, blocks)) = self.choose(&memory.frames) else { return };
        let frames = |number: u64| chunk.plus(number * SubBlocks::ORDER.frames());
        for block in blocks.iter().map(frames) {
            let taken = memory.frames.allocate_at(block, SubBlocks::ORDER, Owner::Data);
            assert!(taken, "a sub-block that is free");
        }
        if !memory.map_gapped(process, first, (chunk, blocks), rights).unwrap_or(false) {
            blocks.iter().for_each(|number| memory.frames.free(frames(number), SubBlocks::ORDER));
        }
    }

    /// The next chunk with enough free sub-blocks and no page.
    fn choose(&mut self, frames: &Frames) -> Option<(FrameNumber, SubBlocks)> {
        let chunk_frames = SubBlocks::CHUNK.frames();
        while self.next < frames.shape().frames() / chunk_frames {
            let chunk = FrameNumber::new(self.next * chunk_frames);
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

impl Memory {
    /// The gapped pages that overlap a range.
    pub fn gapped_in(&self, process: ProcessId, pages: &Pages) -> Vec<Gapped> {
        let most = self.process(process).table.gapped_pages();
        self.regions_in(process, pages, most, PageTable::gapped)
    }

    /// The number of gapped pages of all processes.
    pub fn gapped_pages(&self) -> u64 {
        self.processes.iter().flatten().map(|space| space.table.gapped_pages()).sum()
    }

    /// Makes the 2 MiB around a base page a gapped page of these sub-blocks of a chunk, whose frames the
    /// caller has allocated as data: mapped base pages, all private, move to their places; the rest is
    /// cleared. Returns whether the page exists now: page tables without support for gapped pages keep none.
    ///
    /// # Errors
    /// If there are no frames for its page table: nothing has changed.
    ///
    /// # Panics
    /// If a larger page is mapped there.
    pub fn map_gapped(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        (chunk, blocks): (FrameNumber, SubBlocks),
        rights: Protection,
    ) -> Result<bool, OutOfMemory> {
        let pages = around(page, PageSize::HUGE);
        let old = self.leaves(process, &pages);
        let used = self.used_of(process, &old);
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        if !space.table.map_gapped(page, (chunk, blocks), rights, used, &mut self.frames)? {
            return Ok(false);
        }
        self.counters.gapped += 1;
        self.counters.entries_written += 1;
        let block = SubBlocks::ORDER.frames();
        let frames = blocks.iter().flat_map(|number| number * block..(number + 1) * block);
        let parts = (0..).zip(frames.map(|frame| chunk.plus(frame)));
        self.fill(process, pages, &old, !old.is_empty(), parts);
        Ok(true)
    }

    /// The composite (with holes, or gapped) pages in a range, as pages of 2 MiB with their holes. The frame
    /// of a gapped page is that of its chunk; it has no holes.
    pub(super) fn composite_in(&self, process: ProcessId, pages: &Pages) -> Vec<(Leaf, Holes)> {
        let mut all = self.pages_with_holes_in(process, pages);
        let region = |Gapped { page, chunk: frame, rights, .. }: Gapped| {
            (Leaf { page, frame, size: PageSize::HUGE, rights }, Holes::default())
        };
        all.extend(self.gapped_in(process, pages).into_iter().map(region));
        all
    }

    /// Collects the splits of gapped pages of a process. Each is a shootdown, like the split of any large
    /// page, unless the page lies in a range that is invalidated anyway.
    pub(super) fn collect_gapped_splits(&mut self, process: ProcessId, invalidated: &Pages) {
        let Some(Some(space)) = self.processes.get_mut(usize::from(process.0)) else { return };
        for page in space.table.take_gapped_splits() {
            self.counters.splits += 1;
            self.counters.entries_written += base_pages(PageSize::HUGE);
            let pages = around(page, PageSize::HUGE);
            if !contains(invalidated, &pages) {
                self.invalidate(process, pages);
            }
        }
    }

    /// Collects the splits of gapped pages of all processes.
    pub(super) fn collect_all_gapped_splits(&mut self) {
        if self.frames.chunk_bitmaps().are_reserved() {
            let live: Vec<ProcessId> = self.live().collect();
            live.into_iter().for_each(|process| self.collect_gapped_splits(process, &(0..0)));
        }
    }

    /// Checks that chunks have the pages of the page tables, that bitmaps match the frames of their parts,
    /// and that no part is faulty.
    pub(super) fn check_gaps(&self) -> Result<(), String> {
        let mut tables = FxHashMap::<FrameNumber, u32>::default();
        for process in self.live() {
            let table = &self.process(process).table;
            let gapped = self.gapped_in(process, &EVERYTHING);
            if gapped.len() as u64 != table.gapped_pages() {
                let counted = table.gapped_pages();
                return Err(format!("{} pages have gaps, not {counted}", gapped.len()));
            }
            for Gapped { page, chunk, .. } in gapped {
                *tables.entry(chunk).or_insert(0) += 1;
                let blocks = self.frames.chunk_bitmaps().of(chunk).unwrap_or_default();
                for at in 0..base_pages(PageSize::HUGE) {
                    let leaf = table.leaf(PageNumber::new(page.raw() + at));
                    let expected = blocks.frame_of(chunk, at);
                    if leaf.map(|leaf| leaf.frame) != expected {
                        return Err(format!(
                            "part {at} of a page with gaps is not in {expected:?}"
                        ));
                    }
                }
            }
        }
        let counted = self.frames.chunk_bitmaps().counted();
        match tables == counted {
            true => Ok(()),
            false => Err(format!("{} chunks have a page, not {}", tables.len(), counted.len())),
        }
    }
}
