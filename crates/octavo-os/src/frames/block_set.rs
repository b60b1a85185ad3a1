//! A set of the frames, or pages, of one aligned block.

use std::ops::Range;

use octavo_types::FrameNumber;

use super::order::Order;

/// Bits of a word.
const WORD: u64 = 64;

/// A subset of the `2^order` places of a block, one bit each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BlockSet {
    order: Order,
    words: Vec<u64>,
    len: u64,
}

impl BlockSet {
    /// The empty subset of a block of `order`.
    pub fn none(order: Order) -> Self {
        let words = vec![0; order.frames().div_ceil(WORD) as usize];
        BlockSet { order, words, len: 0 }
    }

    /// All places of a block of `order`.
    pub fn all(order: Order) -> Self {
        let word = u64::MAX >> (WORD - order.frames().min(WORD));
        let words = vec![word; order.frames().div_ceil(WORD) as usize];
        BlockSet { order, words, len: order.frames() }
    }

    /// The block's order.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The number of members.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Whether place `at` is a member.
    pub fn contains(&self, at: u64) -> bool {
        self.words[(at / WORD) as usize] >> (at % WORD) & 1 == 1
    }

    /// Adds place `at`. Returns whether it was absent.
    pub fn insert(&mut self, at: u64) -> bool {
        let new = !self.contains(at);
        self.words[(at / WORD) as usize] |= 1 << (at % WORD);
        self.len += u64::from(new);
        new
    }

    /// Removes place `at`. Returns whether it was present.
    pub fn remove(&mut self, at: u64) -> bool {
        let was_present = self.contains(at);
        self.words[(at / WORD) as usize] &= !(1 << (at % WORD));
        self.len -= u64::from(was_present);
        was_present
    }

    /// The runs of members in `places`, in order.
    pub fn runs(&self, places: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = places.start;
        std::iter::from_fn(move || {
            let start = self.next(at, places.end, true)?;
            let end = self.next(start, places.end, false).unwrap_or(places.end);
            at = end;
            Some(start..end)
        })
    }

    /// The number of members in the aligned part of `order` that contains place `at`. The part has at most 64 places.
    pub fn count_of(&self, at: u64, order: Order) -> u64 {
        let first = order.align_down(FrameNumber::new(at)).raw() % WORD;
        let mask = u64::MAX >> (WORD - order.frames()) << first;
        u64::from((self.words[(at / WORD) as usize] & mask).count_ones())
    }

    /// The part of `order` that begins at place `at`, as a set of its own.
    pub fn part(&self, at: u64, order: Order) -> BlockSet {
        let first = (at / WORD) as usize;
        let words = if order.frames() >= WORD {
            self.words[first..first + (order.frames() / WORD) as usize].to_vec()
        } else {
            vec![self.words[first] >> (at % WORD) & ((1 << order.frames()) - 1)]
        };
        let len = words.iter().map(|word| u64::from(word.count_ones())).sum();
        BlockSet { order, words, len }
    }

    /// The first member, or non-member if not `within`, from `at` to before `end`.
    fn next(&self, mut at: u64, end: u64, within: bool) -> Option<u64> {
        while at < end {
            let word = self.words[(at / WORD) as usize];
            let rest = (if within { word } else { !word }) >> (at % WORD);
            if rest != 0 {
                at += u64::from(rest.trailing_zeros());
                return (at < end).then_some(at);
            }
            at = (at / WORD + 1) * WORD;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn block_set_matches_a_plain_set(
            order in 0u8..9,
            full in any::<bool>(),
            places in prop::collection::vec((0u64..512, any::<bool>()), 0..80),
            (at, part) in (0u64..512, 0u8..9),
        ) {
            let order = Order::new(order).unwrap();
            let all = 0..order.frames();
            let mut set = if full { BlockSet::all(order) } else { BlockSet::none(order) };
            let mut plain: BTreeSet<u64> = if full { all.clone().collect() } else { BTreeSet::new() };
            for (place, insert) in places {
                let place = place % order.frames();
                if insert {
                    prop_assert_eq!(set.insert(place), plain.insert(place));
                } else {
                    prop_assert_eq!(set.remove(place), plain.remove(&place));
                }
            }
            prop_assert_eq!(set.len(), plain.len() as u64);
            let runs: Vec<_> = set.runs(all).collect();
            prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
            prop_assert_eq!(runs.into_iter().flatten().collect::<BTreeSet<_>>(), plain.clone());
            let part = Order::new(part.min(order.raw())).unwrap();
            let at = (at % order.frames()) >> part.raw() << part.raw();
            let cut = set.part(at, part);
            let expected: Vec<u64> =
                plain.range(at..at + part.frames()).map(|place| place - at).collect();
            prop_assert_eq!(cut.len(), expected.len() as u64);
            prop_assert_eq!(cut.runs(0..part.frames()).flatten().collect::<Vec<_>>(), expected);
        }
    }
}
