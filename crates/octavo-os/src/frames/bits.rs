//! A hierarchical bit set that finds its nearest members in a few word operations.

use std::ops::Range;

/// A set of numbers below a fixed length: one bit each, and summary levels above in which a bit marks a
/// non-empty word of the level below.
///
/// A new set costs no time: its words are zero pages of the system.
#[derive(Clone, Debug)]
pub struct Bits {
    /// The bits themselves first, one summary word last.
    levels: Vec<Vec<u64>>,
    length: u64,
    members: u64,
}

const WORD_LOG2: u32 = 6;

impl Bits {
    /// An empty set of numbers below `length`.
    pub fn new(length: u64) -> Self {
        let mut levels = Vec::new();
        let mut bits = length;
        loop {
            let words = bits.div_ceil(1 << WORD_LOG2).max(1);
            levels.push(vec![0; usize::try_from(words).expect("a set fits into memory")]);
            if words == 1 {
                return Bits { levels, length, members: 0 };
            }
            bits = words;
        }
    }

    /// The set of all numbers below `members`, of numbers below `length`.
    pub fn with_first(length: u64, members: u64) -> Self {
        debug_assert!(members <= length);
        let mut set = Bits::new(length);
        set.members = members;
        let mut bits = members;
        for level in &mut set.levels {
            let whole = (bits >> WORD_LOG2) as usize;
            level[..whole].fill(!0);
            let rest = bits & 63;
            if rest > 0 {
                level[whole] = (1 << rest) - 1;
            }
            bits = bits.div_ceil(1 << WORD_LOG2);
        }
        set
    }

    /// The number of members.
    #[inline]
    pub fn count(&self) -> u64 {
        self.members
    }

    /// The number of members in a range that ends at the length or before it.
    pub fn count_in(&self, numbers: Range<u64>) -> u64 {
        if numbers.is_empty() {
            return 0;
        }
        let last = numbers.end - 1;
        let (first_word, last_word) = (numbers.start >> WORD_LOG2, last >> WORD_LOG2);
        let words = &self.levels[0][first_word as usize..=last_word as usize];
        let all: u64 = words.iter().map(|word| u64::from(word.count_ones())).sum();
        let before = words[0] & !(!0 << (numbers.start & 63));
        let after = words[words.len() - 1] & !(!0 >> (63 - (last & 63)));
        all - u64::from(before.count_ones() + after.count_ones())
    }

    /// Whether `number` is a member; false past the length.
    #[inline]
    pub fn contains(&self, number: u64) -> bool {
        number < self.length
            && self.levels[0][(number >> WORD_LOG2) as usize] >> (number & 63) & 1 == 1
    }

    /// Adds `number`, which must not be a member.
    #[inline]
    pub fn insert(&mut self, number: u64) {
        self.insert_all(number, 1);
    }

    /// Adds `first` plus the place of each bit that is set in `numbers`: none of them a member, all of them in one word.
    #[inline]
    pub fn insert_all(&mut self, first: u64, numbers: u64) {
        if numbers == 0 {
            return;
        }
        let (mut at, mut added) = (first, numbers << (first & 63));
        debug_assert_eq!(added.count_ones(), numbers.count_ones());
        debug_assert!(first + u64::from(numbers.ilog2()) < self.length);
        debug_assert_eq!(self.levels[0][(first >> WORD_LOG2) as usize] & added, 0);
        self.members += u64::from(numbers.count_ones());
        for level in &mut self.levels {
            let word = &mut level[(at >> WORD_LOG2) as usize];
            let was_empty = *word == 0;
            *word |= added;
            if !was_empty {
                return;
            }
            at >>= WORD_LOG2;
            added = 1 << (at & 63);
        }
    }

    /// Removes `number`, which must be a member.
    #[inline]
    pub fn remove(&mut self, number: u64) {
        debug_assert!(self.contains(number));
        self.members -= 1;
        let mut at = number;
        for level in &mut self.levels {
            let word = &mut level[(at >> WORD_LOG2) as usize];
            *word &= !(1 << (at & 63));
            if *word != 0 {
                return;
            }
            at >>= WORD_LOG2;
        }
    }

