//! Prefetchers of data caches, compared with the oracle's, and counted by hand.

use crate::common::{naive, replacement};
use octavo_hw::{
    CacheConfig, Caches, DataAccess, LevelPrefetchers, PrefetchBounds, PrefetchCounters,
    PrefetchersConfig, PrivateConfig, PteEntry, RegionConfig, Replacement, Served, ServedBy,
    SharedConfig, StreamerConfig, StrideConfig,
};
use octavo_oracle::{
    NaiveBounds, NaiveCaches, NaivePrefetch, NaivePrefetchers, NaiveRegion, NaiveStreamer,
    NaiveStride,
};
use octavo_types::Instructions;
use proptest::collection::vec;
use proptest::prelude::*;

const MEMORY_LINES: u64 = 640;
const PAGE: PrefetchBounds = PrefetchBounds { page_bytes: 4096, cross_pages: false };

fn bounds() -> impl Strategy<Value = PrefetchBounds> {
    let page_bytes = prop::sample::select(vec![64u64, 512, 4096, 8192]);
    (page_bytes, prop::bool::weighted(0.3))
        .prop_map(|(page_bytes, cross_pages)| PrefetchBounds { page_bytes, cross_pages })
}

fn stride() -> impl Strategy<Value = StrideConfig> {
    (1u32..6, 0u32..4, 1u32..5, 1u32..5, bounds()).prop_map(
        |(entries, confirmations, distance, degree, bounds)| StrideConfig {
            entries,
            confirmations,
            distance,
            degree,
            bounds,
        },
    )
}

fn streamer() -> impl Strategy<Value = StreamerConfig> {
    (1u32..4, 0u32..4, 1u32..9, 1u32..5, bounds()).prop_map(
        |(streams, confirmations, distance, degree, bounds)| StreamerConfig {
            streams,
            confirmations,
            distance,
            degree,
            bounds,
        },
    )
}

fn region() -> impl Strategy<Value = RegionConfig> {
    let around = prop_oneof![(0u32..4, 1u32..6), Just((31, 31)), Just((2, 0))];
    (1u32..10, 1u32..4, 1u32..7, around, 1u32..6, bounds()).prop_map(
        |(entries, confirmations, visits, (before, after), degree, bounds)| RegionConfig {
            entries,
            confirmations,
            visits,
            before,
            after,
            degree,
            bounds,
        },
    )
}

fn prefetchers() -> impl Strategy<Value = LevelPrefetchers> {
    use prop::option::weighted;
    let optional = (weighted(0.6, stride()), weighted(0.6, streamer()), weighted(0.6, region()));
    optional.prop_map(|(stride, streamer, region)| LevelPrefetchers { stride, streamer, region })
}

fn naive_bounds(bounds: PrefetchBounds) -> NaiveBounds {
    NaiveBounds {
        page_lines: bounds.page_bytes / 64,
        cross_pages: bounds.cross_pages,
        memory_lines: MEMORY_LINES,
    }
}

fn naive_prefetchers(level: LevelPrefetchers) -> NaivePrefetchers {
    let stride = level.stride.map(|config| NaiveStride {
        entries: config.entries,
        confirmations: config.confirmations,
        distance: config.distance,
        degree: config.degree,
        bounds: naive_bounds(config.bounds),
    });
    let streamer = level.streamer.map(|config| NaiveStreamer {
        streams: config.streams,
        confirmations: config.confirmations,
        distance: config.distance,
        degree: config.degree,
        bounds: naive_bounds(config.bounds),
    });
    let region = level.region.map(|config| NaiveRegion {
        entries: config.entries,
        confirmations: config.confirmations,
        visits: config.visits,
        before: config.before,
        after: config.after,
        degree: config.degree,
        bounds: naive_bounds(config.bounds),
    });
    NaivePrefetchers::new(stride, streamer, region)
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Data,
    Store,
    Fetch,
    ReadPte,
    WritePte,
}

