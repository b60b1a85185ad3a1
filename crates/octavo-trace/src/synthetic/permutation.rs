//! A random permutation, computed rather than stored.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

const ROUNDS: usize = 3;

/// A permutation of `0..count`.
///
/// Invertible steps mix numbers of just enough bits for the count, and so permute the numbers below
/// a power of two. A number that leaves the range is mixed again until it comes back ("cycle
/// walking"), less than once on average: the result is a permutation of the range.
pub(super) struct Permutation {
    count: u64,
    mask: u64,
    shift: u32,
    keys: [u64; ROUNDS],
    /// Odd, so that multiplication by them is invertible.
    factors: [u64; ROUNDS],
}

impl Permutation {
    /// `count` is at least 1 and at most 2^63.
    pub(super) fn new(count: u64, seed: u64) -> Self {
        let mut random = SplitMix64::seed_from_u64(seed);
        let mask = count.next_power_of_two() - 1;
        Permutation {
            count,
            mask,
            shift: mask.count_ones().div_ceil(2).max(1),
            keys: std::array::from_fn(|_| random.next_u64()),
            factors: std::array::from_fn(|_| random.next_u64() | 1),
        }
    }

    /// The element at `place`, which is below the count.
    #[inline]
    pub(super) fn at(&self, place: u64) -> u64 {
        let mut mixed = self.mix(place);
        while mixed >= self.count {
            mixed = self.mix(mixed);
        }
        mixed
    }

    #[inline]
    fn mix(&self, number: u64) -> u64 {
        let mut mixed = number;
        for (key, factor) in self.keys.iter().zip(self.factors) {
            mixed = mixed.wrapping_add(*key).wrapping_mul(factor) & self.mask;
            mixed ^= mixed >> self.shift;
        }
        mixed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn everything_comes_once(count in 1u64..3000, seed: u64) {
            let permutation = Permutation::new(count, seed);
            let mut all: Vec<u64> = (0..count).map(|place| permutation.at(place)).collect();
            all.sort_unstable();
            prop_assert!(all.into_iter().eq(0..count));
        }

        #[test]
        fn large_ranges_are_kept(count in 1u64..=1 << 63, place: u64, seed: u64) {
            prop_assert!(Permutation::new(count, seed).at(place % count) < count);
        }
    }

    #[test]
    fn neighbours_are_far_apart() {
        let count = 1 << 20;
        let permutation = Permutation::new(count, 7);
        let near = (1..count)
            .filter(|place| {
                permutation.at(*place).abs_diff(permutation.at(place - 1)) < count / 1000
            })
            .count() as u64;
        // By chance two in a thousand are.
        assert!((count / 1000..count * 3 / 1000).contains(&near), "{near}");
    }
}
