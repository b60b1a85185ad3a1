//! Sets too large to be scanned: a hash table of the slots that hold keys, chained in arrays.

/// No slot.
const NONE: u32 = u32::MAX;

/// Which slots (set times ways plus way) hold a key. The keys themselves are the array's.
#[derive(Clone, Debug)]
pub(in super::super) struct Index {
    /// The first slot of each chain.
    heads: Box<[u32]>,
    /// The slot behind each one in its chain.
    behind: Box<[u32]>,
    hash_shift: u32,
}

impl Index {
    /// Of so many slots, none of which holds a key.
    pub fn new(slots: usize) -> Self {
        let chains = (2 * slots).next_power_of_two();
        Index {
            heads: vec![NONE; chains].into_boxed_slice(),
            behind: vec![NONE; slots].into_boxed_slice(),
            hash_shift: u64::BITS - chains.trailing_zeros(),
        }
    }

    /// The chain of a key: the high bits of a product, which depend on all bits of the key (2^64
    /// divided by the golden ratio: Knuth, "Sorting and searching", section 6.4).
    #[inline(always)]
    fn chain(&self, key: u64) -> usize {
        // The bits of address spaces are folded down first: they reach few high bits else.
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

    /// A slot holds `key` now.
    pub fn add(&mut self, key: u64, slot: usize) {
        let head = &mut self.heads[self.chain(key)];
        self.behind[slot] = std::mem::replace(head, slot as u32);
    }

    /// A slot holds `key` no longer.
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

    /// No slot holds a key.
    pub fn clear(&mut self) {
        self.heads.fill(NONE);
    }
}
