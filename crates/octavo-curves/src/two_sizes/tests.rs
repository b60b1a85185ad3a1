use std::collections::BTreeSet;

use super::*;
use crate::lanes::MAX_WAYS;
use crate::sizes::Sizes;
use crate::touches::testing::{feed_program, program_pages};
use octavo_oracle::strategies::{RandomStream, Step, few_pages, loads, stream};
use octavo_oracle::{NaiveTwoSizes, NaiveTwoSizesIndex, NaiveTwoSizesTlb};
use octavo_types::{Item, ItemKind, PageNumber, Segment, VirtAddr};
use proptest::prelude::*;

const INDEXES: [(TwoSizesIndex, NaiveTwoSizesIndex); 5] = [
    (TwoSizesIndex::Small, NaiveTwoSizesIndex::Small),
    (TwoSizesIndex::Large, NaiveTwoSizesIndex::Large),
    (TwoSizesIndex::Exact, NaiveTwoSizesIndex::Exact),
    (TwoSizesIndex::SplitSmall, NaiveTwoSizesIndex::SplitSmall),
    (TwoSizesIndex::SplitLarge, NaiveTwoSizesIndex::SplitLarge),
];

/// The compared numbers of ways. Each TLB is simulated on its own.
const WAYS: [usize; 4] = [1, 2, 3, MAX_WAYS];

fn size(log2: u8) -> PageSize {
    PageSize::from_log2(log2).unwrap()
}

fn config() -> impl Strategy<Value = TwoSizesConfig> {
    let pair = prop_oneof![
        2 => Just((12, 14)), 2 => Just((12, 15)), 1 => Just((12, 16)), 1 => Just((13, 16)),
        1 => Just((12, 21)), 1 => Just((13, 30)),
    ];
    let window = || prop_oneof![1 => Just(1u64), 3 => 1u64..8, 4 => 1u64..150, 1 => 64u64..5000, 1 => Just(1 << 62)];
    let threshold = |blocks: u32| prop_oneof![1..=blocks, 1..=blocks.min(4), Just(blocks / 2)];
    let sets_log2 = prop_oneof![9 => 0u8..=4, 1 => 5u8..=10];
    (pair, window(), prop::collection::vec(window(), 0..4), 0u32..20, sets_log2).prop_flat_map(
        move |((small, large), window_refs, windows_refs, max_entries, max_sets_log2)| {
            threshold(1 << (large - small)).prop_map(move |threshold_blocks| TwoSizesConfig {
                small: size(small),
                large: size(large),
                window_refs,
                threshold_blocks,
                max_entries,
                max_sets_log2,
                windows_refs: windows_refs.clone(),
            })
        },
    )
}

fn naive(config: &TwoSizesConfig, window_refs: u64, tlbs: Vec<NaiveTwoSizesTlb>) -> NaiveTwoSizes {
    NaiveTwoSizes::new((config.small, config.large), window_refs, config.threshold_blocks, tlbs)
}

/// The streams in the order of their TLBs in the naive model, in which the TLBs that a reference looks up are
/// adjacent.
const STREAMS: [Stream; 3] = [Stream::Fetch, Stream::All, Stream::Data];

fn naive_tlbs(config: &TwoSizesConfig) -> Vec<NaiveTwoSizesTlb> {
    let mut tlbs: Vec<NaiveTwoSizesTlb> =
        (1..=config.max_entries as usize).map(NaiveTwoSizesTlb::fully).collect();
    for (_, index) in INDEXES {
        for sets_log2 in 0..=config.max_sets_log2 {
            tlbs.extend(WAYS.map(|ways| NaiveTwoSizesTlb::sets(index, 1 << sets_log2, ways)));
        }
    }
    tlbs
}

