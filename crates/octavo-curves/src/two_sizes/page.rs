//! A page of one of the two sizes.

/// A page as it is at the moment, small or large.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// Unique among pages of both sizes: an odd id is a large page.
    pub id: u32,
    /// The dense number of the block that is referenced.
    pub block: u32,
    /// The number of that block as an address: the page's own, where it is small.
    pub number: u64,
}

impl Page {
    /// Unique among pages and among the blocks in large ones.
    #[inline(always)]
    pub fn key(self) -> u64 {
        u64::from(self.id) << 32 | u64::from(self.block)
    }

    /// Whether it is a large one.
    #[inline(always)]
    pub fn is_large(self) -> bool {
        self.id % 2 == 1
    }
}
