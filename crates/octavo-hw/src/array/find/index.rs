//! The index of sets too large to scan: a hash table of valid slots, chained in arrays.

/// No slot.
const NONE: u32 = u32::MAX;

/// The slots (set times ways plus way) of each key. The keys themselves belong to the array.
#[derive(Clone, Debug)]
pub struct KeyIndex {
    /// The first slot of each chain.
    heads: Box<[u32]>,
    /// The next slot of each slot in its chain.
    behind: Box<[u32]>,
    hash_shift: u32,
}

impl KeyIndex {
    /// An empty index for `slots` slots.
    pub fn new(slots: usize) -> Self {
        let chains = (2 * slots).next_power_of_two();
        KeyIndex {
            heads: vec![NONE; chains].into_boxed_slice(),
            behind: vec![NONE; slots].into_boxed_slice(),
            hash_shift: u64::BITS - chains.trailing_zeros(),
        }
    }

    /// The chain of a key: the high bits of a product, which depend on all bits of the key (Fibonacci
    /// hashing: Knuth, "Sorting and searching", section 6.4).
    #[inline(always)]
    fn chain(&self, key: u64) -> usize {
        // Folds the address-space bits down first, since they would reach few high bits otherwise.
        let folded = key ^ key >> 32;
        (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.hash_shift) as usize
    }

    /// The slot of `key` among the `ways` slots from `first` on.
    #[inline(always)]
    pub fn find(&self, keys: &[u64], key: u64, first: usize, ways: usize) -> Option<usize> {
        let mut slot = self.heads[self.chain(key)];
        while slot != NONE {
            let at = slot as usize;
            if keys[at] == key && at.wrapping_sub(first) < ways {
                return Some(at);
            }
            slot = self.behind[at];
        }
        None
    }

    /// Adds a slot for `key`.
    #[inline]
    pub fn add(&mut self, key: u64, slot: usize) {
        let head = &mut self.heads[self.chain(key)];
        self.behind[slot] = std::mem::replace(head, slot as u32);
    }

    /// Removes the slot of `key`.
    #[inline]
    pub fn remove(&mut self, key: u64, slot: usize) {
        let behind = self.behind[slot];
        let chain = self.chain(key);
        let mut before = self.heads[chain];
        if before == slot as u32 {
            self.heads[chain] = behind;
            return;
        }
        while self.behind[before as usize] != slot as u32 {
            before = self.behind[before as usize];
        }
        self.behind[before as usize] = behind;
    }

    /// Removes all slots.
    pub fn clear(&mut self) {
        self.heads.fill(NONE);
    }
}
