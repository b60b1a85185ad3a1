//! Data caches compared with the oracle's.

use std::collections::BTreeMap;

use crate::common::{naive, replacement};
use octavo_hw::{
    Asid, CacheConfig, CacheCounters, CacheError, Caches, MemoryTierConfig, PrefetchersConfig,
    PrivateCaches, PrivateConfig, PteEntry, Replacement, Served, ServedBy, SharedCache,
    SharedConfig, TranslationLine,
};
use octavo_oracle::{NaiveCaches, NaiveCounts};
use octavo_types::Instructions;
use proptest::collection::vec;
use proptest::prelude::*;

/// Latencies of the first level for instructions, the first level for data, the second level, the last level,
/// and memory.
const LATENCIES_CYCLES: [u32; 5] = [3, 4, 12, 40, 200];
/// The first line of each tier, and its added latency in cycles.
const TIERS: [(u64, u32); 2] = [(30, 100), (1 << 34, 50)];
const CORES: usize = 2;

fn level() -> impl Strategy<Value = (u64, u64, Replacement)> {
    (1u64..=4, prop::sample::select(vec![1u64, 2, 4, 7, 8, 11, 16, 17]), replacement())
}

fn config(level: (u64, u64, Replacement), latency_cycles: u32) -> CacheConfig {
    let (sets, ways, replacement) = level;
    CacheConfig { bytes: sets * ways * 64, ways, line_bytes: 64, latency_cycles, replacement }
}

#[derive(Clone, Copy, Debug)]
enum Kind {
    Fetch,
    Load,
    Store,
    ReadPte,
    WritePte,
    /// Time passes, in which others fill lines.
    Pass,
    /// A line of translations is looked up, and filled on a miss.
    Translate,
    /// The mappings of pages change.
    Invalidate,
    /// All mappings change.
    Clear,
}

/// Pages of a line of translations.
const PAGES: u64 = 8;
/// The address spaces and the orders of pages of lines of translations.
const ASIDS: u16 = 2;
const ORDERS: [u8; 2] = [0, 9];

/// A line of translations: address space, order, number.
type Numbers = (u16, u8, u64);

fn translation_line((asid, order, number): Numbers) -> TranslationLine {
    TranslationLine::new(Asid::new(asid).unwrap(), order, number)
}

/// The tag of a line of translations in the oracle: unique, and unlike those of lines that others fill.
fn naive_tag((asid, order, number): Numbers) -> u64 {
    (number * 32 + u64::from(order)) * 4 + u64::from(asid)
}

/// Cycles between two lines that others fill.
const FILL_CYCLES: u32 = 3;

/// An access of a core: operation, line, repeats.
type Accessed = (usize, Kind, u64, u32);

fn access() -> impl Strategy<Value = Accessed> {
    let kind = prop_oneof![
        Just(Kind::Fetch),
        Just(Kind::Load),
        Just(Kind::Store),
        Just(Kind::ReadPte),
        Just(Kind::WritePte),
        Just(Kind::Pass),
        Just(Kind::Translate),
        Just(Kind::Translate),
        Just(Kind::Invalidate),
    ];
    let kind = prop_oneof![80 => kind, 1 => Just(Kind::Clear)];
    // Few lines are hot, many are cold.
    let line = prop_oneof![0u64..6, 0u64..60, (0u64..200).prop_map(|line| line + (1 << 34))];
    let repeats = prop_oneof![3 => Just(0u32), 1 => 1u32..4];
    (0..CORES, kind, line, repeats)
}

fn agree(counters: CacheCounters, counts: NaiveCounts) -> bool {
    counters.accesses() == counts.accesses
        && counters.hits == counts.hits
        && counters.write_backs == counts.write_backs
}

