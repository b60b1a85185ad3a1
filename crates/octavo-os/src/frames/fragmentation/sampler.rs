//! Random samples of exact size.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// Selects `wanted` of `candidates` consecutive candidates, every subset equally likely (Knuth, The Art of
/// Computer Programming, volume 2, section 3.4.2, algorithm S).
pub struct Sampler<'a> {
    random: &'a mut Xoshiro256PlusPlus,
    candidates: u64,
    wanted: u64,
}

impl<'a> Sampler<'a> {
    pub fn new(random: &'a mut Xoshiro256PlusPlus, candidates: u64, wanted: u64) -> Self {
        debug_assert!(wanted <= candidates);
        Sampler { random, candidates, wanted }
    }

    /// Whether the next candidate is selected.
    pub fn chooses_next(&mut self) -> bool {
        let wanted = std::slice::from_mut(&mut self.wanted);
        let group = choose_among(self.random, self.candidates, wanted);
        self.candidates -= 1;
        group.is_some()
    }

    /// A number below `limit`, from the same generator.
    pub fn below(&mut self, limit: u64) -> u64 {
        below(self.random, limit)
    }

    /// Whether the sample is complete.
    pub fn is_done(&self) -> bool {
        self.wanted == 0
    }
}

/// The group of the next of `candidates` candidates, if any, where each group still wants some; every
/// assignment is equally likely. Draws no number if no group wants any.
pub fn choose_among(
    random: &mut Xoshiro256PlusPlus,
    candidates: u64,
    wanted: &mut [u64],
) -> Option<usize> {
    if wanted.iter().all(|wanted| *wanted == 0) {
        return None;
    }
    let mut place = below(random, candidates);
    for (group, wanted) in wanted.iter_mut().enumerate() {
        if place < *wanted {
            *wanted -= 1;
            return Some(group);
        }
        place -= *wanted;
    }
    None
}

/// A random number below `limit`, which is not 0; uniform up to one part in 2^34, since no limit here exceeds
/// 2^30.
pub fn below(random: &mut Xoshiro256PlusPlus, limit: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u64
}

/// `share` of `all`, rounded to the nearest.
pub fn part_of(all: u64, share: f64) -> u64 {
    (all as f64 * share).round() as u64
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn every_pair_is_sampled_equally_often() {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut counts = [[0; 5]; 5];
        for _ in 0..20_000 {
            let mut sampler = Sampler::new(&mut random, 5, 2);
            let chosen: Vec<usize> = (0..5).filter(|_| sampler.chooses_next()).collect();
            assert!(sampler.is_done());
            let [low, high] = chosen[..] else { panic!("{chosen:?}") };
            counts[low][high] += 1;
        }
        for low in 0..5 {
            for count in &counts[low][low + 1..] {
                // 2000 expected, with a standard deviation of 42.
                assert!((1800..2200).contains(count), "{counts:?}");
            }
        }
    }
}
