//! Mutations of given inputs, as a fuzzer makes them first.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// The fuzzer's limit.
const MAX_BYTES: usize = 4096;
/// Extreme values, and characters of lines and numbers.
const BYTES: [u8; 12] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', b',', b'-', b'0', b'9', b'f'];

/// Makes mutations: a few edits each of a seed drawn at random.
pub struct Mutations<'a> {
    seeds: &'a [Vec<u8>],
    random: Xoshiro256PlusPlus,
}

impl<'a> Mutations<'a> {
    /// Makes the same inputs each time, unless [`octavo_oracle::factor`] asks for more of them.
    pub fn new(seeds: &'a [Vec<u8>]) -> Self {
        let since_epoch = || std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later");
        let number = octavo_oracle::factor().map_or(1, |_| since_epoch().as_nanos() as u64);
        Mutations { seeds, random: Xoshiro256PlusPlus::seed_from_u64(number) }
    }

    fn below(&mut self, end: usize) -> usize {
        (self.random.next_u64() % end.max(1) as u64) as usize
    }

    pub fn next_input(&mut self) -> Vec<u8> {
        let mut bytes = self.seeds[self.below(self.seeds.len())].clone();
        for _ in 0..=self.below(4) {
            self.edit(&mut bytes);
            bytes.truncate(MAX_BYTES);
        }
        bytes
    }

    fn edit(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len());
        let length = 1 + self.below((bytes.len() - at).min(16));
        let end = (at + length).min(bytes.len());
        match self.below(6) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = BYTES[self.below(BYTES.len())],
            2 => {
                bytes.insert(at, BYTES[self.below(BYTES.len())]);
            }
            3 => drop(bytes.drain(at..end)),
            4 => {
                let again = bytes[at..end].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, again);
            }
            _ => bytes.truncate(at),
        }
    }
}