/// Instructions that load or store at random, in strides, or in strides of their own: kind, instruction, line.
fn accesses() -> impl Strategy<Value = Vec<(Kind, u64, u64)>> {
    let kind = prop_oneof![
        6 => Just(Kind::Data),
        2 => Just(Kind::Store),
        1 => Just(Kind::Fetch),
        1 => Just(Kind::ReadPte),
        1 => Just(Kind::WritePte),
    ];
    let step = prop::option::of(-3i64..4);
    let run = (kind, 0u64..8, 0..MEMORY_LINES, step, 1i64..8);
    vec(run, 1..60).prop_map(|runs| {
        let lines = runs.into_iter().flat_map(|(kind, site, line, step, count)| {
            let step = step.unwrap_or(site as i64 - 3);
            (0..count).map(move |number| {
                let line = (line as i64 + number * step).rem_euclid(MEMORY_LINES as i64);
                (kind, site, line as u64)
            })
        });
        lines.collect()
    })
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn prefetching_caches_match_lists(
        shapes in vec((1u64..=8, prop::sample::select(vec![1u64, 2, 4, 7, 8]), replacement()), 4),
        levels in (prefetchers(), prefetchers()),
        pte_entry in prop::sample::select(vec![PteEntry::L1d, PteEntry::L2]),
        accesses in accesses(),
    ) {
        for instructions in Instructions::all() {
            check(instructions, &shapes, [levels.0, levels.1], pte_entry, &accesses)?;
        }
    }
}

fn check(
    instructions: Instructions,
    shapes: &[(u64, u64, Replacement)],
    levels: [LevelPrefetchers; 2],
    pte_entry: PteEntry,
    accesses: &[(Kind, u64, u64)],
) -> Result<(), TestCaseError> {
    let cache = |number: usize| {
        let (sets, ways, replacement) = shapes[number];
        let latency_cycles = number as u32;
        CacheConfig { bytes: sets * ways * 64, ways, line_bytes: 64, latency_cycles, replacement }
    };
    let prefetchers = PrefetchersConfig { levels, memory_lines: MEMORY_LINES };
    let private =
        PrivateConfig { l1i: cache(0), l1d: cache(1), l2: cache(2), pte_entry, prefetchers };
    let shared = SharedConfig {
        llc: cache(3),
        memory_latency_cycles: 4,
        others_fill_every_cycles: 0,
        tiers: Vec::new(),
    };
    let mut caches = Caches::new(&private, &shared, instructions).unwrap();
    let has_prefetchers = caches.private.prefetch_counters().is_some();
    prop_assert_eq!(has_prefetchers, !prefetchers.is_empty());
    if prefetchers.is_empty() {
        return Ok(());
    }
    caches.private.log_prefetches(true);

    let mut oracle = NaiveCaches::default();
    let mut add = |number: usize, behind| {
        let (sets, ways, replacement) = shapes[number];
        oracle.add(sets as usize, ways as usize, naive(replacement), behind)
    };
    let llc = add(3, None);
    let l2 = add(2, Some(llc));
    let (l1i, l1d) = (add(0, Some(l2)), add(1, Some(l2)));
    oracle.prefetch_into(l1d, naive_prefetchers(levels[0]));
    oracle.prefetch_into(l2, naive_prefetchers(levels[1]));
    let by = |found: Option<usize>| match found {
        None => ServedBy::Memory,
        Some(level) if level == llc => ServedBy::Llc,
        Some(level) if level == l2 => ServedBy::L2,
        Some(_) => ServedBy::L1,
    };

    for (kind, site, line) in accesses.iter().copied() {
        let pte = if pte_entry == PteEntry::L1d { l1d } else { l2 };
        let access = DataAccess { line, is_write: matches!(kind, Kind::Store), repeats: 0, site };
        let hit = Served { by: ServedBy::L1, latency_cycles: 1 };
        let served = match kind {
            Kind::Data | Kind::Store => caches.access_prefetching(&access).unwrap_or(hit),
            Kind::Fetch => caches.fetch(line),
            Kind::ReadPte => caches.read_pte(line),
            Kind::WritePte => caches.write_pte(line),
        };
        let found = match kind {
            Kind::Data | Kind::Store => oracle.access_data(l1d, line, access.is_write, site),
            Kind::Fetch => oracle.access(l1i, line, false),
            Kind::ReadPte => oracle.access(pte, line, false),
            Kind::WritePte => oracle.access(pte, line, true),
        };
        prop_assert_eq!(served.by, by(found), "{:?} {}", kind, line);
        let issued = caches.private.prefetches().unwrap().drain(..);
        let issued: Vec<_> =
            issued.map(|prefetch| (prefetch.level, prefetch.line, prefetch.by)).collect();
        let expected = oracle.prefetches.drain(..).map(|prefetch: NaivePrefetch| {
            (usize::from(prefetch.level == l2), prefetch.line, by(prefetch.found))
        });
        prop_assert_eq!(issued, expected.collect::<Vec<_>>(), "{:?} {}", kind, line);
    }
    let counters = caches.private.counters();
    for (ours, level) in
        [(counters.l1i, l1i), (counters.l1d, l1d), (counters.l2, l2), (caches.shared.llc(), llc)]
    {
        let expected = oracle.counts(level);
        let ours = (ours.accesses(), ours.hits, ours.write_backs);
        prop_assert_eq!(ours, (expected.accesses, expected.hits, expected.write_backs));
    }
    let memory = caches.shared.memory();
    prop_assert_eq!(
        (memory.reads, memory.writes),
        (oracle.lines_read.len() as u64, oracle.lines_written.len() as u64)
    );
    let by_level = caches.private.prefetch_counters().unwrap();
    for (ours, level) in by_level.iter().zip([l1d, l2]) {
        let expected = oracle.prefetch_counts(level);
        let all = (ours.issued(), ours.useful, ours.unused, ours.dropped);
        prop_assert_eq!(all, (expected.issued, expected.useful, expected.unused, expected.dropped));
        let waiting = oracle.unused(level) as u64;
        prop_assert_eq!(ours.issued(), ours.useful + ours.unused + waiting);
    }
    let from_memory: u64 = by_level.iter().map(|level| level.served_by[2]).sum();
    prop_assert_eq!(memory.reads, caches.shared.llc().misses + from_memory);
    Ok(())
}