fn check(
    instructions: Instructions,
    levels: &[(u64, u64, Replacement)],
    pte_entry: PteEntry,
    accesses: &[Accessed],
) -> Result<(), TestCaseError> {
    let cache = |level: usize| config(levels[level], LATENCIES_CYCLES[level]);
    let prefetchers = PrefetchersConfig::default();
    let private =
        PrivateConfig { l1i: cache(0), l1d: cache(1), l2: cache(2), pte_entry, prefetchers };
    let tiers = TIERS.map(|(first_line, added_latency_cycles)| MemoryTierConfig {
        first_line,
        added_latency_cycles,
    });
    let memory_latency_cycles = LATENCIES_CYCLES[4];
    let shared = SharedConfig {
        llc: cache(3),
        memory_latency_cycles,
        others_fill_every_cycles: FILL_CYCLES,
        tiers: tiers.to_vec(),
    };
    let mut shared = SharedCache::new(&shared, instructions).unwrap();
    let mut cores =
        [(); CORES].map(|()| PrivateCaches::new(&private, &shared, instructions).unwrap());

    let mut oracle = NaiveCaches::default();
    let mut add = |level: usize, behind| {
        let (sets, ways, replacement) = levels[level];
        oracle.add(sets as usize, ways as usize, naive(replacement), behind)
    };
    let llc = add(3, None);
    let naive_cores = [(); CORES].map(|()| {
        let l2 = add(2, Some(llc));
        [add(0, Some(l2)), add(1, Some(l2)), l2]
    });
    cores.iter_mut().for_each(|caches| caches.hold_translations(PAGES));
    // By core, address space, order and number: the contents that were filled last.
    let mut translations = BTreeMap::new();
    let (mut fills, mut dropped) = (0, 0);
    let mut walks = [0; CORES];
    let mut cycles = 0;

    for &(core, kind, line, repeats) in accesses {
        if let Kind::Pass = kind {
            let before = cycles / u64::from(FILL_CYCLES);
            cycles += line % 40;
            shared.fill_by_others(cycles);
            let filled = cycles / u64::from(FILL_CYCLES);
            oracle.fill_by_others(llc, before..filled);
            prop_assert_eq!(shared.filled_by_others(), Some(filled));
            continue;
        }
        let caches = &mut cores[core];
        let [l1i, l1d, l2] = naive_cores[core];
        if let Kind::Translate = kind {
            let at @ (asid, order, number) =
                (line as u16 % ASIDS, ORDERS[line as usize % 3 / 2], line / 4);
            let (held, tag) = (translation_line(at), naive_tag(at));
            let is_here = oracle.use_foreign(l2, tag, number);
            let expected = is_here.then(|| [translations[&(core, asid, order, number)]; 8]);
            prop_assert_eq!(caches.translation_words(held).copied(), expected);
            if is_here {
                prop_assert_eq!(caches.use_translations(held), LATENCIES_CYCLES[2]);
            } else {
                fills += 1;
                caches.fill_translations(&mut shared, held, [fills; 8]);
                oracle.take_in_foreign(l2, tag, number);
                translations.insert((core, asid, order, number), fills);
            }
            continue;
        }
        if let Kind::Invalidate | Kind::Clear = kind {
            let (first, end) = (line, line + u64::from(repeats) * 5000 + 1);
            let space = line as u16 % ASIDS;
            match kind {
                Kind::Clear => caches.clear_translations(),
                _ => caches.invalidate_translations(Asid::new(space).unwrap(), first, end),
            }
            for (at, asid, order, number) in translations.keys().copied() {
                let pages = (number * PAGES) << order..((number + 1) * PAGES) << order;
                let is_out = asid == space && pages.start < end && first < pages.end;
                if at == core && (is_out || matches!(kind, Kind::Clear)) {
                    let was_here =
                        oracle.drop_foreign(l2, naive_tag((asid, order, number)), number);
                    dropped += u64::from(was_here);
                }
            }
            continue;
        }
        let pte = if pte_entry == PteEntry::L1d { l1d } else { l2 };
        let (from, is_write) = match kind {
            Kind::Fetch => (l1i, false),
            Kind::Load => (l1d, false),
            Kind::Store => (l1d, true),
            Kind::ReadPte => (pte, false),
            Kind::WritePte => (pte, true),
            _ => unreachable!("no access"),
        };
        // Repeats are counted with their access only if the policy ignores them.
        let side = usize::from(from != l1i);
        let may_repeat = matches!(kind, Kind::Fetch | Kind::Load | Kind::Store)
            && !levels[side].2.retouch_changes();
        let repeats = if may_repeat { repeats } else { 0 };
        let served = match kind {
            _ if repeats > 0 => {
                let is_hit = caches.hits(side, line, is_write, repeats);
                (!is_hit).then(|| caches.serve_miss(&mut shared, side, line, is_write))
            }
            Kind::Fetch => Some(caches.fetch(&mut shared, line)),
            Kind::Load => Some(caches.load(&mut shared, line)),
            Kind::Store => Some(caches.store(&mut shared, line)),
            Kind::ReadPte => Some(caches.read_pte(&mut shared, line)),
            Kind::WritePte => Some(caches.write_pte(&mut shared, line)),
            _ => unreachable!("no access"),
        };
        walks[core] += u64::from(from == l2);
        let (by, latency) = match oracle.access(from, line, is_write) {
            None => (ServedBy::Memory, 4),
            Some(level) if level == llc => (ServedBy::Llc, 3),
            Some(level) if level == l2 => (ServedBy::L2, 2),
            Some(level) if level == l1d => (ServedBy::L1, 1),
            Some(_) => (ServedBy::L1, 0),
        };
        let tier = TIERS.iter().rfind(|(first, _)| by == ServedBy::Memory && *first <= line);
        let added = tier.map_or(0, |(_, added)| *added);
        let expected = Served { by, latency_cycles: LATENCIES_CYCLES[latency] + added };
        let in_first = Served { by: ServedBy::L1, latency_cycles: LATENCIES_CYCLES[side] };
        prop_assert_eq!(served.unwrap_or(in_first), expected, "{:?} {}", kind, line);
        for _ in 0..repeats {
            prop_assert_eq!(oracle.access(from, line, is_write), Some(from));
        }
    }

    let held = translations.keys().filter(|(core, asid, order, number)| {
        oracle.drop_foreign(naive_cores[*core][2], naive_tag((*asid, *order, *number)), *number)
    });
    let held = held.count() as u64;
    let all = cores.iter().map(|caches| caches.translation_counters().unwrap());
    let [filled, evicted, invalidated] = all.fold([0; 3], |[filled, evicted, out], counters| {
        [filled + counters.fills, evicted + counters.evicted, out + counters.invalidated]
    });
    prop_assert_eq!([filled, evicted, invalidated], [fills, fills - dropped - held, dropped]);

    let mut reach_llc = 0;
    for ((caches, levels), walks) in cores.iter_mut().zip(naive_cores).zip(walks) {
        let counters = caches.counters();
        for (counters, level) in [counters.l1i, counters.l1d, counters.l2].into_iter().zip(levels) {
            prop_assert!(agree(counters, oracle.counts(level)));
        }
        let missed = counters.l1i.misses + counters.l1d.misses;
        prop_assert_eq!(counters.l2.accesses(), missed + walks);
        reach_llc += counters.l2.misses;
    }
    prop_assert!(agree(shared.llc(), oracle.counts(llc)));
    prop_assert_eq!(shared.llc().accesses(), reach_llc);
    prop_assert_eq!(shared.memory().reads, shared.llc().misses);
    prop_assert_eq!(shared.memory().writes, shared.llc().write_backs);
    let memory = (shared.memory().reads, shared.memory().writes);
    prop_assert_eq!(memory, (oracle.lines_read.len() as u64, oracle.lines_written.len() as u64));
    let ends = [TIERS[1].0, u64::MAX];
    for ((tier, (first, _)), end) in shared.memory_tiers().zip(TIERS).zip(ends) {
        let within =
            |lines: &[u64]| lines.iter().filter(|line| (first..end).contains(line)).count() as u64;
        prop_assert_eq!(tier.reads, within(&oracle.lines_read));
        prop_assert_eq!(tier.writes, within(&oracle.lines_written));
    }
    Ok(())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(192))]

    #[test]
    fn caches_match_lists(
        levels in vec(level(), 4),
        pte_entry in prop::sample::select(vec![PteEntry::L1d, PteEntry::L2]),
        accesses in vec(access(), 1..500),
    ) {
        for instructions in Instructions::all() {
            check(instructions, &levels, pte_entry, &accesses)?;
        }
    }
}

