//! Common parts of the comparisons with the oracle.

use octavo_hw::Replacement;
use octavo_oracle::NaiveReplacement;
use proptest::prelude::*;

/// A random policy.
pub fn replacement() -> impl Strategy<Value = Replacement> {
    let random = any::<u64>().prop_map(|seed| Replacement::Random { seed });
    // LRU, the most frequent one, more often.
    prop_oneof![
        Just(Replacement::Lru),
        Just(Replacement::Lru),
        Just(Replacement::TreePlru),
        random,
        Just(Replacement::Fifo),
        Just(Replacement::Srrip),
    ]
}

/// The oracle's policy.
pub fn naive(replacement: Replacement) -> NaiveReplacement {
    match replacement {
        Replacement::Lru => NaiveReplacement::Lru,
        Replacement::TreePlru => NaiveReplacement::TreePlru,
        Replacement::Random { seed } => NaiveReplacement::random(seed),
        Replacement::Fifo => NaiveReplacement::Fifo,
        Replacement::Srrip => NaiveReplacement::Srrip,
    }
}
