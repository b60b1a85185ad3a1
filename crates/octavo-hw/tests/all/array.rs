//! Set-associative arrays compared with the oracle's: every policy, many geometries, all instruction sets.

use crate::common::{naive, replacement};
use octavo_hw::{Geometry, Replacement, SetArray};
use octavo_oracle::{NaiveArray, NaiveSets};
use octavo_types::{Instructions, PageNumber};
use proptest::collection::vec;
use proptest::prelude::*;

/// An operation on an array. Keys are from a small universe, and one far above 2^32.
#[derive(Clone, Debug)]
enum Step {
    /// A look-up, with an insertion on a miss.
    Access(u64),
    LookUp(u64),
    Probe(u64),
    Insert(u64),
    Invalidate(u64),
    /// Removes the keys with this remainder modulo 3.
    InvalidateIf(u64),
    Clear,
}

fn step(keys: u64) -> impl Strategy<Value = Step> {
    let key = || (0..keys, any::<bool>()).prop_map(|(key, far)| key + (u64::from(far) << 40));
    prop_oneof![
        200 => key().prop_map(Step::Access),
        60 => key().prop_map(Step::LookUp),
        20 => key().prop_map(Step::Probe),
        40 => key().prop_map(Step::Insert),
        20 => key().prop_map(Step::Invalidate),
        2 => (0..3u64).prop_map(Step::InvalidateIf),
        1 => Just(Step::Clear),
    ]
}

/// A geometry, and steps that fill it about twice.
fn case() -> impl Strategy<Value = (u64, u64, Vec<Step>)> {
    let ways = prop::sample::select(vec![1, 2, 3, 4, 5, 6, 8, 11, 12, 16, 17, 24, 70]);
    (1u64..=5, ways).prop_flat_map(|(sets, ways)| {
        let entries = sets * ways;
        (Just(sets), Just(ways), vec(step(entries), 1..400))
    })
}

