//! Sets of few ways with LRU, the hot case: nothing but keys and an order.

use octavo_types::Instructions;

use super::Geometry;
use super::find::{Keys, scan, stride_log2};
use super::replacement::Packed;

/// What is beside the keys of such sets.
#[derive(Clone, Debug)]
pub(super) struct LruSets {
    order: Packed,
    stride_log2: u32,
    instructions: Instructions,
}

impl LruSets {
    pub fn new(geometry: Geometry, instructions: Instructions) -> Self {
        let stride_log2 = stride_log2(geometry.ways());
        LruSets { order: Packed::new(geometry), stride_log2, instructions }
    }

    /// Slots of a set.
    #[inline(always)]
    pub fn stride(&self) -> usize {
        1 << self.stride_log2
    }

    /// The slot of a key in a set.
    #[inline(always)]
    pub fn find(&self, keys: &Keys, set: usize, key: u64) -> Option<usize> {
        let first = set << self.stride_log2;
        let found = scan(self.instructions, &keys[first..first + self.stride()], key);
        (found != 0).then(|| first + found.trailing_zeros() as usize)
    }

    /// The same, and uses it.
    #[inline(always)]
    pub fn look_up(&mut self, keys: &Keys, set: usize, key: u64) -> Option<usize> {
        let slot = self.find(keys, set, key)?;
        self.touch(set, slot);
        Some(slot)
    }

    /// A slot is used.
    #[inline(always)]
    pub fn touch(&mut self, set: usize, slot: usize) {
        self.order.move_to_front(set, slot - (set << self.stride_log2));
    }

    /// The slot to fill next, which is filled.
    #[inline(always)]
    pub fn take(&mut self, set: usize) -> usize {
        (set << self.stride_log2) + self.order.turn(set)
    }

    /// A slot is free again.
    pub fn give_back(&mut self, set: usize, slot: usize) {
        self.order.move_to_end(set, slot - (set << self.stride_log2));
    }

    /// All slots are free.
    pub fn clear(&mut self) {
        self.order.clear();
    }
}
