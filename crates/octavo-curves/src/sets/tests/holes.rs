//! TLBs with invalidations.

use std::collections::HashMap;

use octavo_oracle::NaiveSets;
use octavo_types::{Instructions, PageNumber};
use proptest::prelude::*;
use proptest::sample::Index;

use super::super::{HoleSets, MAX_SETS_LOG2, Misses};
use super::sequence::sequence;
use crate::lanes::{LEVELS, MAX_WAYS};

/// A step of a random test.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// A look-up of an id with one of its index bits.
    Access { id: u32, index_bits: u64, refines: bool },
    /// An invalidation of all entries of an id: see [`HoleSets::invalidate`].
    Invalidate { id: u32, first_index: u64, indexes_log2: u8 },
}

/// Accesses to the pages of a sequence, and some invalidations. With a `large_log2` above 0, every fifth page has
/// 2^`large_log2` values of index bits, and is accessed by any of them.
fn steps(large_log2: u8) -> impl Strategy<Value = Vec<Step>> {
    let invalidated = prop_oneof![
        prop::collection::vec(any::<(Index, Index)>(), 0..6),
        prop::collection::vec(any::<(Index, Index)>(), 0..80),
    ];
    (sequence(), invalidated).prop_map(move |(numbers, invalidated)| {
        let mut invalidated: Vec<(usize, u64)> = invalidated
            .into_iter()
            .map(|(when, which)| (when.index(numbers.len()), numbers[which.index(numbers.len())]))
            .collect();
        // In descending order, so that `pop_if` returns the first one.
        invalidated.sort_unstable_by(|a, b| b.cmp(a));
        let mut ids = HashMap::new();
        let mut known = |number: u64| {
            let next = ids.len() as u32;
            let id = *ids.entry(number).or_insert(next);
            let log2 = if number.is_multiple_of(5) { large_log2 } else { 0 };
            (id, number >> log2 << log2, log2)
        };
        let mut steps = Vec::new();
        for (when, number) in numbers.iter().enumerate() {
            let (id, first, log2) = known(*number);
            let index_bits = first + when as u64 * 7 % (1 << log2);
            steps.push(Step::Access { id, index_bits, refines: log2 == 0 });
            while let Some((_, number)) = invalidated.pop_if(|(then, _)| *then == when) {
                let (id, first_index, indexes_log2) = known(number);
                steps.push(Step::Invalidate { id, first_index, indexes_log2 });
            }
        }
        steps
    })
}

/// Misses and invalidated entries at `[s][w - 1]`.
type Outcome = (Vec<[u64; MAX_WAYS]>, Vec<[u64; MAX_WAYS]>);

fn expected(steps: &[Step], max_sets_log2: u8) -> Outcome {
    let one = |level: usize, ways: usize| {
        let mut tlb = NaiveSets::new(1 << level, ways);
        let (mut missed, mut invalidated) = (0, 0);
        for step in steps {
            match *step {
                Step::Access { id, index_bits, .. } => {
                    let set = index_bits as usize % (1 << level);
                    missed += u64::from(!tlb.access(set, PageNumber::new(u64::from(id))));
                }
                Step::Invalidate { id, .. } => {
                    invalidated += tlb.invalidate(PageNumber::new(u64::from(id)));
                }
            }
        }
        (missed, invalidated)
    };
    let all = (0..=usize::from(max_sets_log2)).map(|level| {
        let by_ways: [_; MAX_WAYS] = std::array::from_fn(|way| one(level, way + 1));
        (by_ways.map(|(missed, _)| missed), by_ways.map(|(_, invalidated)| invalidated))
    });
    all.unzip()
}

fn found(
    steps: &[Step],
    max_sets_log2: u8,
    never_refines: bool,
    instructions: Instructions,
) -> Outcome {
    let mut sets = HoleSets::new(max_sets_log2, instructions);
    let mut misses = Misses::default();
    for step in steps {
        match *step {
            Step::Access { id, index_bits, refines } => {
                sets.access(id, index_bits, refines && !never_refines, &mut misses);
            }
            Step::Invalidate { id, first_index, indexes_log2 } => {
                sets.invalidate(id, first_index, indexes_log2);
            }
        }
    }
    (misses.missed(max_sets_log2), sets.invalidated())
}

fn compare(steps: &[Step], max_sets_log2: u8) {
    let expected = expected(steps, max_sets_log2);
    for instructions in Instructions::all() {
        for never_refines in [false, true] {
            let found = found(steps, max_sets_log2, never_refines, instructions);
            assert_eq!(found, expected, "{instructions}, never refines: {never_refines}");
        }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    #[test]
    fn every_tlb_with_holes_is_exact(
        steps in steps(0), max_sets_log2 in prop_oneof![0u8..=4, Just(MAX_SETS_LOG2)],
    ) {
        compare(&steps, max_sets_log2);
    }

    #[test]
    fn every_tlb_with_pages_in_several_sets_is_exact(
        (steps, max_sets_log2) in (1u8..=4).prop_flat_map(|large_log2| {
            (steps(large_log2), prop_oneof![0u8..=4, Just(MAX_SETS_LOG2)])
        }),
    ) {
        compare(&steps, max_sets_log2);
    }
}

#[test]
fn large_pages_are_in_as_many_sets_as_they_have_index_bits() {
    let mut sets = HoleSets::new(MAX_SETS_LOG2, Instructions::best());
    let mut misses = Misses::default();
    for bits in 16..24 {
        sets.access(7, bits, false, &mut misses);
    }
    sets.invalidate(7, 16, 3);
    let expected: Vec<[u64; MAX_WAYS]> =
        (0..LEVELS).map(|level| [1 << level.min(3); MAX_WAYS]).collect();
    assert_eq!(sets.invalidated(), expected);
    assert_eq!(misses.missed(MAX_SETS_LOG2), expected);
}
