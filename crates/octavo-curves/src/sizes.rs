//! The page sizes of a study, in order.

use octavo_types::PageSize;

/// More shifts than page sizes have; a power of two.
const SHIFTS: usize = 32;

/// The page sizes studied together, ascending and distinct.
#[derive(Clone, Debug)]
pub struct Sizes {
    sizes: Vec<PageSize>,
    /// `below[n]`: the number of sizes with a base-page shift below *n*.
    below: [u8; SHIFTS],
}

impl Sizes {
    /// The given sizes, sorted, each once.
    pub fn new(mut sizes: Vec<PageSize>) -> Self {
        sizes.sort();
        sizes.dedup();
        let mut below = [0; SHIFTS];
        for (shift, count) in below.iter_mut().enumerate() {
            *count =
                sizes.iter().filter(|size| usize::from(size.base_shift()) < shift).count() as u8;
        }
        Sizes { sizes, below }
    }

    /// The number of sizes.
    pub fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Each size.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = PageSize> + '_ {
        self.sizes.iter().copied()
    }

    /// The number of sizes with a base-page shift below `shift`, which are the first ones.
    #[inline(always)]
    pub fn below(&self, shift: u8) -> usize {
        usize::from(self.below[usize::from(shift) % SHIFTS])
    }
}
