//! A level whose entries hold perforated pages and their bitmaps, too (paper 004, Section IV-C): a
//! perforated page where pages of 2 MiB are, 32 bits of a bitmap where base pages are.

use octavo_config::{PageSizes, TlbLevel};
use octavo_hw::{Asid, GeometryError};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use super::{Coalescing, Tlb, array::Array};

/// The order of what an entry has the bits of. In the keys of entries it says that they have bits.
pub(super) const BITMAP_WORD_ORDER: u8 = 5;
/// The base pages whose bits an entry has.
pub(crate) const BITMAP_WORD_PAGES: u64 = 1 << BITMAP_WORD_ORDER;

/// Entries of a level by what they hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct EntryKinds {
    /// Base pages, those of holes among them.
    pub base: u64,
    /// Pages of 2 MiB without holes.
    pub huge: u64,
    /// Perforated pages.
    pub perforated: u64,
    /// Bits of bitmaps.
    pub bitmap: u64,
    /// Pages above 2 MiB.
    pub larger: u64,
}

impl Tlb {
    /// An empty level that holds bitmaps, too. In its sets no page is of their order: it goes in by parts of
    /// the next smaller size.
    ///
    /// # Errors
    ///
    /// Where an array's entries and ways do not fit.
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

    /// Whether it has a place for perforated pages.
    pub fn holds_perforated(&self) -> bool {
        let place = self.places[usize::from(PageSize::HUGE.base_shift())];
        place.is_some_and(|(number, size)| {
            size == PageSize::HUGE && self.arrays[usize::from(number)].has_sets()
        })
    }

    /// The array that base pages go to, if it can hold bitmaps.
    fn of_bitmaps(&mut self) -> Option<&mut Array> {
        let (number, _) = self.places[0]?;
        Some(&mut self.arrays[usize::from(number)]).filter(|array| array.has_sets())
    }

    /// The bits of the 32 base pages around one, if they are here.
    pub fn look_up_bitmap(&mut self, asid: Asid, page: PageNumber) -> Option<u32> {
        let bits = self.of_bitmaps()?.look_up_bitmap(asid, page);
        self.recent.clear_all_mru();
        bits
    }

    /// Puts the bits of the 32 base pages around one in.
    pub fn fill_bitmap(&mut self, asid: Asid, page: PageNumber, bits: u32) {
        self.recent.clear();
        if let Some(array) = self.of_bitmaps() {
            array.fill_bitmap(asid, page, bits);
        }
    }

    /// What its entries hold now.
    pub(crate) fn content(&self) -> EntryKinds {
        let mut content = EntryKinds::default();
        self.arrays.iter().for_each(|array| array.add_content(&mut content));
        content
    }

    /// Whether it has a perforated page all of which lies in a range.
    pub fn has_perforated_in(&self, asid: Asid, pages: &Pages) -> bool {
        let huge = 1 << PageSize::HUGE.base_shift();
        pages.end - pages.start >= huge
            && self.arrays.iter().any(|array| array.has_perforated_in(asid, pages))
    }
}
