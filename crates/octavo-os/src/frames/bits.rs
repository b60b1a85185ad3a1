//! A set of small numbers that finds its nearest members in a few word operations.

/// Numbers below a fixed length: a bit each, and above them levels of summary in which a bit says
/// that a word of the level below has any.
///
/// A new set costs no time: its words are zero, and come from the system as such.
#[derive(Clone, Debug)]
pub struct Bits {
    /// The bits themselves first, one word of summary last.
    levels: Vec<Vec<u64>>,
    length: u64,
    members: u64,
}

const WORD_LOG2: u32 = 6;

impl Bits {
    /// No member; room for the numbers below `length`.
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

    /// All numbers below `members`; room for those below `length`.
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

    /// How many members there are.
    #[inline]
    pub fn count(&self) -> u64 {
        self.members
    }

    /// Whether `number` is a member; those past the length never are.
    #[inline]
    pub fn contains(&self, number: u64) -> bool {
        number < self.length
            && self.levels[0][(number >> WORD_LOG2) as usize] >> (number & 63) & 1 == 1
    }

    /// Adds `number`, which is none.
    #[inline]
    pub fn insert(&mut self, number: u64) {
        debug_assert!(number < self.length && !self.contains(number));
        self.members += 1;
        let mut at = number;
        for level in &mut self.levels {
            let word = &mut level[(at >> WORD_LOG2) as usize];
            let was_empty = *word == 0;
            *word |= 1 << (at & 63);
            if !was_empty {
                return;
            }
            at >>= WORD_LOG2;
        }
    }

    /// Takes `number` out, which is a member.
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
            // Nothing more in this word: on with the words after it.
            at = (at >> WORD_LOG2) + 1;
        }
        None
    }

    /// The highest member below `number`.
    pub fn previous(&self, number: u64) -> Option<u64> {
        let mut end = number.min(self.length);
        for (depth, level) in self.levels.iter().enumerate() {
            // Of the word that holds the last bit before the end, what lies before the end.
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

    /// The lowest member under bit `at` of level `depth`, which is set.
    #[inline]
    fn lowest_below(&self, depth: usize, mut at: u64) -> u64 {
        for level in self.levels[..depth].iter().rev() {
            at = (at << WORD_LOG2) + u64::from(level[at as usize].trailing_zeros());
        }
        at
    }

    /// The highest member under bit `at` of level `depth`, which is set.
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
        fn a_tree_of_numbers_has_the_same_members(
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
        fn a_set_that_begins_full_has_them_all(length in lengths(), members in any::<u64>()) {
            let members = members % (length + 1);
            let mut bits = Bits::with_first(length, members);
            prop_assert!(bits.iter().eq(0..members));
            // The summaries are those of members put in one by one: all go out again.
            for number in 0..members {
                prop_assert_eq!(bits.first(), Some(number));
                bits.remove(number);
            }
            prop_assert_eq!(bits.first(), None);
            prop_assert!(bits.levels.iter().flatten().all(|word| *word == 0));
        }
    }
}
