//! A page of one of the two sizes.

/// A page of the current size, as referenced by one of its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// The id, unique among pages of both sizes. Large pages have odd ids.
    pub id: u32,
    /// The dense number of the referenced block.
    pub block: u32,
}

impl Page {
    /// No page.
    pub const NONE: Page = Page { id: u32::MAX, block: u32::MAX };

    /// The page of a block in a chunk.
    #[inline(always)]
    pub fn new(block: u32, chunk: u32, is_large: bool) -> Self {
        Page { id: if is_large { 2 * chunk + 1 } else { 2 * block }, block }
    }

    /// Whether it is a large page.
    #[inline(always)]
    pub fn is_large(self) -> bool {
        self.id % 2 == 1
    }
}
