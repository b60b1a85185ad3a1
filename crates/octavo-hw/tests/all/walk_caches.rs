//! Page-walk caches compared with the oracle's.

use crate::common::{naive, replacement};
use octavo_hw::{Asid, Replacement, WalkCacheConfig, WalkCacheCounters, WalkCaches};
use octavo_oracle::{NaiveWalkCache, NaiveWalkCaches};
use octavo_types::{AddrRange, Instructions, VirtAddr};
use proptest::collection::vec;
use proptest::prelude::*;

#[derive(Clone, Debug)]
enum Step {
    /// A walk: the deepest entry is looked up, and all levels below it are filled.
    Walk(u16, u64),
    Fill(u16, u64, u8),
    Invalidate(u16, u64, u64),
    Clear,
}

/// Addresses that differ in the bits of some levels, or within the last page.
fn addr() -> impl Strategy<Value = u64> {
    (0u64..2, 0u64..3, 0u64..3, 0u64..6, 0u64..1 << 21).prop_map(
        |(five, four, three, two, rest)| {
            five << 48 | four << 39 | (three * 170) << 30 | two << 21 | rest
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let space = || 0u16..2;
    prop_oneof![
        80 => (space(), addr()).prop_map(|(space, addr)| Step::Walk(space, addr)),
        20 => (space(), addr(), 2u8..=5).prop_map(|(space, addr, level)| Step::Fill(space, addr, level)),
        6 => (space(), addr(), prop_oneof![Just(0u64), 1u64..1 << 13, 1u64..1 << 40])
            .prop_map(|(space, addr, bytes)| Step::Invalidate(space, addr, bytes)),
        1 => Just(Step::Clear),
    ]
}

/// The cache of a level, if there is one: sets, ways and policy.
type Cache = Option<(u64, u64, Replacement)>;

fn cache() -> impl Strategy<Value = Cache> {
    prop::option::weighted(
        0.8,
        (1u64..=3, prop::sample::select(vec![1u64, 2, 4, 20]), replacement()),
    )
}

fn check(
    instructions: Instructions,
    caches: &[Cache],
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let levels = caches.iter().zip(2u8..).filter_map(|(cache, level)| Some((level, (*cache)?)));
    let (mut configs, mut oracle) = (Vec::new(), Vec::new());
    for (level, (sets, ways, replacement)) in levels {
        let entries = sets * ways;
        configs.push(WalkCacheConfig {
            ways,
            replacement,
            ..WalkCacheConfig::x86_64(level, entries)
        });
        let (sets, ways) = (sets as usize, ways as usize);
        oracle.push(NaiveWalkCache::new(level, sets, ways, naive(replacement)));
    }
    configs.reverse();
    let mut walk_caches = WalkCaches::new(&configs, instructions).unwrap();
    let mut oracle = NaiveWalkCaches(oracle);
    let (asid, at) = (|raw| Asid::new(raw).unwrap(), VirtAddr::new);
    for (now, step) in steps.iter().enumerate() {
        match *step {
            Step::Walk(space, addr) => {
                let deepest = oracle.deepest(space, at(addr));
                prop_assert_eq!(walk_caches.deepest(asid(space), at(addr)), deepest);
                for level in (2..deepest.map_or(6, |(level, _)| level)).rev() {
                    walk_caches.fill(asid(space), at(addr), level, now);
                    oracle.fill(space, at(addr), level, now);
                }
            }
            Step::Fill(space, addr, level) => {
                walk_caches.fill(asid(space), at(addr), level, now);
                oracle.fill(space, at(addr), level, now);
            }
            Step::Invalidate(space, addr, bytes) => {
                let range = AddrRange::new(at(addr), bytes);
                let expected = oracle.invalidate(space, range);
                prop_assert_eq!(walk_caches.invalidate(asid(space), range), expected);
            }
            Step::Clear => {
                walk_caches.clear();
                oracle.clear();
            }
        }
    }
    let mut misses_below = None;
    for ((_, counters), cache) in walk_caches.counters().zip(&oracle.0) {
        let misses = cache.accesses - cache.hits;
        prop_assert_eq!(counters, WalkCacheCounters { hits: cache.hits, misses });
        // Each level is looked up by the misses of the level below.
        prop_assert_eq!(misses_below.unwrap_or(counters.accesses()), counters.accesses());
        misses_below = Some(counters.misses);
    }
    Ok(())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    #[test]
    fn walk_caches_match_lists(caches in vec(cache(), 4), steps in vec(step(), 1..250)) {
        for instructions in Instructions::all() {
            check(instructions, &caches, &steps)?;
        }
    }
}

/// With the walk caches of Skylake, a walk of four levels reads four entries at first, then one for each new
/// page, and two for each new 2 MiB.
#[test]
fn walks_start_at_the_deepest_cached_level() {
    let configs = [(2, 32), (3, 4), (4, 2)];
    let configs = configs.map(|(level, entries)| WalkCacheConfig::x86_64(level, entries));
    let mut caches = WalkCaches::new(&configs, Instructions::best()).unwrap();
    let mut reads = |addr| {
        let addr = VirtAddr::new(addr);
        let deepest = caches.deepest(Asid::ONLY, addr).map_or(5, |(level, ())| level);
        for level in (2..deepest).rev() {
            caches.fill(Asid::ONLY, addr, level, ());
        }
        u32::from(deepest) - 1
    };
    assert_eq!([0, 4096, 2 << 20, 1 << 30, 4096].map(&mut reads), [4, 1, 2, 3, 1]);
    // 33 entries of level 2 evict the first one, so that its table is read again.
    assert!((2..35).all(|page| reads(page << 21) == 2));
    assert_eq!(reads(0), 2);
}
