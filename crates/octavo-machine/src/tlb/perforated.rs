//! Second-level TLB entries of perforated pages and hole bitmaps (Park et al., ISCA 2020, Section IV-C): a
//! perforated page takes the place of a 2 MiB page, 32 bits of a bitmap that of a base page.

use octavo_config::{PageSizes, TlbLevel};
use octavo_hw::{Asid, GeometryError};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use super::{Coalescing, Tlb, array::Array};

/// log2 of the base pages per bitmap word. In keys it marks entries that hold bitmap words.
pub(super) const BITMAP_WORD_ORDER: u8 = 5;
/// Base pages per bitmap word.
pub(crate) const BITMAP_WORD_PAGES: u64 = 1 << BITMAP_WORD_ORDER;

/// Number of entries of a level, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EntryKinds {
    /// Base pages, including holes.
    pub base: u64,
    /// 2 MiB pages without holes.
    pub huge: u64,
    /// Perforated pages.
    pub perforated: u64,
    /// Bitmap words.
    pub bitmap: u64,
    /// Pages above 2 MiB.
    pub larger: u64,
}

impl Tlb {
    /// An empty level that also holds bitmap words. Its set-associative arrays hold no pages of the order of
    /// a bitmap word (128 KiB); such a page is filled in parts of the next smaller size.
    ///
    /// # Errors
    ///
    /// If an array's entries and ways do not fit.
    pub fn with_bitmaps(
        level: &TlbLevel,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        let mut level = level.clone();
        for array in level.arrays.values_mut() {
            if let PageSizes::List(sizes) = &mut array.page_sizes {
                sizes.retain(|size| size.base_shift() != BITMAP_WORD_ORDER);
            }
        }
        Tlb::new(&level, Coalescing::default(), instructions)
    }

    /// Whether it can hold perforated pages.
    pub fn holds_perforated(&self) -> bool {
        let place = self.places[usize::from(PageSize::HUGE.base_shift())];
        place.is_some_and(|(number, size)| {
            size == PageSize::HUGE && self.arrays[usize::from(number)].has_sets()
        })
    }

    /// The array of base pages, if it can hold bitmap words.
    fn of_bitmaps(&mut self) -> Option<&mut Array> {
        let (number, _) = self.places[0]?;
        Some(&mut self.arrays[usize::from(number)]).filter(|array| array.has_sets())
    }

    /// Looks up the bitmap word of the 32 aligned base pages around `page`.
    pub fn look_up_bitmap(&mut self, asid: Asid, page: PageNumber) -> Option<u32> {
        let bits = self.of_bitmaps()?.look_up_bitmap(asid, page);
        self.recent.clear_all_mru();
        bits
    }

    /// Fills the bitmap word of the 32 aligned base pages around `page`.
    pub fn fill_bitmap(&mut self, asid: Asid, page: PageNumber, bits: u32) {
        self.recent.clear();
        if let Some(array) = self.of_bitmaps() {
            array.fill_bitmap(asid, page, bits);
        }
    }

    /// The current number of entries, by kind.
    pub(crate) fn content(&self) -> EntryKinds {
        let mut content = EntryKinds::default();
        self.arrays.iter().for_each(|array| array.add_content(&mut content));
        content
    }

    /// Whether it holds a perforated page that lies entirely in a range.
    pub fn has_perforated_in(&self, asid: Asid, pages: &Pages) -> bool {
        let huge = 1 << PageSize::HUGE.base_shift();
        pages.end - pages.start >= huge
            && self.arrays.iter().any(|array| array.has_perforated_in(asid, pages))
    }
}