/// The bytes of the working set, summed over all references of the program: the pages, as decided by all references,
/// of the blocks that a stream references in the window.
fn byte_refs(
    pages: &[(bool, Vec<PageNumber>)],
    config: &TwoSizesConfig,
    window_refs: u64,
    stream: Stream,
) -> u128 {
    let block = |page: &PageNumber| page.raw() >> config.small.base_shift();
    let chunk = |block: u64| block >> (config.large.log2() - config.small.log2());
    let mut sum = 0;
    for now in 0..pages.len() {
        let window = &pages[(now + 1).saturating_sub(window_refs as usize)..=now];
        let (mut all, mut own) = (BTreeSet::new(), BTreeSet::new());
        for (is_fetch, pages) in window {
            all.extend(pages.iter().map(block));
            if stream == Stream::All || (stream == Stream::Fetch) == *is_fetch {
                own.extend(pages.iter().map(block));
            }
        }
        let is_large = |number: u64| {
            all.iter().filter(|block| chunk(**block) == number).count() as u32
                >= config.threshold_blocks
        };
        let large: BTreeSet<u64> =
            own.iter().map(|block| chunk(*block)).filter(|chunk| is_large(*chunk)).collect();
        let small = own.iter().filter(|block| !large.contains(&chunk(**block))).count();
        sum += large.len() as u128 * u128::from(config.large.bytes());
        sum += small as u128 * u128::from(config.small.bytes());
    }
    sum
}

/// Compares all streams, which have one policy.
fn compare(random: &RandomStream, config: &TwoSizesConfig, batch: usize) {
    let pages = program_pages(random);
    let tlbs = naive_tlbs(config).len();
    let all_tlbs = STREAMS.iter().flat_map(|_| naive_tlbs(config)).collect();
    let mut expected = naive(config, config.window_refs, all_tlbs);
    // Look-ups of small pages and of large pages, by stream.
    let mut lookups = [[0; 2]; 3];
    for (is_fetch, pages) in &pages {
        let before = [expected.small_lookups, expected.large_lookups];
        let streams = if *is_fetch { 0..2 } else { 1..3 };
        expected.running = streams.start * tlbs..streams.end * tlbs;
        expected.reference(pages);
        let after = [expected.small_lookups, expected.large_lookups];
        for counts in &mut lookups[streams] {
            *counts = std::array::from_fn(|size| counts[size] + after[size] - before[size]);
        }
    }
    let sizes = Sizes::new(vec![PageSize::BASE, size(13), config.small, config.large]);
    let byte_refs: Vec<Vec<u128>> = STREAMS
        .iter()
        .map(|stream| {
            let windows = config.windows_refs.iter();
            windows.map(|window| byte_refs(&pages, config, *window, *stream)).collect()
        })
        .collect();
    for (window_refs, byte_refs) in config.windows_refs.iter().zip(&byte_refs[1]) {
        let mut naive = naive(config, *window_refs, Vec::new());
        pages.iter().for_each(|(_, pages)| naive.reference(pages));
        assert_eq!(naive.working_set_byte_refs, *byte_refs);
    }
    for instructions in Instructions::all() {
        for (number, result) in
            kernel(random, config, &STREAMS, instructions, &sizes, batch).into_iter().enumerate()
        {
            let [small_lookups, large_lookups] = lookups[number];
            assert_eq!(
                [
                    result.small_lookups,
                    result.large_lookups,
                    result.promotions,
                    result.demotions,
                    result.blocks_copied,
                    result.blocks_zeroed
                ],
                [
                    small_lookups,
                    large_lookups,
                    expected.promotions,
                    expected.demotions,
                    expected.blocks_copied,
                    expected.blocks_zeroed
                ],
                "lookups, promotions, demotions, copied, zeroed"
            );
            assert_eq!(result.working_set_byte_refs, byte_refs[number], "{:?}", STREAMS[number]);
            compare_tlbs(&result, &expected.tlbs[number * tlbs..][..tlbs]);
        }
    }
    // The result of a stream does not depend on the other streams.
    let instructions = Instructions::best();
    let all = kernel(random, config, &STREAMS, instructions, &sizes, batch);
    for stream in STREAMS {
        let alone = kernel(random, config, &[stream], instructions, &sizes, batch);
        let number = STREAMS.iter().position(|other| *other == stream).unwrap();
        assert_eq!(alone, all[number..=number]);
    }
}

/// The results of a kernel, by stream.
fn kernel(
    random: &RandomStream,
    config: &TwoSizesConfig,
    streams: &[Stream],
    instructions: Instructions,
    sizes: &Sizes,
    batch: usize,
) -> Vec<TwoSizesResult> {
    let mut kernel = TwoSizes::new(config.clone(), streams, instructions);
    let refs = feed_program(&mut kernel, random, sizes, batch);
    kernel.finish(refs);
    kernel.results()
}

