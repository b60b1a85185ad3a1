//! Entries of perforated pages (Park et al., ISCA 2020, Section IV-B): entries of 2 MiB pages with the hole
//! filter in frame bits that such pages leave unused.

use octavo_os::page_table::Perforated;
use octavo_types::{PageNumber, PageSize};

use super::{FRAME_SHIFT, ORDER_SHIFT, TlbEntry, Translation};

/// Flag in the order field, of which a 2 MiB page uses four bits.
const PERFORATED: u64 = 16 << ORDER_SHIFT;
const FILTER_MASK: u64 = 0xff << FRAME_SHIFT;
/// log2 of the base pages per filter bit.
const FILTERED_LOG2: u32 = 6;

impl Translation {
    /// The translation of a perforated page of a page table.
    pub fn perforated(page: &Perforated, is_dirty: bool) -> Self {
        Translation::of(&page.region, is_dirty).as_perforated(page.filter)
    }

    /// A 2 MiB page as a perforated page with this hole filter.
    pub fn as_perforated(&self, filter: u8) -> Self {
        let entry = TlbEntry(self.entry.0 | PERFORATED | u64::from(filter) << FRAME_SHIFT);
        Translation { size: PageSize::HUGE, entry }
    }

    /// Whether it is a perforated page. Use only [`Translation::part_of_region`] for its base pages.
    pub fn is_perforated(&self) -> bool {
        // A part of a page of 256 MiB or more has that page's order.
        const ORDER: u64 = super::ORDER_MASK << ORDER_SHIFT;
        const HOLES: u64 = (PageSize::HUGE.base_shift() as u64) << ORDER_SHIFT | PERFORATED;
        self.size == PageSize::HUGE && self.entry.0 & ORDER == HOLES
    }

    /// The hole filter of a perforated page; 0 for any other page.
    pub fn filter(&self) -> u8 {
        if self.is_perforated() { (self.entry.0 >> FRAME_SHIFT) as u8 } else { 0 }
    }

    /// The region of a perforated page as a plain 2 MiB page; any other page unchanged.
    pub fn region(&self) -> Translation {
        match self.is_perforated() {
            true => {
                Translation { entry: TlbEntry(self.entry.0 & !(PERFORATED | FILTER_MASK)), ..*self }
            }
            false => *self,
        }
    }

    /// Whether the filter of a perforated page allows a hole at a base page.
    pub fn may_be_hole(&self, page: PageNumber) -> bool {
        self.filter() >> ((page.raw() % 512) >> FILTERED_LOG2) & 1 != 0
    }

    /// The translation of a base page of a perforated page that is not a hole.
    pub fn part_of_region(&self, page: PageNumber) -> Translation {
        let frame = self.region().frame_of(page);
        let (is_writable, is_dirty) = (self.entry.is_writable(), self.entry.is_dirty());
        Translation {
            size: PageSize::BASE,
            entry: TlbEntry::new(frame, PageSize::BASE, is_writable, is_dirty),
        }
    }

    /// The perforated page with its dirty bit set.
    pub fn with_dirty(&self) -> Translation {
        Translation { entry: TlbEntry(self.entry.0 | super::DIRTY), ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_os::page_table::{Leaf, Step};
    use octavo_types::{FrameNumber, PhysAddr, Protection};

    #[test]
    fn perforated_page_translates_base_pages_and_filters_holes() {
        let rights = Protection { read: true, write: true, execute: false };
        let (page, frame) = (PageNumber::new(512 * 7), FrameNumber::new(512 * 9));
        let region = Leaf { page, frame, size: PageSize::HUGE, rights };
        let step = Step { at: PhysAddr::new(0), level: 2 };
        let of = Perforated {
            region,
            used: (true, true),
            filter: 0b1000_0010,
            hole_steps: [step; 2],
            is_hole: false,
        };
        let translation = Translation::perforated(&of, true);
        let other = PageNumber::new(page.raw() + 70);
        assert!(translation.is_perforated() && !Translation::of(&region, true).is_perforated());
        let part_of_1gib = Translation::of(&Leaf { size: PageSize::LARGEST, ..region }, true);
        assert!(!part_of_1gib.part(page, PageSize::HUGE).is_perforated());
        let may = [0, 63, 64, 127, 128, 511]
            .map(|at| translation.may_be_hole(PageNumber::new(page.raw() + at)));
        assert_eq!(may, [false, false, true, true, false, true]);
        let part = translation.part_of_region(other);
        assert_eq!((part.size, part.entry.frame()), (PageSize::BASE, frame.plus(70)));
        assert!(part.entry.permits(true) && !part.is_perforated());
        let clean = Translation::perforated(&of, false);
        assert!(!clean.entry.permits(true) && clean.with_dirty() == translation);
    }
}
