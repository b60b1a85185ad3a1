//! A set of numbers below 512 with a query for the nearest member.

/// A set of numbers below 512.
#[derive(Clone, Copy, Default)]
pub struct Bits512 {
    words: [u64; 8],
}

impl Bits512 {
    /// Puts a number in.
    #[inline(always)]
    pub fn insert(&mut self, number: usize) {
        self.words[number / 64 % 8] |= 1 << (number % 64);
    }

    /// Takes a number out.
    #[inline(always)]
    pub fn remove(&mut self, number: usize) {
        self.words[number / 64 % 8] &= !(1 << (number % 64));
    }

    /// Whether a number is in the set.
    #[inline(always)]
    pub fn contains(&self, number: usize) -> bool {
        self.words[number / 64 % 8] & (1 << (number % 64)) != 0
    }

    /// Whether there is none in the set.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.words.iter().fold(0, |all, word| all | word) == 0
    }

    /// The least *h* such that some number of the set lies in the aligned group of 2^*h* numbers
    /// around `number`; 10 where the set is empty.
    #[inline(always)]
    pub fn nearest(&self, number: usize) -> u8 {
        let index = number / 64 % 8;
        let word = self.words[index];
        if word != 0 {
            let bit = (number % 64) as u32;
            let mut group = 1u32;
            let mut log2 = 0;
            while word >> (bit & !(group - 1)) & low_bits(group) == 0 {
                group *= 2;
                log2 += 1;
            }
            return log2;
        }
        if self.words[index ^ 1] != 0 {
            return 7;
        }
        if self.words[index ^ 2] | self.words[index ^ 3] != 0 {
            return 8;
        }
        if self.is_empty() { 10 } else { 9 }
    }
}

#[inline(always)]
fn low_bits(count: u32) -> u64 {
    u64::MAX >> (64 - count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn nearest_is_the_least_exclusive_or(
            numbers in prop::collection::vec(0usize..512, 0..6), from in 0usize..512,
        ) {
            let mut bits = Bits512::default();
            numbers.iter().for_each(|number| bits.insert(*number));
            let expected = numbers.iter().map(|number| usize::BITS - (number ^ from).leading_zeros());
            prop_assert_eq!(u32::from(bits.nearest(from)), expected.min().unwrap_or(10));
            prop_assert_eq!(bits.contains(from), numbers.contains(&from));
            numbers.iter().for_each(|number| bits.remove(*number));
            prop_assert!(bits.is_empty());
        }
    }
}
