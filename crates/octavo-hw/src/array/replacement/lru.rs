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
    /// What was used last is the first of the order already.
    const RETOUCH_CHANGES: bool = false;

    #[inline(always)]
    fn touch(&mut self, set: usize, way: usize) {
        self.0.move_to_front(set, way);
    }

    #[inline(always)]
    fn take(&mut self, set: usize, _free: impl FnOnce() -> Option<usize>) -> usize {
        self.0.turn(set)
    }

    #[inline(always)]
    fn give_back(&mut self, set: usize, way: usize) {
        self.0.move_to_end(set, way);
    }
}
