//! Least recently used.

use super::order::Order;
use super::{Geometry, Rule};

/// The ways of each set in order of their last use.
#[derive(Clone, Debug)]
pub(in super::super) struct Lru(Order);

impl Lru {
    pub fn new(geometry: Geometry) -> Self {
        Lru(Order::new(geometry))
    }
}

impl Rule for Lru {
    /// The most recent way is first already.
    const RETOUCH_CHANGES: bool = false;

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize) {
        self.0.move_to_front(set, way);
    }

    #[inline(always)]
    fn allocate_way(&mut self, set: usize, _free: impl FnOnce() -> Option<usize>) -> usize {
        self.0.rotate(set)
    }

    #[inline(always)]
    fn release_way(&mut self, set: usize, way: usize) {
        self.0.move_to_end(set, way);
    }
}
