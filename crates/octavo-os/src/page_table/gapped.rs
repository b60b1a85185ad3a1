//! Gapped pages (Du et al., HPCA 2015; Park et al., ISCA 2020, Section VII-D): a gapped page
//! consists of 32 sub-blocks of 64 KiB of one 4 MiB chunk, in order. Its entry of level 2 holds the frame of
//! the chunk; the chunk's [bitmap](crate::frames::ChunkBitmaps) selects the sub-blocks.
//!
//! Queries see its parts as base pages, like those of a page with holes. An operation on a single part splits
//! the page: a node of level 1 with an entry for each base page is deposited below its entry (as Linux does
//! behind each huge page), so that a split needs no memory.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::entry::{ENTRIES, Entry};
use super::holes::{EntryIndex, LEVEL};
use super::{Leaf, PageTable, Used, index};
use crate::frames::{Frames, OutOfMemory, SubBlocks};

/// State of gapped pages outside their entries.
#[derive(Default)]
pub(super) struct GappedState {
    /// Number of gapped pages.
    pub pages: u64,
    /// First base pages of the gapped pages split since the last query.
    split: Vec<PageNumber>,
}

/// A gapped page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Gapped {
    /// Its first base page.
    pub page: PageNumber,
    /// The first frame of its chunk.
    pub chunk: FrameNumber,
    /// Its permissions.
    pub rights: Protection,
    /// Its accessed and dirty bits.
    pub used: Used,
}

impl PageTable {
    /// The number of gapped pages.
    pub fn gapped_pages(&self) -> u64 {
        self.gaps.pages
    }

    /// The gapped page that holds a base page.
    pub fn gapped(&self, page: PageNumber) -> Option<Gapped> {
        let entry = self.entry_of(self.gapped_at(page)?);
        let first = PageNumber::new(page.raw() & !(ENTRIES as u64 - 1));
        let (rights, used) = (entry.rights(), entry.used());
        Some(Gapped { page: first, chunk: entry.frame(LEVEL), rights, used })
    }

    /// Maps the 2 MiB around a base page as a gapped page of these sub-blocks of a chunk, in place of the
    /// pages there. Returns whether the format supports it.
    ///
    /// # Errors
    /// If there are no frames for its nodes: nothing has changed.
    ///
    /// # Panics
    /// If a larger page or a gapped page is mapped there.
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
        let slot = (place.node, place.first);
        let child = self.child_or_new(slot, first, frames)?;
        self.uncount_entry(slot.0, slot.1, LEVEL);
        let block = SubBlocks::ORDER.frames();
        let parts = blocks.iter().flat_map(|number| (number * block)..(number + 1) * block);
        for (at, frame) in parts.map(|frame| chunk.plus(frame)).enumerate() {
            self.uncount_entry(child, at, 1);
            let part = Entry::page(frame, PageSize::BASE, rights, self.format.encoding);
            self.nodes[child as usize].set(at, part);
        }
        let whole = Entry::page(chunk, PageSize::HUGE, rights, self.format.encoding);
        self.set_entry(slot, whole.gapped().with_used(used));
        self.gaps.pages += 1;
        frames.chunks.add(chunk, blocks);
        Ok(true)
    }

    /// The first base pages of gapped pages split since the last call.
    pub fn take_gapped_splits(&mut self) -> Vec<PageNumber> {
        std::mem::take(&mut self.gaps.split)
    }

    /// The gapped page that holds a base page.
    pub(super) fn gapped_at(&self, page: PageNumber) -> Option<EntryIndex> {
        if self.gaps.pages == 0 {
            return None;
        }
        self.level_2_entry(page).filter(|slot| self.entry_of(*slot).is_gapped())
    }

    /// A base page of a gapped page.
    pub(super) fn base_page_of_gapped(&self, page: PageNumber, slot: EntryIndex) -> Leaf {
        let frame = self.nodes[self.child_of(slot)].entries[index(page, 1)].frame(1);
        Leaf { page, frame, size: PageSize::BASE, rights: self.entry_of(slot).rights() }
    }

    /// Splits the gapped page that holds a base page, if any, before an operation on that base page.
    pub(super) fn split_around(&mut self, page: PageNumber, frames: &mut Frames) {
        if let Some(slot) = self.gapped_at(page) {
            self.split_gapped(slot, frames);
            self.gaps.split.push(PageNumber::new(page.raw() & !(ENTRIES as u64 - 1)));
        }
    }

    /// Splits a gapped page into base pages.
    pub(super) fn split_gapped(&mut self, slot: EntryIndex, frames: &mut Frames) {
        let (whole, child) = (self.entry_of(slot), self.child_of(slot));
        for at in 0..ENTRIES {
            let frame = self.nodes[child].entries[at].frame(1);
            let rights = whole.rights();
            let part = Entry::page(frame, PageSize::BASE, rights, self.format.encoding);
            self.nodes[child].set(at, part.with_used(whole.used()));
        }
        self.count_page(PageSize::BASE, ENTRIES as u64);
        let frame = self.nodes[child].frame;
        self.set_entry(slot, Entry::node(frame));
        self.gaps.pages -= 1;
        frames.chunks.remove(whole.frame(LEVEL));
    }
}