/// 32 KiB, 1 MiB and 8 MiB, with these prefetchers.
fn caches(l1d: LevelPrefetchers, l2: LevelPrefetchers) -> Caches {
    let cache = |bytes, ways, latency_cycles| CacheConfig {
        bytes,
        ways,
        line_bytes: 64,
        latency_cycles,
        replacement: Replacement::Lru,
    };
    let l1 = cache(32 << 10, 8, 4);
    let prefetchers = PrefetchersConfig { levels: [l1d, l2], memory_lines: 1 << 24 };
    let l2 = cache(1 << 20, 16, 14);
    let private = PrivateConfig { l1i: l1, l1d: l1, l2, pte_entry: PteEntry::L1d, prefetchers };
    let shared = SharedConfig {
        llc: cache(8 << 20, 16, 50),
        memory_latency_cycles: 200,
        others_fill_every_cycles: 0,
        tiers: Vec::new(),
    };
    Caches::new(&private, &shared, Instructions::best()).unwrap()
}

const STRIDE: StrideConfig =
    StrideConfig { entries: 64, confirmations: 2, distance: 1, degree: 1, bounds: PAGE };
const STREAMER: StreamerConfig =
    StreamerConfig { streams: 16, confirmations: 2, distance: 8, degree: 2, bounds: PAGE };
/// As measured on a Zen 5.
const REGION: RegionConfig = RegionConfig {
    entries: 64,
    confirmations: 2,
    visits: 22,
    before: 4,
    after: 6,
    degree: 10,
    bounds: PAGE,
};
const NONE: LevelPrefetchers = LevelPrefetchers { stride: None, streamer: None, region: None };

