//! Entries of [gapped pages](octavo_os::page_table::Gapped): entries of 2 MiB pages that hold the frame of
//! their chunk.

use octavo_os::frames::SubBlocks;
use octavo_os::page_table::Gapped;
use octavo_types::{FrameNumber, PageNumber, PageSize};

use super::{ORDER_SHIFT, TlbEntry, Translation};

/// Flag in the order field, whose value is 9 for a 2 MiB page.
const GAPPED: u64 = 4 << ORDER_SHIFT;

impl Translation {
    /// The translation of a gapped page of a page table.
    pub fn gapped(page: &Gapped, is_dirty: bool) -> Self {
        let entry = TlbEntry::new(page.chunk, PageSize::HUGE, page.rights.write, is_dirty);
        Translation { size: PageSize::HUGE, entry }.as_gapped()
    }

    /// A 2 MiB page, whose frame is that of a chunk, as a gapped page.
    pub fn as_gapped(&self) -> Self {
        Translation { size: PageSize::HUGE, entry: TlbEntry(self.entry.0 | GAPPED) }
    }

    /// Whether it is a gapped page. Use only [`Translation::part_of_chunk`] for its base pages.
    pub fn is_gapped(&self) -> bool {
        const HUGE: u64 = (PageSize::HUGE.base_shift() as u64) << ORDER_SHIFT | GAPPED;
        const ORDER: u64 = super::ORDER_MASK << ORDER_SHIFT;
        self.size == PageSize::HUGE && self.entry.0 & ORDER == HUGE
    }

    /// Whether a bitmap is needed to translate a base page of it: always for a gapped page; for a perforated
    /// page, where its filter allows a hole.
    pub fn needs_bitmap(&self, page: PageNumber) -> bool {
        self.is_gapped() || self.may_be_hole(page)
    }

    /// The first frame of the chunk of a gapped page.
    pub fn chunk(&self) -> FrameNumber {
        self.entry.frame()
    }

    /// The translation of a base page of a gapped page made of the given sub-blocks.
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
    fn gapped_page_translates_its_base_pages() {
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
        assert!(part.entry.permits(true) && !part.is_gapped());
        assert!(!Translation::gapped(&of, false).part_of_chunk(page, blocks).entry.permits(true));
    }
}
