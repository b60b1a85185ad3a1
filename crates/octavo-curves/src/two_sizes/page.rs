//! A page of one of the two sizes.

/// A page of the current size, small or large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The id, unique among pages of both sizes. Large pages have odd ids.
    pub id: u32,
    /// The dense number of the referenced block.
    pub block: u32,
    /// The small page number of the referenced block.
    pub number: u64,
}

impl Page {
    /// A key of the page and block.
    #[inline(always)]
    pub fn key(self) -> u64 {
        u64::from(self.id) << 32 | u64::from(self.block)
    }

    /// Whether it is a large page.
    #[inline(always)]
    pub fn is_large(self) -> bool {
        self.id % 2 == 1
    }
}
