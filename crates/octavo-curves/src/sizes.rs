//! The page sizes of a study, in order.

use octavo_types::PageSize;

/// The page sizes studied together, ascending and distinct.
#[derive(Clone, Debug)]
pub struct Sizes {
    sizes: Vec<PageSize>,
    /// `below[n]`: how many of the sizes have a base-page shift below *n*.
    below: [u8; 65],
}

impl Sizes {
    /// The given sizes, sorted, each once.
    pub fn new(mut sizes: Vec<PageSize>) -> Self {
        sizes.sort();
        sizes.dedup();
        let mut below = [0; 65];
        for (shift, count) in below.iter_mut().enumerate() {
            *count =
                sizes.iter().filter(|size| usize::from(size.base_shift()) < shift).count() as u8;
        }
        Sizes { sizes, below }
    }

    /// How many there are.
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

    /// How many sizes tell two base pages apart whose numbers differ, in exclusive or, by
    /// `difference`: those are the first so many.
    #[inline(always)]
    pub fn telling_apart(&self, difference: u64) -> usize {
        usize::from(self.below[64 - difference.leading_zeros() as usize])
    }
}