/// As [`kernel`], for data alone.
fn data_result(random: &RandomStream, config: &TwoSizesConfig) -> TwoSizesResult {
    let sizes = Sizes::new(vec![config.small, config.large]);
    kernel(random, config, &[Stream::Data], Instructions::best(), &sizes, 7).remove(0)
}

fn compare_tlbs(result: &TwoSizesResult, expected: &[NaiveTwoSizesTlb]) {
    let counts = |tlb: &NaiveTwoSizesTlb| [tlb.small_misses, tlb.large_misses, tlb.invalidated];
    let mut expected = expected.iter().map(counts);
    let TwoSizesStack { small_misses, large_misses, invalidated } = &result.stack;
    for entries in 1..=result.config.max_entries as usize {
        let found = [small_misses, large_misses, invalidated].map(|counts| counts[entries - 1]);
        assert_eq!(Some(found), expected.next(), "{entries} entries");
    }
    for ((index, _), sets) in INDEXES.iter().zip(&result.sets) {
        assert_eq!(sets.index, *index);
        for log2 in 0..=usize::from(result.config.max_sets_log2) {
            for ways in WAYS {
                let found = [&sets.small_misses, &sets.large_misses, &sets.invalidated]
                    .map(|counts| counts[log2][ways - 1]);
                assert_eq!(Some(found), expected.next(), "{index:?} 2^{log2} x {ways}");
            }
        }
    }
    assert_eq!(expected.next(), None);
}

/// Executions, some of them repeated, of a fetch and then up to nine loads of two pages in alternation, one of which may
/// be the page of the fetch. Some of the loads span the next page, too.
fn alternations() -> impl Strategy<Value = RandomStream> {
    let item = |kind, size_bytes, addr| Item::new(kind, size_bytes, VirtAddr::new(addr));
    let segment = move |loads: usize| {
        let mut items = vec![item(ItemKind::Fetch, 4, 0x40_0000)];
        items.extend(std::iter::repeat_n(item(ItemKind::Load, 8, 0), loads));
        Segment::new(items, Vec::new()).unwrap()
    };
    let page = || prop_oneof![3 => 0x3fcu64..0x402, 1 => 0x3f0u64..0x440];
    let spanning = prop_oneof![3 => Just(usize::MAX), 1 => 0usize..9];
    let times = prop_oneof![Just(1), 1usize..7];
    let step = (1usize..10, page(), page(), spanning, times);
    prop::collection::vec(step, 0..30).prop_map(move |steps| {
        let step = |(loads, first, second, spanning, times): (usize, u64, u64, usize, usize)| {
            let address = |load: usize| {
                let page = if load.is_multiple_of(2) { first } else { second };
                VirtAddr::new((page << 12) + if load == spanning { 4092 } else { 0 })
            };
            let addresses = (0..loads).map(address).collect();
            std::iter::repeat_n(Step::Segment(loads - 1, addresses), times)
        };
        let steps = steps.into_iter().flat_map(step).collect();
        RandomStream { segments: (1..10).map(segment).collect(), steps }
    })
}

proptest! {
    #![proptest_config(octavo_oracle::cases(96))]

    #[test]
    fn few_pages_match_naive_tlbs(
        random in prop_oneof![few_pages(7, 0..80), few_pages(24, 0..120), few_pages(70, 0..150)],
        config in config(),
        batch in 1usize..100,
    ) {
        compare(&random, &config, batch);
    }

    #[test]
    fn alternations_match_naive_tlbs(
        random in alternations(),
        config in config(),
        batch in 1usize..20,
    ) {
        compare(&random, &config, batch);
    }

    #[test]
    fn programs_match_naive_tlbs(
        random in stream(0..40),
        config in config(),
        batch in 1usize..20,
    ) {
        compare(&random, &config, batch);
    }
}

