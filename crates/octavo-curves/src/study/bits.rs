//! A set of numbers below 512 with a query for the nearest member.

/// A set of numbers below 512.
#[derive(Clone, Copy, Default)]
pub struct Bits512 {
    words: [u64; 8],
    /// The number of members. Counting them in all words would wait for the word that was written last.
    members: u32,
}

impl Bits512 {
    /// The set of all numbers.
    pub const ALL: Self = Bits512 { words: [u64::MAX; 8], members: 512 };

    /// Inserts a number. Returns whether it was absent.
    #[inline(always)]
    pub fn insert(&mut self, number: usize) -> bool {
        let word = &mut self.words[number / 64 % 8];
        let is_new = *word & (1 << (number % 64)) == 0;
        *word |= 1 << (number % 64);
        self.members += u32::from(is_new);
        is_new
    }

    /// Inserts an absent number.
    #[inline(always)]
    pub fn insert_new(&mut self, number: usize) {
        debug_assert!(!self.contains(number));
        self.words[number / 64 % 8] |= 1 << (number % 64);
        self.members += 1;
    }

    /// Removes a number.
    #[inline(always)]
    pub fn remove(&mut self, number: usize) {
        let word = &mut self.words[number / 64 % 8];
        self.members -= (*word >> (number % 64) & 1) as u32;
        *word &= !(1 << (number % 64));
    }

    /// Whether a number is in the set.
    #[inline(always)]
    pub fn contains(&self, number: usize) -> bool {
        self.words[number / 64 % 8] & (1 << (number % 64)) != 0
    }

    /// Whether the set is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.members == 0
    }

    /// The number of members.
    pub fn len(&self) -> u32 {
        self.members
    }

    /// Whether all numbers are in the set.
    pub fn is_full(&self) -> bool {
        self.members == 512
    }

    /// The least *h* such that some member lies in the aligned group of 2^*h* numbers around `number`; 10 if the
    /// set is empty.
    #[inline(always)]
    pub fn nearest(&self, number: usize) -> u8 {
        if self.is_empty() {
            return 10;
        }
        let index = number / 64 % 8;
        let word = self.words[index];
        if word != 0 {
            // An aligned group around `number` is an interval, which contains a member of the word if it contains
            // the nearest member below or above.
            let bit = (number % 64) as u32;
            let (below, above) = (word << (63 - bit), word >> bit);
            let group = |member: u32| u32::BITS - (member ^ bit).leading_zeros();
            let below = if below == 0 { 10 } else { group(bit - below.leading_zeros()) };
            let above = if above == 0 { 10 } else { group(bit + above.trailing_zeros()) };
            return below.min(above) as u8;
        }
        if self.words[index ^ 1] != 0 {
            return 7;
        }
        if self.words[index ^ 2] | self.words[index ^ 3] != 0 {
            return 8;
        }
        9
    }
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
            for (place, number) in numbers.iter().enumerate() {
                prop_assert_eq!(bits.insert(*number), !numbers[..place].contains(number));
            }
            let expected = numbers.iter().map(|number| usize::BITS - (number ^ from).leading_zeros());
            prop_assert_eq!(u32::from(bits.nearest(from)), expected.min().unwrap_or(10));
            prop_assert_eq!(bits.contains(from), numbers.contains(&from));
            numbers.iter().for_each(|number| bits.remove(*number));
            prop_assert!(bits.is_empty());
        }
    }
}
