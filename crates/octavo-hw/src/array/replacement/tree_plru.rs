//! Tree pseudo-LRU, see [`super::Replacement::TreePlru`].

use super::{Geometry, Rule};

/// A tree of bits for each set, in whole words. Node 1 is the root, the nodes below node *n* are 2*n*
/// and 2*n* + 1, and the last row of them are the ways. A set bit points right.
#[derive(Clone, Debug)]
pub(in super::super) struct TreePlru {
    bits: Box<[u64]>,
    words: usize,
    /// Ways of the whole tree, as a logarithm.
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
    /// The bits on its way point away from it already.
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

    fn take(&mut self, set: usize, free: impl FnOnce() -> Option<usize>) -> usize {
        let way = free().unwrap_or_else(|| self.victim(set));
        self.touch(set, way);
        way
    }
}

impl TreePlru {
    /// The way of a full set that gives way.
    fn victim(&self, set: usize) -> usize {
        let bits = &self.bits[set * self.words..][..self.words];
        let mut node = 1;
        for row in (0..self.depth).rev() {
            let points_right = (bits[node / 64] >> (node % 64) & 1) as usize;
            let right = 2 * node + 1;
            // The first way below the right node, where there is one.
            let first_right = (right << row) - (1 << self.depth);
            node = if first_right < self.ways { 2 * node + points_right } else { 2 * node };
        }
        node - (1 << self.depth)
    }
}
