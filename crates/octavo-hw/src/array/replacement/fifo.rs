//! First in, first out.

use super::order::Order;
use super::{Geometry, Rule};

/// The ways of each set in order of their last fill.
#[derive(Clone, Debug)]
pub(in super::super) struct Fifo(Order);

impl Fifo {
    pub fn new(geometry: Geometry) -> Self {
        Fifo(Order::new(geometry))
    }
}

impl Rule for Fifo {
    /// Uses change nothing.
    const RETOUCH_CHANGES: bool = false;

    #[inline(always)]
    fn touch(&mut self, _set: usize, _way: usize) {}

    #[inline(always)]
    fn allocate_way(&mut self, set: usize, _free: impl FnOnce() -> Option<usize>) -> usize {
        self.0.rotate(set)
    }

    #[inline(always)]
    fn release_way(&mut self, set: usize, way: usize) {
        self.0.move_to_end(set, way);
    }
}