/// Blocks 3 and 4 are referenced by one reference, and leave together, when their chunks are large pages and the
/// current run is in one of them. Both are demoted before the run's next look-up, in either order; otherwise its small
/// page would evict the large page of the other chunk from its set.
#[test]
fn chunks_are_demoted_together() {
    for (blocks, last) in [([6, 1], 1), ([1, 6], 6)] {
        let [first, second] = blocks;
        let steps = [(3, 1, true), (first, 1, false), (second, 1, false), (last, 40, false)];
        let config = TwoSizesConfig {
            small: size(12),
            large: size(14),
            window_refs: 10,
            threshold_blocks: 2,
            max_entries: 4,
            max_sets_log2: 2,
            windows_refs: vec![10],
        };
        compare(&loads(&steps), &config, 1);
    }
}

/// Blocks 0 to 7 are read in turn, with a fetch before each, so that at every second reference one of them leaves a
/// window of eight and another enters: the window always holds four blocks of the chunk, and one of code.
#[test]
fn a_chunk_with_one_block_leaving_and_one_entering_keeps_its_size() {
    let steps: Vec<_> = (0..8000).map(|reference| (reference % 8, 1, false)).collect();
    let random = loads(&steps);
    for window_refs in [7, 8, 9, 10] {
        let config = TwoSizesConfig {
            small: size(12),
            large: size(15),
            window_refs,
            threshold_blocks: 4,
            max_entries: 1,
            max_sets_log2: 0,
            windows_refs: vec![window_refs],
        };
        let result = data_result(&random, &config);
        let promoted = window_refs >= 8;
        // The window of seven holds four and three blocks in alternation.
        let changes = if promoted { [1, 0] } else { [7997, 7996] };
        assert_eq!([result.promotions, result.demotions], changes, "T = {window_refs}");
        assert_eq!([result.small_lookups, result.large_lookups], [3, 7997]);
    }
}

/// A reference that spans two blocks enters both before it is looked up, so that both of its look-ups are of the large
/// page that the two blocks make.
#[test]
fn both_blocks_of_a_spanning_reference_enter_before_its_lookups() {
    let config = TwoSizesConfig {
        small: size(12),
        large: size(14),
        window_refs: 10,
        threshold_blocks: 2,
        max_entries: 4,
        max_sets_log2: 1,
        windows_refs: vec![10],
    };
    let spanning = |block| (block, 1, true);
    for (steps, expected) in [
        // Neither block was referenced before: [small, large, promotions, copied, zeroed].
        (vec![spanning(0)], [0, 2, 1, 0, 4]),
        // The first one was.
        (vec![(0, 3, false), spanning(0)], [3, 2, 1, 1, 3]),
        // The second one was.
        (vec![(1, 3, false), spanning(0)], [3, 2, 1, 1, 3]),
        // They lie in two chunks.
        (vec![spanning(3)], [2, 0, 0, 0, 0]),
    ] {
        let random = loads(&steps);
        compare(&random, &config, 1);
        let result = data_result(&random, &config);
        let TwoSizesResult { small_lookups, large_lookups, promotions, .. } = result;
        let TwoSizesResult { blocks_copied, blocks_zeroed, .. } = result;
        assert_eq!(
            [small_lookups, large_lookups, promotions, blocks_copied, blocks_zeroed],
            expected,
            "{steps:?}"
        );
    }
}

/// A chunk with code and data is large for both: fetches reference one of its two blocks, and data the other.
#[test]
fn fetches_and_data_make_a_page_large_together() {
    let item = |kind, addr| Item::new(kind, 4, VirtAddr::new(addr));
    let items = [item(ItemKind::Fetch, 0x40_0000), item(ItemKind::Load, 0)];
    let segment = Segment::new(items.to_vec(), Vec::new()).unwrap();
    let address = VirtAddr::new(0x40_1000);
    let random =
        RandomStream { segments: vec![segment], steps: vec![Step::Segment(0, vec![address]); 10] };
    let config = TwoSizesConfig {
        small: size(12),
        large: size(13),
        window_refs: 5,
        threshold_blocks: 2,
        max_entries: 4,
        max_sets_log2: 1,
        windows_refs: vec![5],
    };
    compare(&random, &config, 3);
    let result = data_result(&random, &config);
    assert_eq!([result.promotions, result.small_lookups, result.large_lookups], [1, 0, 10]);
}
