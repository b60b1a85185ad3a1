//! The last times of one kind, for instance of the commits that free entries of the reorder buffer.

use crate::core::calendar::filled_array;
use crate::core::lanes::Lanes;

/// The last times of one kind, by number.
pub(super) struct Ring<V> {
    /// Only the first `mask + 1` elements are used, so that they stay in the caches of the host.
    pub(super) times: Box<[V; MAX_TIMES]>,
    pub(super) mask: u64,
}

/// The capacity of a ring: a power of two above the numbers of registers, and of entries in a reorder buffer.
const MAX_TIMES: usize = 1 << 11;

impl<V: Lanes> Ring<V> {
    /// A ring with at least `count + 1` times, all 0.
    pub(super) fn new(count: u32) -> Self {
        let count = u64::from(count + 1).next_power_of_two();
        assert!(count <= MAX_TIMES as u64, "fewer times");
        Ring { times: filled_array(V::all(0)), mask: count - 1 }
    }

    /// The time of a number. It is 0 for numbers below 0, which wrap around.
    #[inline(always)]
    pub(super) fn get(&self, number: u64) -> &V {
        &self.times[(number & self.mask) as usize % MAX_TIMES]
    }

    #[inline(always)]
    pub(super) fn set(&mut self, number: u64, time: V) {
        self.times[(number & self.mask) as usize % MAX_TIMES] = time;
    }
}
