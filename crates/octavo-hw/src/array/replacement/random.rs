//! Random replacement.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

use super::{Geometry, Rule};

/// A generator, drawn once per victim.
#[derive(Clone, Debug)]
pub(in super::super) struct Random {
    numbers: Xoshiro256PlusPlus,
    ways: usize,
}

impl Random {
    pub fn new(geometry: Geometry, seed: u64) -> Self {
        Random { numbers: Xoshiro256PlusPlus::seed_from_u64(seed), ways: geometry.ways() }
    }
}

impl Rule for Random {
    /// Uses change nothing.
    const RETOUCH_CHANGES: bool = false;

    #[inline(always)]
    fn touch(&mut self, _set: usize, _way: usize) {}

    fn allocate_way(&mut self, _set: usize, free: impl FnOnce() -> Option<usize>) -> usize {
        // The number as a fraction of 2^64, times the number of ways.
        let mut draw =
            || ((u128::from(self.numbers.next_u64()) * self.ways as u128) >> 64) as usize;
        free().unwrap_or_else(&mut draw)
    }
}
