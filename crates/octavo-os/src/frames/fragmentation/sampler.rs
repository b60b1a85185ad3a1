//! Random choices that are exact in number.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// Chooses `wanted` of `candidates` that come one after the other, every set of so many as likely
/// as any other (Knuth, The Art of Computer Programming, volume 2, section 3.4.2, algorithm S).
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

    /// Whether the next candidate is chosen.
    pub fn chooses_next(&mut self) -> bool {
        let wanted = std::slice::from_mut(&mut self.wanted);
        let group = choose_among(self.random, self.candidates, wanted);
        self.candidates -= 1;
        group.is_some()
    }

    /// A number below `limit`, from the same source.
    pub fn below(&mut self, limit: u64) -> u64 {
        below(self.random, limit)
    }

    /// Whether all that was wanted was chosen.
    pub fn is_done(&self) -> bool {
        self.wanted == 0
    }
}

/// Which group the next of so many candidates is in, if any, where each group still wants some of them: any
/// way to deal them out is as likely as any other. No number is drawn where all have what they wanted.
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

/// A random number below `limit`, which is not 0; as likely as any other but for one part in 2^34,
/// since no limit here is above 2^30.
pub fn below(random: &mut Xoshiro256PlusPlus, limit: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(limit)) >> 64) as u64
}

/// The share `share` of `all`, to the nearest whole number.
pub fn part_of(all: u64, share: f64) -> u64 {
    (all as f64 * share).round() as u64
}

#[cfg(test)]
mod tests {
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn every_pair_of_five_is_chosen_equally_often() {
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