fn small(bytes: u64, latency_cycles: u32) -> CacheConfig {
    let replacement = Replacement::Lru;
    CacheConfig { bytes, ways: 2, line_bytes: 64, latency_cycles, replacement }
}

fn one_core() -> (PrivateConfig, SharedConfig) {
    let l1 = small(128, 4);
    let (pte_entry, prefetchers) = (PteEntry::L2, PrefetchersConfig::default());
    let private = PrivateConfig { l1i: l1, l1d: l1, l2: small(256, 12), pte_entry, prefetchers };
    (
        private,
        SharedConfig {
            llc: small(1024, 40),
            memory_latency_cycles: 200,
            others_fill_every_cycles: 0,
            tiers: Vec::new(),
        },
    )
}

/// Latencies are totals of the serving level; walks do not fill the first level.
#[test]
fn ten_accesses_of_one_core() {
    let (private, shared) = one_core();
    let mut caches = Caches::new(&private, &shared, Instructions::best()).unwrap();
    let costs = [
        caches.load(0), // from memory
        caches.store(0),
        caches.fetch(0), // the second level has it
        caches.fetch(0),
        caches.read_pte(5), // from memory into the second level
        caches.load(5),
        caches.load(2),      // 0, dirty, leaves the first level
        caches.write_pte(4), // the second set had 0 and 2: 0 goes to the last level
        caches.load(0),
        caches.load(0),
    ];
    let costs = costs.map(|served| served.latency_cycles);
    assert_eq!(costs, [200, 4, 12, 4, 200, 12, 200, 200, 40, 4]);
    let counters = caches.private.counters();
    assert_eq!(counters.l1d.write_backs, 1);
    assert_eq!(counters.l2.write_backs, 1);
}