/// Applies the steps to both arrays, and compares all results.
fn check(
    instructions: Instructions,
    replacement: Replacement,
    (sets, ways): (u64, u64),
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let geometry = Geometry::new(sets, ways).unwrap();
    let mut array: SetArray<u32> = SetArray::new(geometry, replacement, instructions);
    let mut oracle = NaiveArray::new(sets as usize, ways as usize, naive(replacement));
    for (now, step) in steps.iter().enumerate() {
        let value = now as u32;
        // Alternates between two sets, so that both may hold one key.
        let set = |key: u64| ((key + now as u64 % 2) % sets) as usize;
        match *step {
            Step::Access(key) => {
                let expected = oracle.look_up(set(key), &key).copied();
                prop_assert_eq!(array.look_up(set(key), key).copied(), expected);
                if expected.is_none() {
                    let expected = oracle.insert(set(key), key, value);
                    prop_assert_eq!(array.insert_missed(set(key), key, value), expected);
                }
            }
            Step::LookUp(key) => {
                let held = oracle.look_up(set(key), &key);
                let found = array.look_up(set(key), key);
                prop_assert_eq!(&found, &held);
                if let (Some(held), Some(found)) = (held, found) {
                    (*held, *found) = (value, value);
                }
            }
            Step::Probe(key) => {
                let held = oracle.probe(set(key), &key).copied();
                prop_assert_eq!(array.probe(set(key), key).copied(), held);
                prop_assert_eq!(array.probe_mut(set(key), key).copied(), held);
            }
            Step::Insert(key) => {
                let expected = oracle.insert(set(key), key, value);
                prop_assert_eq!(array.insert(set(key), key, value), expected);
            }
            Step::Invalidate(key) => {
                let expected = oracle.invalidate(set(key), &key);
                prop_assert_eq!(array.invalidate(set(key), key), expected);
            }
            Step::InvalidateIf(rest) => {
                let expected = oracle.invalidate_if(|key, _| key % 3 == rest);
                prop_assert_eq!(array.invalidate_if(|key, _| key % 3 == rest), expected);
            }
            Step::Clear => {
                oracle.clear();
                array.clear();
            }
        }
        let mut held: Vec<_> = array.iter().map(|(set, key, value)| (set, key, *value)).collect();
        prop_assert_eq!((array.len(), array.is_empty()), (held.len(), held.is_empty()));
        let mut expected = oracle.entries();
        if matches!(replacement, Replacement::Lru | Replacement::Fifo) {
            // These policies do not distinguish ways: any free one may be filled.
            held.sort_unstable();
            expected.sort_unstable();
        }
        prop_assert_eq!(held, expected);
    }
    Ok(())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn arrays_match_lists_of_ways(
        replacement in replacement(),
        (sets, ways, steps) in case(),
    ) {
        for instructions in Instructions::all() {
            check(instructions, replacement, (sets, ways), &steps)?;
        }
    }

    /// The oracle's array, and its older LRU model for curves.
    #[test]
    fn two_oracles_agree(keys in vec(0u64..40, 1..400), ways in 1usize..9) {
        let mut array = NaiveArray::new(3, ways, naive(Replacement::Lru));
        let mut sets = NaiveSets::new(3, ways);
        for key in keys {
            let set = (key % 3) as usize;
            let hit = array.look_up(set, &key).is_some();
            array.insert(set, key, ());
            prop_assert_eq!(sets.access(set, PageNumber::new(key)), hit);
        }
    }

    /// Filtering repeats changes nothing for policies that ignore them; for others some stream below shows a
    /// difference.
    #[test]
    fn repeats_can_be_filtered_unless_retouch_changes(
        replacement in replacement(),
        keys in vec((0u64..30, 1usize..4), 1..300),
        ways in prop::sample::select(vec![2u64, 4, 5, 12, 20]),
    ) {
        prop_assume!(!replacement.retouch_changes());
        let geometry = Geometry::new(1, ways).unwrap();
        let [mut all, mut some] =
            [(); 2].map(|()| SetArray::new(geometry, replacement, Instructions::best()));
        for (key, times) in keys {
            let access = |array: &mut SetArray<()>| match array.look_up(0, key) {
                Some(()) => None,
                None => array.insert(0, key, ()),
            };
            let evicted = access(&mut some);
            prop_assert_eq!(access(&mut all), evicted);
            for _ in 1..times {
                prop_assert_eq!(access(&mut all), None);
            }
        }
    }
}

#[test]
fn srrip_counts_a_repeat_after_a_fill() {
    let geometry = Geometry::new(1, 2).unwrap();
    let evicted = [1, 2].map(|times| {
        let mut array = SetArray::new(geometry, Replacement::Srrip, Instructions::best());
        array.insert(0, 7, ());
        for _ in 1..times {
            array.look_up(0, 7);
        }
        array.insert(0, 8, ());
        array.insert(0, 9, ()).map(|(key, ())| key)
    });
    assert!(Replacement::Srrip.retouch_changes());
    assert_eq!(evicted, [Some(7), Some(8)]);
}

#[test]
fn random_replacement_is_uniform_and_seeded() {
    let geometry = Geometry::new(1, 6).unwrap();
    let evicted = |seed| {
        let replacement = Replacement::Random { seed };
        let mut array = SetArray::new(geometry, replacement, Instructions::best());
        (0..60_006u64).filter_map(|key| array.insert(0, key, key % 6)).collect::<Vec<_>>()
    };
    let first = evicted(1);
    assert_eq!(first, evicted(1));
    assert_ne!(first, evicted(2));
    // Residence is geometric: a sixth is evicted at once.
    let gone_at_once = first.iter().enumerate().filter(|(at, (key, _))| *key == *at as u64 + 5);
    assert!((9_600..10_400).contains(&gone_at_once.count()));
}

#[test]
#[should_panic(expected = "the key of free entries")]
fn empty_key_is_rejected() {
    let geometry = Geometry::new(1, 1).unwrap();
    SetArray::new(geometry, Replacement::Lru, Instructions::best()).insert(
        0,
        octavo_hw::NO_KEY,
        (),
    );
}
