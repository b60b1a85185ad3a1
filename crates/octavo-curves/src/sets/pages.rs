//! The look-up key of a touch: its page's id and index bits, in one word.

use octavo_types::PageSize;

use super::{MAX_SETS_LOG2, SetIndex};
use crate::touches::{Row, Rows};

/// A page in one word: its index bits below its id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Page(pub u64);

impl Page {
    /// No page: ids are smaller.
    pub const NONE: Page = Page(u64::MAX);

    /// A page with an id and index bits.
    #[inline(always)]
    pub fn new(id: u32, index_bits: u32) -> Self {
        Page(u64::from(id) << 32 | u64::from(index_bits))
    }

    /// Its dense number.
    #[inline(always)]
    pub fn id(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Number of low index bits in common with another page, at most [`MAX_SETS_LOG2`].
    #[inline(always)]
    pub fn in_common(self, other: Page) -> u32 {
        (self.0 ^ other.0 | 1 << MAX_SETS_LOG2).trailing_zeros()
    }

    /// Its index bits.
    #[inline(always)]
    pub fn index_bits(self) -> u32 {
        self.0 as u32
    }
}

/// The page of one size that each row lies in.
pub(super) struct Pages {
    page_size: PageSize,
    index: SetIndex,
    sets_log2: u8,
    by_row: Vec<Page>,
    /// The number of the size among the sizes of the rows.
    size: usize,
}

impl Pages {
    /// Pages of a size, indexed for 2^`sets_log2` sets.
    pub fn new(page_size: PageSize, index: SetIndex, sets_log2: u8) -> Self {
        Pages { page_size, index, sets_log2, by_row: Vec::new(), size: 0 }
    }

    /// Adds the new rows, and calls `show` with the page number and the page id of each.
    pub fn follow(&mut self, rows: &Rows, mut show: impl FnMut(u64, u32)) {
        if self.by_row.len() == rows.len() {
            return;
        }
        let size = rows.sizes().iter().position(|size| size == self.page_size);
        self.size = size.expect("a kernel's page size is among those of its rows");
        for row in (self.by_row.len()..rows.len()).map(|row| Row(row as u32)) {
            let number = rows.page(row).raw() >> self.page_size.base_shift();
            let id = rows.id(row, self.size);
            show(number, id);
            self.by_row.push(Page::new(id, self.index.set(number, self.sets_log2) as u32));
        }
    }

    /// The number of the size among the sizes of the rows.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The page of each row.
    pub fn by_row(&self) -> &[Page] {
        &self.by_row
    }
}
