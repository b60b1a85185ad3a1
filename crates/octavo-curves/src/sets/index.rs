//! Which set a page belongs to.

/// How a page's set is found from its page number, for every number of sets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetIndex {
    /// As many bits of the page number as the number of sets requires, from this bit on; 0 are
    /// the low ones.
    Bits {
        /// The lowest of them.
        from: u8,
    },
    /// The page number cut into pieces as wide as the index, all of them exclusive-ored.
    Xor,
}

impl SetIndex {
    /// The set of `page`, of 2^`sets_log2`.
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
