//! TLB entries of perforated pages (Park et al., ISCA 2020, Section IV-B): entries of 2 MiB pages with the hole
//! filter in frame bits that such pages leave unused.

use octavo_os::page_table::{Holes, PageWithHoles};
use octavo_types::{PageNumber, PageSize};

use crate::tlb::{TlbEntry, Translation};

/// The spare bit of an entry that marks a perforated page.
const PERFORATED: u64 = 1;
/// log2 of the base pages per filter bit.
const FILTERED_LOG2: u32 = 6;

/// The hole filter of a perforated page, in its page-table entry and its TLB entries: one bit per 256 KiB, set if it
/// has a hole.
pub fn hole_filter(holes: &Holes) -> u8 {
    let bit = |(at, word): (usize, &u64)| u8::from(*word != 0) << at;
    holes.0.iter().enumerate().map(bit).sum()
}

impl Translation {
    /// The translation of a perforated page of a page table.
    pub(super) fn perforated(page: &PageWithHoles, is_dirty: bool) -> Self {
        Translation::of(&page.region, is_dirty).as_perforated(page.filter)
    }

    /// A 2 MiB page as a perforated page with this hole filter.
    pub(super) fn as_perforated(&self, filter: u8) -> Self {
        let entry = self.entry.with_low_bits(PageSize::HUGE, filter.into()).with_spare(PERFORATED);
        Translation { size: PageSize::HUGE, entry }
    }

    /// Whether it is a perforated page. Use only [`Translation::part_of_region`] for its base pages.
    pub(super) fn is_perforated(&self) -> bool {
        self.size == PageSize::HUGE && self.entry.spare() == PERFORATED
    }

    /// The hole filter of a perforated page; 0 for any other page.
    pub(super) fn filter(&self) -> u8 {
        if self.is_perforated() { self.entry.low_bits(PageSize::HUGE) as u8 } else { 0 }
    }

    /// The region of a perforated page as a plain 2 MiB page; any other page unchanged.
    pub(super) fn region(&self) -> Translation {
        match self.is_perforated() {
            true => {
                let entry = self.entry.with_low_bits(PageSize::HUGE, 0).with_spare(0);
                Translation { entry, ..*self }
            }
            false => *self,
        }
    }

    /// Whether the filter of a perforated page allows a hole at a base page.
    pub(super) fn may_be_hole(&self, page: PageNumber) -> bool {
        self.filter() >> ((page.raw() % 512) >> FILTERED_LOG2) & 1 != 0
    }

    /// The translation of a base page of a perforated page that is not a hole.
    pub(super) fn part_of_region(&self, page: PageNumber) -> Translation {
        let frame = self.region().frame_of(page);
        let (is_writable, is_dirty) = (self.entry.is_writable(), self.entry.is_dirty());
        Translation {
            size: PageSize::BASE,
            entry: TlbEntry::new(frame, PageSize::BASE, is_writable, is_dirty),
        }
    }

    /// The perforated page with its dirty bit set.
    pub(super) fn with_dirty(&self) -> Translation {
        Translation { entry: self.entry.dirtied(), ..*self }
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
        let holed = PageWithHoles {
            region,
            used: (true, true),
            filter: 0b1000_0010,
            hole_steps: [step; 2],
            is_hole: false,
        };
        let translation = Translation::perforated(&holed, true);
        let other = PageNumber::new(page.raw() + 70);
        assert!(translation.is_perforated() && !Translation::of(&region, true).is_perforated());
        assert_eq!(translation.region(), Translation::of(&region, true));
        let part_of_1gib = Translation::of(&Leaf { size: PageSize::LARGEST, ..region }, true);
        assert!(!part_of_1gib.part(page, PageSize::HUGE).is_perforated());
        let may = [0, 63, 64, 127, 128, 511]
            .map(|at| translation.may_be_hole(PageNumber::new(page.raw() + at)));
        assert_eq!(may, [false, false, true, true, false, true]);
        let part = translation.part_of_region(other);
        assert_eq!((part.size, part.entry.frame()), (PageSize::BASE, frame.plus(70)));
        assert!(part.entry.permits(true) && !part.is_perforated());
        let clean = Translation::perforated(&holed, false);
        assert!(!clean.entry.permits(true) && clean.with_dirty() == translation);
    }

    #[test]
    fn filter_has_a_bit_for_each_eighth_with_a_hole() {
        let mut holes = Holes::default();
        assert_eq!(hole_filter(&holes), 0);
        [0, 63, 64, 511].into_iter().for_each(|at| holes.insert(at));
        assert_eq!(hole_filter(&holes), 0b1000_0011);
    }
}
