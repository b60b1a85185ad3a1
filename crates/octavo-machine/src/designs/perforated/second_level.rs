//! Second-level TLB entries of perforated pages and hole bitmaps (Park et al., ISCA 2020, Section IV-C): a
//! perforated page takes the place of a 2 MiB page, 32 bits of a bitmap that of a base page.

use octavo_config::{PageSizes, TlbLevel};
use octavo_hw::{Asid, GeometryError};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use crate::tlb::{Entry, PageArray, Tlb, TlbEntry, Translation};

/// log2 of the base pages per bitmap word. Keys with this order mark entries that hold bitmap words.
const WORD_ORDER: u8 = 5;
/// Base pages per bitmap word.
pub const WORD_PAGES: u64 = 1 << WORD_ORDER;

/// An entry of the second level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L2Entry {
    /// A page; of 2 MiB, it may be perforated.
    Page(TlbEntry),
    /// 32 bits of a hole bitmap, in place of a base page.
    Word(u32),
}

impl Default for L2Entry {
    fn default() -> Self {
        L2Entry::Word(0)
    }
}

impl Entry for L2Entry {
    type Array = PageArray<L2Entry>;

    fn of_page(page: TlbEntry) -> Self {
        L2Entry::Page(page)
    }

    fn page(self) -> TlbEntry {
        match self {
            L2Entry::Page(page) => page,
            L2Entry::Word(_) => unreachable!("pages have other keys than words"),
        }
    }

    fn with_page(self, page: TlbEntry) -> Self {
        L2Entry::Page(page)
    }
}

/// Number of entries of a level, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EntryKinds {
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

/// An empty level that also holds bitmap words. Its set-associative arrays hold no pages of the order of a
/// bitmap word (128 KiB); such a page is filled in parts of the next smaller size.
///
/// # Errors
///
/// If an array's entries and ways do not fit.
pub fn second_level(
    level: &TlbLevel,
    instructions: Instructions,
) -> Result<Tlb<L2Entry>, GeometryError> {
    let mut level = level.clone();
    for array in level.arrays.values_mut() {
        if let PageSizes::List(sizes) = &mut array.page_sizes {
            sizes.retain(|size| size.base_shift() != WORD_ORDER);
        }
    }
    Tlb::new(&level, (), instructions)
}

impl Tlb<L2Entry> {
    /// Looks up the bitmap word of the 32 aligned base pages around `page`.
    pub fn look_up_word(&mut self, asid: Asid, page: PageNumber) -> Option<u32> {
        match self.array_of_mut(PageSize::BASE)?.look_up_kind(asid, page, WORD_ORDER)? {
            L2Entry::Word(bits) => Some(bits),
            L2Entry::Page(_) => unreachable!("no page has the order of a word"),
        }
    }

    /// Fills the bitmap word of the 32 aligned base pages around `page`.
    pub fn fill_word(&mut self, asid: Asid, page: PageNumber, bits: u32) {
        if let Some(array) = self.array_of_mut(PageSize::BASE) {
            array.fill_kind(asid, page, WORD_ORDER, L2Entry::Word(bits));
        }
    }

    /// The current number of entries, by kind.
    pub fn content(&self) -> EntryKinds {
        let mut content = EntryKinds::default();
        for (_, _, order, entry) in self.arrays().flat_map(PageArray::entries) {
            match entry {
                L2Entry::Word(_) => content.bitmap += 1,
                L2Entry::Page(page) if is_perforated(order, page) => content.perforated += 1,
                L2Entry::Page(_) if order == 0 => content.base += 1,
                L2Entry::Page(_) if order == PageSize::HUGE.base_shift() => content.huge += 1,
                L2Entry::Page(_) => content.larger += 1,
            }
        }
        content
    }

    /// Whether it holds a perforated page that lies entirely in a range.
    pub fn has_perforated_in(&self, asid: Asid, pages: &Pages) -> bool {
        let huge = 1 << PageSize::HUGE.base_shift();
        if pages.end - pages.start < huge {
            return false;
        }
        self.arrays().flat_map(PageArray::entries).any(|(entry_asid, first, order, entry)| {
            let is_inside = pages.start <= first.raw() && first.raw() + huge <= pages.end;
            entry_asid == asid
                && is_inside
                && matches!(entry, L2Entry::Page(page) if is_perforated(order, page))
        })
    }
}

/// Whether a page of 2^`order` base pages is perforated.
fn is_perforated(order: u8, entry: TlbEntry) -> bool {
    order == PageSize::HUGE.base_shift()
        && Translation { size: PageSize::HUGE, entry }.is_perforated()
}
