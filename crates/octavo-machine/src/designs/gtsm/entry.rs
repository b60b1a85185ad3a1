//! TLB entries of [gapped pages](octavo_os::page_table::Gapped): entries of 2 MiB pages that hold the frame of
//! their chunk.

use octavo_os::frames::SubBlocks;
use octavo_os::page_table::Gapped;
use octavo_types::{FrameNumber, PageNumber, PageSize};

use crate::tlb::{TlbEntry, Translation};

/// The spare bit of an entry that marks a gapped page.
const GAPPED: u64 = 1;

impl Translation {
    /// The translation of a gapped page of a page table.
    pub(super) fn gapped(page: &Gapped, is_dirty: bool) -> Self {
        let entry = TlbEntry::new(page.chunk, PageSize::HUGE, page.rights.write, is_dirty);
        Translation { size: PageSize::HUGE, entry }.as_gapped()
    }

    /// A 2 MiB page, whose frame is that of a chunk, as a gapped page.
    pub(super) fn as_gapped(&self) -> Self {
        Translation { size: PageSize::HUGE, entry: self.entry.with_spare(GAPPED) }
    }

    /// Whether it is a gapped page. Use only [`Translation::part_of_chunk`] for its base pages.
    pub(super) fn is_gapped(&self) -> bool {
        self.size == PageSize::HUGE && self.entry.spare() == GAPPED
    }

    /// The first frame of the chunk of a gapped page.
    pub(super) fn chunk(&self) -> FrameNumber {
        self.entry.frame()
    }

    /// The translation of a base page of a gapped page made of the given sub-blocks.
    pub(super) fn part_of_chunk(&self, page: PageNumber, blocks: SubBlocks) -> Translation {
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
    use octavo_os::page_table::Leaf;
    use octavo_types::Protection;

    const RW: Protection = Protection { read: true, write: true, execute: false };

    #[test]
    fn gapped_page_translates_its_base_pages() {
        let (page, chunk) = (PageNumber::new(512 * 7), FrameNumber::new(1024 * 9));
        let gapped = Gapped { page, chunk, rights: RW, used: (true, false) };
        let translation = Translation::gapped(&gapped, true);
        assert!(translation.is_gapped() && translation.chunk() == chunk);
        let plain = TlbEntry::new(chunk, PageSize::HUGE, true, true);
        assert!(!Translation { size: PageSize::HUGE, entry: plain }.is_gapped());
        let blocks = SubBlocks::first_of(u64::MAX << 3).unwrap();
        let part = translation.part_of_chunk(PageNumber::new(512 * 7 + 40), blocks);
        // The third sub-block of the page is the sixth of the chunk.
        assert_eq!((part.size, part.entry.frame()), (PageSize::BASE, chunk.plus(5 * 16 + 8)));
        assert!(part.entry.permits(true) && !part.is_gapped());
        assert!(
            !Translation::gapped(&gapped, false).part_of_chunk(page, blocks).entry.permits(true)
        );
    }

    #[test]
    fn part_of_a_larger_page_is_not_a_gapped_page() {
        for log2 in PageSize::HUGE.log2()..=PageSize::LARGEST.log2() {
            let size = PageSize::from_log2(log2).unwrap();
            let (page, frame) = (PageNumber::new(0), FrameNumber::new(0));
            let whole = Translation::of(&Leaf { page, frame, size, rights: RW }, true);
            assert!(!whole.part(page, PageSize::HUGE).is_gapped());
        }
    }
}