fn by_stride(stride: StrideConfig) -> LevelPrefetchers {
    LevelPrefetchers { stride: Some(stride), ..NONE }
}

fn by_page(streamer: StreamerConfig) -> LevelPrefetchers {
    LevelPrefetchers { streamer: Some(streamer), ..NONE }
}

fn by_region(region: RegionConfig) -> LevelPrefetchers {
    LevelPrefetchers { region: Some(region), ..NONE }
}

/// Loads lines by one instruction. Returns the lines that missed the first level.
fn misses(caches: &mut Caches, lines: impl Iterator<Item = u64>) -> Vec<u64> {
    let load = |line| DataAccess { line, is_write: false, repeats: 7, site: 0x40_1000 };
    lines.filter(|line| caches.access_prefetching(&load(*line)).is_some()).collect()
}

fn l1d(caches: &Caches) -> PrefetchCounters {
    caches.private.prefetch_counters().unwrap()[0]
}

/// Two strides train; the third access prefetches the next line. The last line of the page prefetches none, so that
/// the first line of the next page misses; its stride is known, so that it prefetches again.
#[test]
fn stride_of_a_line_misses_until_trained_and_at_each_page() {
    let mut caches = caches(by_stride(STRIDE), NONE);
    assert_eq!(misses(&mut caches, 0..128), [0, 1, 2, 64]);
    let counters = l1d(&caches);
    assert_eq!((counters.issued(), counters.useful, counters.unused), (124, 124, 0));
    assert_eq!(caches.shared.memory().reads, 128);
    assert_eq!(caches.shared.llc().misses, 4);
}

#[test]
fn stride_crosses_pages_if_it_may() {
    let bounds = PrefetchBounds { cross_pages: true, ..PAGE };
    let mut crossing = caches(by_stride(StrideConfig { bounds, ..STRIDE }), NONE);
    assert_eq!(misses(&mut crossing, 0..128), [0, 1, 2]);
    assert_eq!(l1d(&crossing).issued(), 126);
    let bounds = PrefetchBounds { page_bytes: 2 << 20, ..PAGE };
    let mut in_huge_pages = caches(by_stride(StrideConfig { bounds, ..STRIDE }), NONE);
    assert_eq!(misses(&mut in_huge_pages, 32700..32800), [32700, 32701, 32702, 32768]);
}

/// Downwards by three lines, two at a time from four strides ahead: 63, 60 and 57 train; 57 prefetches 45 and 42,
/// 54 drops 42, which is present, and prefetches 39.
#[test]
fn distance_and_degree_count_strides() {
    let far = StrideConfig { distance: 4, degree: 2, ..STRIDE };
    let mut caches = caches(by_stride(far), NONE);
    let lines = (0..22).map(|number| 63 - 3 * number);
    assert_eq!(misses(&mut caches, lines), [63, 60, 57, 54, 51, 48]);
    let counters = l1d(&caches);
    // 45 and 42, then one for each of 54 to 15.
    assert_eq!((counters.issued(), counters.useful), (16, 16));
    // The first line of each of 54 to 12 is the second line of the access before.
    assert_eq!(counters.dropped, 15);
}

/// An instruction that maps to the same entry takes it over; one that maps to another entry does not.
#[test]
fn instructions_share_a_stride_entry_by_the_low_bits_of_their_address() {
    for (other, expected) in [(64, 0), (65, 12)] {
        let mut caches = caches(by_stride(STRIDE), NONE);
        for number in 0..8 {
            for (site, line) in [(0, number), (other, 640 - number)] {
                let access = DataAccess { line, is_write: false, repeats: 0, site };
                caches.access_prefetching(&access);
            }
        }
        assert_eq!(l1d(&caches).issued(), expected, "{other}");
    }
}

