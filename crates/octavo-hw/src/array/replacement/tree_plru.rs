//! Tree pseudo-LRU, see [`super::Replacement::TreePlru`].

use super::{Geometry, Rule};

/// A tree of bits per set, in whole words. Node 1 is the root; the children of node *n* are 2*n* and 2*n* +
/// 1; the last row is the ways. A set bit points right.
#[derive(Clone, Debug)]
pub(in super::super) struct TreePlru {
    bits: Box<[u64]>,
    words: usize,
    /// log2 of the ways of the whole tree.
    depth: u32,
    ways: usize,
}

impl TreePlru {
    pub fn new(geometry: Geometry) -> Self {
        let leaves = geometry.ways().next_power_of_two();
        let words = leaves.div_ceil(64);
        TreePlru {
            bits: vec![0; words * geometry.sets()].into_boxed_slice(),
            words,
            depth: leaves.trailing_zeros(),
            ways: geometry.ways(),
        }
    }
}

impl Rule for TreePlru {
    /// The bits on the path to the way point away from it already.
    const RETOUCH_CHANGES: bool = false;

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize) {
        let bits = &mut self.bits[set * self.words..][..self.words];
        let mut node = 1 << self.depth | way;
        while node > 1 {
            let is_right = node & 1;
            node >>= 1;
            let bit = 1 << (node % 64);
            let word = &mut bits[node / 64];
            *word = if is_right == 1 { *word & !bit } else { *word | bit };
        }
    }

    fn allocate_way(&mut self, set: usize, free: impl FnOnce() -> Option<usize>) -> usize {
        let way = free().unwrap_or_else(|| self.victim(set));
        self.touch(set, way);
        way
    }
}

impl TreePlru {
    /// The victim of a full set.
    fn victim(&self, set: usize) -> usize {
        let bits = &self.bits[set * self.words..][..self.words];
        let mut node = 1;
        for row in (0..self.depth).rev() {
            let points_right = (bits[node / 64] >> (node % 64) & 1) as usize;
            let right = 2 * node + 1;
            // The first way below the right child, if any.
            let first_right = (right << row) - (1 << self.depth);
            node = if first_right < self.ways { 2 * node + points_right } else { 2 * node };
        }
        node - (1 << self.depth)
    }
}
