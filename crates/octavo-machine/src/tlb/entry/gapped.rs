//! Entries of pages with gaps (paper 004, Section VII-D): as those of pages of 2 MiB, with the frame of their
//! chunk.

use octavo_os::frames::SubBlocks;
use octavo_os::page_table::Gapped;
use octavo_types::{FrameNumber, PageNumber, PageSize};

use super::{ORDER_SHIFT, TlbEntry, Translation};

/// In the field of the order, which is 9 for a page of 2 MiB.
const GAPPED: u64 = 4 << ORDER_SHIFT;

impl Translation {
    /// A page with gaps of a page table.
    pub fn gapped(page: &Gapped, is_dirty: bool) -> Self {
        let entry = TlbEntry::new(page.chunk, PageSize::HUGE, page.rights.write, is_dirty);
        Translation { size: PageSize::HUGE, entry }.with_gaps()
    }

    /// A page of 2 MiB, whose frame is that of a chunk, as a page with gaps.
    pub fn with_gaps(&self) -> Self {
        Translation { size: PageSize::HUGE, entry: TlbEntry(self.entry.0 | GAPPED) }
    }

    /// Whether it is a page with gaps: its parts are then asked for by [`Translation::part_of_chunk`] alone.
    pub fn is_gapped(&self) -> bool {
        const HUGE: u64 = (PageSize::HUGE.base_shift() as u64) << ORDER_SHIFT | GAPPED;
        const ORDER: u64 = super::ORDER_MASK << ORDER_SHIFT;
        self.size == PageSize::HUGE && self.entry.0 & ORDER == HUGE
    }

    /// Whether it takes a bitmap to know where a base page of it lies: of a page with gaps always, of a
    /// perforated page where its filter says that there may be a hole.
    pub fn needs_bitmap(&self, page: PageNumber) -> bool {
        self.is_gapped() || self.may_be_hole(page)
    }

    /// The first frame of the chunk of a page with gaps.
    pub fn chunk(&self) -> FrameNumber {
        self.entry.frame()
    }

    /// A base page of a page with gaps, which is made of these sub-blocks.
    pub fn part_of_chunk(&self, page: PageNumber, blocks: SubBlocks) -> Translation {
        let place = page.raw() % (1 << PageSize::HUGE.base_shift());
        let frame = blocks.frame_of(self.chunk(), place).expect("a page has 32 sub-blocks");
        let (is_writable, is_dirty) = (self.entry.is_writable(), self.entry.is_dirty());
        let entry = TlbEntry::new(frame, PageSize::BASE, is_writable, is_dirty);
        Translation { size: PageSize::BASE, entry }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_types::Protection;

    #[test]
    fn a_page_with_gaps_tells_its_parts() {
        let rights = Protection { read: true, write: true, execute: false };
        let (page, chunk) = (PageNumber::new(512 * 7), FrameNumber::new(1024 * 9));
        let of = Gapped { page, chunk, rights, used: (true, false) };
        let translation = Translation::gapped(&of, true);
        assert!(
            translation.is_gapped() && !translation.is_perforated() && translation.chunk() == chunk
        );
        assert!(translation.needs_bitmap(page) && !translation.may_be_hole(page));
        let plain = TlbEntry::new(chunk, PageSize::HUGE, true, true);
        assert!(!Translation { size: PageSize::HUGE, entry: plain }.is_gapped());
        let blocks = SubBlocks::first_of(u64::MAX << 3).unwrap();
        let part = translation.part_of_chunk(PageNumber::new(512 * 7 + 40), blocks);
        // The third sub-block of the page is the sixth of the chunk.
        assert_eq!((part.size, part.entry.frame()), (PageSize::BASE, chunk.plus(5 * 16 + 8)));
        assert!(part.entry.serves(true) && !part.is_gapped());
        assert!(!Translation::gapped(&of, false).part_of_chunk(page, blocks).entry.serves(true));
    }
}