/// Lines 0 and 1 train, 2 prefetches 3 and 4, 3 prefetches 5 and 6, until the streamer is 8 lines ahead. It stops at
/// the end of the page; the next page trains again.
#[test]
fn streamer_goes_ahead_in_a_page() {
    let mut caches = caches(NONE, by_page(STREAMER));
    assert_eq!(misses(&mut caches, 0..128).len(), 128);
    let [_, counters] = caches.private.prefetch_counters().unwrap();
    assert_eq!((counters.issued(), counters.useful, counters.unused), (122, 122, 0));
    assert_eq!(caches.private.counters().l2.misses, 6);
}

/// Prefetches into the first level train the second level, which stays ahead of them.
#[test]
fn prefetches_of_the_first_level_train_the_second() {
    let mut caches = caches(by_stride(STRIDE), by_page(STREAMER));
    assert_eq!(misses(&mut caches, 0..64), [0, 1, 2]);
    let [first, second] = caches.private.prefetch_counters().unwrap();
    assert_eq!(first.served_by, [61, 0, 0]);
    assert_eq!((second.served_by, second.useful), ([0, 0, 61], 61));
}

/// Irregular lines: no two equal steps, so no prefetches by stride. A streamer without confirmations prefetches two
/// lines at each access, which are never used.
#[test]
fn useless_prefetches_cost_only_reads_of_memory() {
    let lines: Vec<u64> = (0..1000).map(|number| number * number * 640 % 7_919_000).collect();
    let eager = StreamerConfig { confirmations: 0, ..STREAMER };
    for (prefetchers, reads) in [(by_stride(STRIDE), 1), (by_page(eager), 3)] {
        let mut caches = caches(NONE, prefetchers);
        let misses = misses(&mut caches, lines.iter().copied()).len() as u64;
        let [_, counters] = caches.private.prefetch_counters().unwrap();
        assert_eq!(counters.useful, 0);
        assert_eq!(caches.shared.memory().reads, misses * reads);
    }
}

/// The middle lines of pages so far apart that no visit covers two of them.
fn far_apart(number: u64) -> u64 {
    number * 640 + 32
}

/// Loads lines by the given instructions: (instruction, line). Returns the loads that missed the first level.
fn misses_of(caches: &mut Caches, loads: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let access = |(site, line)| DataAccess { line, is_write: false, repeats: 0, site };
    let missed = |load: &(u64, u64)| caches.access_prefetching(&access(*load)).is_some();
    loads.iter().copied().filter(missed).collect()
}

/// The second load misses until two visits with it have ended. With 22 visits under way, the 24th visit is the first
/// that prefetches. A line outside the visit, or at another distance each time, always misses.
#[test]
fn line_at_a_usual_distance_comes_with_the_first() {
    for distance in [-4, -1, 1, 6] {
        let mut caches = caches(by_region(REGION), NONE);
        let line = |number| far_apart(number).wrapping_add_signed(distance);
        let loads: Vec<_> =
            (0..100).flat_map(|number| [(1, far_apart(number)), (2, line(number))]).collect();
        assert_eq!(misses_of(&mut caches, &loads).len(), 123, "{distance}");
        let counters = l1d(&caches);
        assert_eq!((counters.issued(), counters.useful, counters.unused), (77, 77, 0));
    }
    let varied = |number: u64| [1, 3, -2][number as usize % 3];
    for distance in [|_| -5, |_| 7, varied] {
        let mut caches = caches(by_region(REGION), NONE);
        let line = |number| far_apart(number).wrapping_add_signed(distance(number));
        let loads: Vec<_> =
            (0..100).flat_map(|number| [(1, far_apart(number)), (2, line(number))]).collect();
        assert_eq!(misses_of(&mut caches, &loads).len(), 200);
        assert_eq!(l1d(&caches).issued(), 0);
    }
}

