//! Pages of 2 MiB with gaps (paper 004, Section VII-D: Gap-Tolerant Sequential Mapping): each is made of 32
//! sub-blocks of 64 KiB of one chunk of 4 MiB, in order. Its entry of level 2 says where the chunk lies; which
//! sub-blocks they are, the chunk's [bitmap](crate::frames::ChunkBitmaps) says.
//!
//! To all that asks for pages, its parts look like base pages, as those of a perforated page do. Whatever is
//! done to a single one splits the page: below its entry a node of level 1 stands ready with an entry for each
//! base page, as Linux deposits one behind each huge page, so that a split needs no memory.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::entry::{ENTRIES, Entry};
use super::perforated::{EntryIndex, LEVEL};
use super::{Leaf, PageTable, Used, index};
use crate::frames::{Frames, OutOfMemory, SubBlocks};

/// What a page table knows of its pages with gaps beside their entries.
#[derive(Default)]
pub(super) struct GappedState {
    /// How many there are.
    pub pages: u64,
    /// The first base pages of those that were split since that was asked last.
    split: Vec<PageNumber>,
}

/// A page with gaps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gapped {
    /// Its first base page.
    pub page: PageNumber,
    /// The first frame of its chunk.
    pub chunk: FrameNumber,
    /// What it may be used for.
    pub rights: Protection,
    /// How its entry says that it was used.
    pub used: Used,
}

impl PageTable {
    /// How many pages with gaps there are.
    pub fn gapped_pages(&self) -> u64 {
        self.gaps.pages
    }

    /// The page with gaps that holds a base page.
    pub fn gapped(&self, page: PageNumber) -> Option<Gapped> {
        let entry = self.entry_of(self.gapped_at(page)?);
        let first = PageNumber::new(page.raw() & !(ENTRIES as u64 - 1));
        let (rights, used) = (entry.rights(), entry.used());
        Some(Gapped { page: first, chunk: entry.frame(LEVEL), rights, used })
    }

    /// Makes a page with gaps of the 2 MiB around a base page, of these sub-blocks of a chunk: what was mapped
    /// there is mapped no longer. Returns whether there is one now: not every page table can say so.
    ///
    /// # Errors
    /// Where there are no frames for its nodes: nothing has changed then.
    ///
    /// # Panics
    /// Where a larger page is in the way, or there is a page with gaps.
    pub fn map_gapped(
        &mut self,
        page: PageNumber,
        (chunk, blocks): (FrameNumber, SubBlocks),
        rights: Protection,
        used: Used,
        frames: &mut Frames,
    ) -> Result<bool, OutOfMemory> {
        if !self.format.has_gapped {
            return Ok(false);
        }
        let first = PageNumber::new(page.raw() & !(ENTRIES as u64 - 1));
        assert!(self.gapped_at(first).is_none(), "there is a page with gaps");
        let place = self.prepare_path(first, PageSize::HUGE, chunk, frames)?;
        let of = (place.node, place.first);
        let child = self.child_or_new(of, first, frames)?;
        self.uncount_entry(of.0, of.1, LEVEL);
        let block = SubBlocks::ORDER.frames();
        let parts = blocks.iter().flat_map(|number| (number * block)..(number + 1) * block);
        for (at, frame) in parts.map(|frame| chunk.plus(frame)).enumerate() {
            self.uncount_entry(child, at, 1);
            let part = Entry::page(frame, PageSize::BASE, rights, self.format.encoding);
            self.nodes[child as usize].set(at, part);
        }
        let whole = Entry::page(chunk, PageSize::HUGE, rights, self.format.encoding);
        self.set_entry(of, whole.gapped().with_used(used));
        self.gaps.pages += 1;
        frames.chunks.add(chunk, blocks);
        Ok(true)
    }

    /// The first base pages of the pages with gaps that were split since this was asked last.
    pub fn take_gapped_splits(&mut self) -> Vec<PageNumber> {
        std::mem::take(&mut self.gaps.split)
    }

    /// The page with gaps that holds a base page.
    pub(super) fn gapped_at(&self, page: PageNumber) -> Option<EntryIndex> {
        if self.gaps.pages == 0 {
            return None;
        }
        self.of_level_2(page).filter(|of| self.entry_of(*of).is_gapped())
    }

    /// A base page of a page with gaps.
    pub(super) fn base_page_of_gapped(&self, page: PageNumber, of: EntryIndex) -> Leaf {
        let frame = self.nodes[self.child_of(of)].entries[index(page, 1)].frame(1);
        Leaf { page, frame, size: PageSize::BASE, rights: self.entry_of(of).rights() }
    }

    /// Puts base pages in the place of the page with gaps that holds a base page, if one does: something is
    /// about to be done to that alone.
    pub(super) fn split_around(&mut self, page: PageNumber, frames: &mut Frames) {
        if let Some(of) = self.gapped_at(page) {
            self.split_gapped(of, frames);
            self.gaps.split.push(PageNumber::new(page.raw() & !(ENTRIES as u64 - 1)));
        }
    }

    /// Puts base pages in the place of a page with gaps.
    pub(super) fn split_gapped(&mut self, of: EntryIndex, frames: &mut Frames) {
        let (whole, child) = (self.entry_of(of), self.child_of(of));
        for at in 0..ENTRIES {
            let frame = self.nodes[child].entries[at].frame(1);
            let rights = whole.rights();
            let part = Entry::page(frame, PageSize::BASE, rights, self.format.encoding);
            self.nodes[child].set(at, part.with_used(whole.used()));
        }
        self.count_page(PageSize::BASE, ENTRIES as u64);
        let frame = self.nodes[child].frame;
        self.set_entry(of, Entry::node(frame));
        self.gaps.pages -= 1;
        frames.chunks.remove(whole.frame(LEVEL));
    }
}
