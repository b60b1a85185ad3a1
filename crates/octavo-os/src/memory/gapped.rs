//! Pages of 2 MiB with gaps (paper 004, Section VII-D): made, and counted. What is done to them at once that is
//! done to base pages one by one elsewhere is in [`whole`](super::perforated); what is done to a part of one
//! splits it.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use rustc_hash::FxHashMap;

use super::ranges::contains;
use super::{EVERYTHING, Memory, ProcessId, around, base_pages};
use crate::frames::{OutOfMemory, SubBlocks};
use crate::page_table::{Gapped, Holes, Leaf, PageTable};
use crate::vmas::Pages;

impl Memory {
    /// The pages with gaps that lie in a range or reach into it.
    pub fn gapped_in(&self, process: ProcessId, pages: &Pages) -> Vec<Gapped> {
        let most = self.process(process).table.gapped_pages();
        self.regions_in(process, pages, most, PageTable::gapped)
    }

    /// How many pages with gaps all processes have mapped.
    pub fn gapped_pages(&self) -> u64 {
        self.processes.iter().flatten().map(|of| of.table.gapped_pages()).sum()
    }

    /// Makes a page with gaps of the 2 MiB around a base page, of these sub-blocks of a chunk, whose frames the
    /// caller has allocated as data: base pages that are mapped there, all of them the process' own, move to
    /// their places, the rest is cleared. Returns whether there is one now: there is none where page tables
    /// cannot say so.
    ///
    /// # Errors
    /// Where there are no frames for its page table: nothing has changed then.
    ///
    /// # Panics
    /// Where a larger page is in the way.
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
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        if !of.table.map_gapped(page, (chunk, blocks), rights, used, &mut self.frames)? {
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

    /// The pages in a range that are perforated or have gaps, as pages of 2 MiB: of those with gaps the frame
    /// is the chunk's, and they have no holes.
    pub(super) fn parted_in(&self, process: ProcessId, pages: &Pages) -> Vec<(Leaf, Holes)> {
        let mut all = self.perforated_in(process, pages);
        let region = |of: Gapped| {
            let Gapped { page, chunk: frame, rights, .. } = of;
            (Leaf { page, frame, size: PageSize::HUGE, rights }, Holes::default())
        };
        all.extend(self.gapped_in(process, pages).into_iter().map(region));
        all
    }

    /// Pages with gaps of a process were split: as any large page that is split, each is a shootdown, but for
    /// those that lie in pages which are about to be forgotten.
    pub(super) fn collect_gapped_splits(&mut self, process: ProcessId, forgotten: &Pages) {
        let Some(Some(of)) = self.processes.get_mut(usize::from(process.0)) else { return };
        for page in of.table.take_gapped_splits() {
            self.counters.splits += 1;
            self.counters.entries_written += base_pages(PageSize::HUGE);
            let pages = around(page, PageSize::HUGE);
            if !contains(forgotten, &pages) {
                self.invalidate(process, pages);
            }
        }
    }

    /// The same of all processes.
    pub(super) fn collect_all_gapped_splits(&mut self) {
        if self.frames.chunk_bitmaps().are_there() {
            let live: Vec<ProcessId> = self.live().collect();
            live.into_iter().for_each(|process| self.collect_gapped_splits(process, &(0..0)));
        }
    }

    /// Whether chunks have the pages that page tables say, the bitmaps say where their parts lie, and no part is
    /// faulty.
    pub(super) fn check_gaps(&self) -> Result<(), String> {
        let mut tables = FxHashMap::<FrameNumber, u32>::default();
        for process in self.live() {
            let table = &self.process(process).table;
            let gapped = self.gapped_in(process, &EVERYTHING);
            if gapped.len() as u64 != table.gapped_pages() {
                let told = table.gapped_pages();
                return Err(format!("{} pages have gaps, not {told}", gapped.len()));
            }
            for of in gapped {
                *tables.entry(of.chunk).or_insert(0) += 1;
                let blocks = self.frames.chunk_bitmaps().of(of.chunk).unwrap_or_default();
                for at in 0..base_pages(PageSize::HUGE) {
                    let leaf = table.leaf(PageNumber::new(of.page.raw() + at));
                    let said = blocks.frame_of(of.chunk, at);
                    if leaf.map(|leaf| leaf.frame) != said {
                        return Err(format!("part {at} of a page with gaps is not in {said:?}"));
                    }
                }
            }
        }
        let told = self.frames.chunk_bitmaps().counted();
        match tables == told {
            true => Ok(()),
            false => Err(format!("{} chunks have a page, not {}", tables.len(), told.len())),
        }
    }
}