/// Loads of another instruction between the two loads of a visit begin visits of their own: with 21 others,
/// the first visit is still under way; with 22, it has ended.
#[test]
fn visit_ends_when_enough_others_have_begun() {
    for (others, issued) in [(20, true), (21, true), (22, false)] {
        let mut caches = caches(by_region(REGION), NONE);
        let loads: Vec<_> = (0..50)
            .flat_map(|round| {
                let first = far_apart(round * 40);
                let between = (1..=others).map(move |other| (2, far_apart(round * 40 + other)));
                [(1, first)].into_iter().chain(between).chain([(3, first + 2)])
            })
            .collect();
        misses_of(&mut caches, &loads);
        assert_eq!(l1d(&caches).issued() > 0, issued, "{others}");
    }
}

/// With one visit under way, each ends when the next begins. Lines are prefetched nearest first, up to the degree, and
/// none outside the page. One visit without a distance resets that distance.
#[test]
fn nearest_lines_of_a_visit_are_prefetched_first() {
    let one = RegionConfig { visits: 1, degree: 3, ..REGION };
    let mut caches = caches(by_region(one), NONE);
    caches.private.log_prefetches(true);
    let mut prefetched = |trigger: u64, distances: &[i64]| {
        let around = distances.iter().map(|by| (2, trigger.wrapping_add_signed(*by)));
        misses_of(&mut caches, &[(1, trigger)].into_iter().chain(around).collect::<Vec<_>>());
        let issued = caches.private.prefetches().unwrap().drain(..);
        issued.map(|prefetch| prefetch.line as i64 - trigger as i64).collect::<Vec<_>>()
    };
    let all = [5, -2, 2, -1, 4];
    assert_eq!(prefetched(far_apart(0), &all), []);
    assert_eq!(prefetched(far_apart(1), &all), []);
    assert_eq!(prefetched(far_apart(2), &all), [-1, 2, -2]);
    // The first line of a page has none before it, so that this visit resets the distances -1 and -2.
    assert_eq!(prefetched(64 * 1000, &[5, 2, 4]), [2, 4, 5]);
    assert_eq!(prefetched(far_apart(3), &all), [2, 4, 5]);
    assert_eq!(prefetched(far_apart(4), &[5, 2]), [2, 4, 5]);
    assert_eq!(prefetched(far_apart(5), &all), [2, 5]);
}

/// An instruction that maps to the same entry takes it over as its visit ends; one that maps to another entry does not.
#[test]
fn instructions_share_a_region_entry_by_the_low_bits_of_their_address() {
    // Of 100 visits counted from 0, numbers 24 and 25 are the first with two ended visits of their instruction.
    for (other, issued) in [(64, 0), (65, 76)] {
        let mut caches = caches(by_region(REGION), NONE);
        let loads: Vec<_> = (0..100)
            .flat_map(|number| {
                let line = far_apart(number);
                [([0, other][number as usize % 2], line), (2, line + 1)]
            })
            .collect();
        misses_of(&mut caches, &loads);
        assert_eq!(l1d(&caches).issued(), issued, "{other}");
    }
}

/// An access to a line that two visits cover counts only in the more recent one: the line is prefetched if its distance
/// from the trigger of that visit is always the same, whatever its distance from the other trigger.
#[test]
fn line_that_two_visits_cover_belongs_to_the_more_recent_one() {
    // From the line of the second instruction to those of the first and the third.
    for (distances, missed) in [([[1, 4], [2, 4]], 2), ([[1, 4], [2, 5]], 20)] {
        let two = RegionConfig { visits: 2, before: 0, ..REGION };
        let mut caches = caches(by_region(two), NONE);
        let loads: Vec<_> = (0..20)
            .flat_map(|number| {
                let (line, [first, third]) = (far_apart(number), distances[number as usize % 2]);
                [(1, line + first), (2, line), (3, line + third)]
            })
            .collect();
        let misses = misses_of(&mut caches, &loads);
        assert_eq!(misses.into_iter().filter(|(site, _)| *site == 3).count(), missed);
    }
}
