//! A fixed pseudo-random function of 64-bit numbers, for hashes and seeds.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Steele, Lea and Flood's SplitMix64 (OOPSLA 2014): one step from a state.
#[inline]
pub fn splitmix(state: u64) -> u64 {
    SplitMix64::seed_from_u64(state).next_u64()
}