    /// The lowest member.
    #[inline]
    pub fn first(&self) -> Option<u64> {
        if self.members == 0 {
            return None;
        }
        Some(self.lowest_below(self.levels.len(), 0))
    }

    /// The lowest member from `number` on.
    pub fn next(&self, number: u64) -> Option<u64> {
        let mut at = number;
        for (depth, level) in self.levels.iter().enumerate() {
            let index = (at >> WORD_LOG2) as usize;
            let word = level.get(index)? & (!0 << (at & 63));
            if word != 0 {
                let found = (at & !63) + u64::from(word.trailing_zeros());
                return Some(self.lowest_below(depth, found));
            }
            // No member left in this word: continue with the words after it.
            at = (at >> WORD_LOG2) + 1;
        }
        None
    }

    /// The highest member below `number`.
    pub fn previous(&self, number: u64) -> Option<u64> {
        let mut end = number.min(self.length);
        for (depth, level) in self.levels.iter().enumerate() {
            // The part of the word before `end`.
            let last = end.checked_sub(1)?;
            let word = level[(last >> WORD_LOG2) as usize] & (!0 >> (63 - (last & 63)));
            if word != 0 {
                let found = (last & !63) + u64::from(63 - word.leading_zeros());
                return Some(self.highest_below(depth, found));
            }
            end = last >> WORD_LOG2;
        }
        None
    }

    /// The members in order.
    pub fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let mut from = 0;
        std::iter::from_fn(move || {
            let found = self.next(from)?;
            from = found + 1;
            Some(found)
        })
    }

    /// The lowest member below bit `at` of level `depth`, which is set.
    #[inline]
    fn lowest_below(&self, depth: usize, mut at: u64) -> u64 {
        for level in self.levels[..depth].iter().rev() {
            at = (at << WORD_LOG2) + u64::from(level[at as usize].trailing_zeros());
        }
        at
    }

    /// The highest member below bit `at` of level `depth`, which is set.
    fn highest_below(&self, depth: usize, mut at: u64) -> u64 {
        for level in self.levels[..depth].iter().rev() {
            at = (at << WORD_LOG2) + u64::from(63 - level[at as usize].leading_zeros());
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn lengths() -> impl Strategy<Value = u64> {
        prop_oneof![0u64..10, 60u64..70, 4090u64..4100, Just(64 * 64 * 64 + 1)]
    }

    fn agree(bits: &Bits, set: &BTreeSet<u64>, at: u64) -> Result<(), TestCaseError> {
        let (start, end) = (at.min(bits.length) / 3, at.min(bits.length));
        prop_assert_eq!(bits.count_in(start..end), set.range(start..end).count() as u64);
        prop_assert_eq!(bits.count(), set.len() as u64);
        prop_assert_eq!(bits.contains(at), set.contains(&at));
        prop_assert_eq!(bits.first(), set.first().copied());
        prop_assert_eq!(bits.next(at), set.range(at..).next().copied());
        prop_assert_eq!(bits.previous(at), set.range(..at).next_back().copied());
        prop_assert_eq!(bits.previous(u64::MAX), set.last().copied());
        Ok(())
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(64))]

        #[test]
        fn bits_match_a_btree_set(
            length in lengths(),
            steps in vec((any::<u64>(), any::<u64>()), 0..300),
        ) {
            let mut bits = Bits::new(length);
            let mut set = BTreeSet::new();
            for (number, asked) in steps {
                if length > 0 {
                    let number = number % length;
                    if set.remove(&number) {
                        bits.remove(number);
                    } else {
                        set.insert(number);
                        bits.insert(number);
                    }
                }
                agree(&bits, &set, asked % (length + 70))?;
            }
            prop_assert!(bits.iter().eq(set.iter().copied()));
        }

        #[test]
        fn full_set_has_all_members(length in lengths(), members in any::<u64>()) {
            let members = members % (length + 1);
            let mut bits = Bits::with_first(length, members);
            prop_assert!(bits.iter().eq(0..members));
            // The summaries equal those of single insertions: all members can be removed again.
            for number in 0..members {
                prop_assert_eq!(bits.first(), Some(number));
                bits.remove(number);
            }
            prop_assert_eq!(bits.first(), None);
            prop_assert!(bits.levels.iter().flatten().all(|word| *word == 0));
        }
    }
}