/// A prefetch into the second level reads the last level or memory, and counts no access of a cache.
#[test]
fn prefetched_line_hits_the_second_level() {
    let (private, shared) = one_core();
    let mut caches = Caches::new(&private, &shared, Instructions::best()).unwrap();
    let Caches { private, shared } = &mut caches;
    let prefetch = private.prefetch_into_l2(shared, 7);
    assert_eq!(prefetch, Some(Served { by: ServedBy::Memory, latency_cycles: 200 }));
    assert_eq!(private.prefetch_into_l2(shared, 7), None);
    assert_eq!((private.counters().l2.accesses(), shared.llc().accesses()), (0, 0));
    assert_eq!(shared.memory().reads, 1);
    assert_eq!(private.load(shared, 7), Served { by: ServedBy::L2, latency_cycles: 12 });
    // 7 leaves its set of the second level.
    for line in [1, 3, 5] {
        private.load(shared, line);
    }
    let prefetch = private.prefetch_into_l2(shared, 7);
    assert_eq!(prefetch, Some(Served { by: ServedBy::Llc, latency_cycles: 40 }));
}

/// Repeats of an access that misses hit the line that it fills.
#[test]
fn repeats_of_a_miss_hit() {
    let (private, shared) = one_core();
    let mut caches = Caches::new(&private, &shared, Instructions::best()).unwrap();
    assert!(!caches.private.hits(1, 0, true, 3));
    assert_eq!(caches.serve_miss(1, 0, true).by, ServedBy::Memory);
    assert!(caches.private.hits(1, 0, false, 2));
    let counters = caches.private.counters();
    assert_eq!((counters.l1d.hits, counters.l1d.misses, counters.l2.misses), (6, 1, 1));
    assert_eq!(counters.l1i.accesses(), 0);
}

#[test]
fn invalid_values_are_rejected_with_one_sentence() {
    let (private, shared) = one_core();
    let sentence = |private: PrivateConfig, shared: SharedConfig| {
        let refused: CacheError = Caches::new(&private, &shared, Instructions::best()).unwrap_err();
        refused.to_string()
    };
    let l1d = |l1d| PrivateConfig { l1d, ..private };
    assert_eq!(
        sentence(l1d(CacheConfig { line_bytes: 48, ..private.l1d }), shared.clone()),
        "l1d.line_bytes = 48: give a power of two from 8 to 4096, such as 64"
    );
    assert_eq!(
        sentence(l1d(CacheConfig { bytes: 100, ..private.l1d }), shared.clone()),
        "l1d.bytes = 100: give a multiple of 64 (line_bytes)"
    );
    assert_eq!(
        sentence(l1d(CacheConfig { line_bytes: 32, ..private.l1d }), shared.clone()),
        "l1d.line_bytes = 32: give 64, as llc.line_bytes has; lines are of one size"
    );
    let llc = CacheConfig { ways: 3, ..shared.llc };
    assert_eq!(
        sentence(private, SharedConfig { llc, ..shared.clone() }),
        "llc: 16 entries of 3 ways: give a multiple of 3, such as 18"
    );
}

/// Lines of memory and of translations with the same low bits compete for a set of two ways, and never match each
/// other.
#[test]
fn translations_compete_with_memory_for_their_set() {
    let (private, shared) = one_core();
    let mut caches = Caches::new(&private, &shared, Instructions::best()).unwrap();
    caches.private.hold_translations(8);
    let line = |order, number| TranslationLine::new(Asid::ONLY, order, number);
    assert_eq!(caches.load(0).by, ServedBy::Memory);
    assert_eq!(caches.private.translation_words(line(0, 0)), None);
    caches.private.fill_translations(&mut caches.shared, line(0, 0), [7; 8]);
    assert_eq!(caches.private.translation_words(line(9, 0)), None);
    // The load is evicted from the second level, which has two sets, not from the first.
    caches.private.fill_translations(&mut caches.shared, line(9, 2), [8; 8]);
    assert_eq!(caches.fetch(0).by, ServedBy::Llc);
    assert_eq!(caches.private.translation_words(line(0, 0)), None);
    assert_eq!(caches.private.translation_words(line(9, 2)), Some(&mut [8; 8]));
    assert_eq!(caches.private.use_translations(line(9, 2)), 12);
    caches.load(4);
    assert_eq!(caches.fetch(0).by, ServedBy::L1);
    assert_eq!(caches.private.translation_words(line(9, 2)), Some(&mut [8; 8]));
    let counters = caches.private.translation_counters().unwrap();
    assert_eq!((counters.fills, counters.evicted, counters.invalidated), (2, 1, 0));
    // Line 2 of pages of 2 MiB has the base pages from 8192 to 12287.
    caches.private.invalidate_translations(Asid::ONLY, 0, 8192);
    assert!(caches.private.translation_words(line(9, 2)).is_some());
    caches.private.invalidate_translations(Asid::ONLY, 8191, 8193);
    assert_eq!(caches.private.translation_words(line(9, 2)), None);
    assert_eq!(caches.private.translation_counters().unwrap().invalidated, 1);
    assert_eq!(caches.private.counters().l2.write_backs, 0);
}
