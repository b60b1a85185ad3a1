//! The set of a page.

/// The function from page numbers to sets, for every number of sets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetIndex {
    /// As many consecutive bits of the page number as the number of sets requires.
    Bits {
        /// The lowest bit.
        from: u8,
    },
    /// The exclusive or of the pieces of the page number that are as wide as the index.
    Xor,
}

impl SetIndex {
    /// The set of `page` among 2^`sets_log2` sets.
    #[inline(always)]
    pub fn set(self, page: u64, sets_log2: u8) -> usize {
        let mask = (1u64 << sets_log2) - 1;
        match self {
            SetIndex::Bits { from } => {
                (page.checked_shr(u32::from(from)).unwrap_or(0) & mask) as usize
            }
            SetIndex::Xor => {
                let (mut rest, mut set) = (page, 0);
                while sets_log2 > 0 && rest != 0 {
                    set ^= rest & mask;
                    rest >>= sets_log2;
                }
                set as usize
            }
        }
    }
}
