use super::*;
use crate::sets::MAX_WAYS;
use crate::sizes::Sizes;
use crate::touches::testing::{base_pages, feed};
use octavo_oracle::strategies::{RandomStream, few_pages, loads, stream};
use octavo_oracle::{NaiveTwoSizes, NaiveTwoSizesIndex, NaiveTwoSizesTlb};
use octavo_trace::Stream;
use proptest::prelude::*;

const INDEXES: [(TwoSizesIndex, NaiveTwoSizesIndex); 5] = [
    (TwoSizesIndex::Small, NaiveTwoSizesIndex::Small),
    (TwoSizesIndex::Large, NaiveTwoSizesIndex::Large),
    (TwoSizesIndex::Exact, NaiveTwoSizesIndex::Exact),
    (TwoSizesIndex::SplitSmall, NaiveTwoSizesIndex::SplitSmall),
    (TwoSizesIndex::SplitLarge, NaiveTwoSizesIndex::SplitLarge),
];

/// Ways that are compared: each TLB is simulated on its own.
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

fn compare(random: &RandomStream, stream: Stream, config: &TwoSizesConfig, batch: usize) {
    let references = base_pages(random, stream);
    let mut tlbs: Vec<NaiveTwoSizesTlb> =
        (1..=config.max_entries as usize).map(NaiveTwoSizesTlb::fully).collect();
    for (_, index) in INDEXES {
        for sets_log2 in 0..=config.max_sets_log2 {
            tlbs.extend(WAYS.map(|ways| NaiveTwoSizesTlb::sets(index, 1 << sets_log2, ways)));
        }
    }
    let mut expected = naive(config, config.window_refs, tlbs);
    references.iter().for_each(|pages| expected.reference(pages));
    let byte_refs = config.windows_refs.iter().map(|&window_refs| {
        let mut naive = naive(config, window_refs, Vec::new());
        references.iter().for_each(|pages| naive.reference(pages));
        naive.working_set_byte_refs
    });
    let byte_refs: Vec<u128> = byte_refs.collect();
    let sizes = Sizes::new(vec![PageSize::BASE, size(13), config.small, config.large]);
    for instructions in Instructions::all() {
        let mut kernel = TwoSizes::new(config.clone(), instructions);
        let refs = feed(&mut kernel, random, stream, &sizes, batch);
        kernel.finish(refs);
        let result = kernel.result();
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
                expected.small_lookups,
                expected.large_lookups,
                expected.promotions,
                expected.demotions,
                expected.blocks_copied,
                expected.blocks_zeroed
            ],
            "lookups, promotions, demotions, copied, zeroed"
        );
        assert_eq!(result.working_set_byte_refs, byte_refs);
        compare_tlbs(&result, &expected.tlbs);
    }
}

fn compare_tlbs(result: &TwoSizesResult, expected: &[NaiveTwoSizesTlb]) {
    let counts = |tlb: &NaiveTwoSizesTlb| [tlb.small_misses, tlb.large_misses, tlb.invalidated];
    let mut expected = expected.iter().map(counts);
    let TwoSizesStack { small_misses, large_misses, invalidated } = &result.stack;
    for entries in 1..=result.config.max_entries as usize {
        let found = [small_misses, large_misses, invalidated].map(|of| of[entries - 1]);
        assert_eq!(Some(found), expected.next(), "{entries} entries");
    }
    for ((index, _), sets) in INDEXES.iter().zip(&result.sets) {
        assert_eq!(sets.index, *index);
        for log2 in 0..=usize::from(result.config.max_sets_log2) {
            for ways in WAYS {
                let found = [&sets.small_misses, &sets.large_misses, &sets.invalidated]
                    .map(|of| of[log2][ways - 1]);
                assert_eq!(Some(found), expected.next(), "{index:?} 2^{log2} x {ways}");
            }
        }
    }
    assert_eq!(expected.next(), None);
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn a_few_pages_are_as_in_naive_tlbs(
        random in prop_oneof![few_pages(7, 0..80), few_pages(24, 0..120), few_pages(70, 0..150)],
        config in config(),
        batch in 1usize..100,
    ) {
        compare(&random, Stream::Data, &config, batch);
    }

    #[test]
    fn programs_are_as_in_naive_tlbs(
        random in stream(0..40),
        config in config(),
        batch in 1usize..20,
    ) {
        for stream in [Stream::Fetch, Stream::Data, Stream::All] {
            compare(&random, stream, &config, batch);
        }
    }
}

/// Blocks 3 and 4 are referenced at once and leave at once, when their chunks are large pages and
/// a run is under way in one of them: both are demoted before the run's next look-up, in either
/// order, and its small page would evict the other's large page from its set.
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
        compare(&loads(&steps), Stream::Data, &config, 1);
    }
}

/// Blocks 0 to 7 are read in turn, so that with each reference one of them leaves a window of four
/// and another enters: the window holds four blocks of the chunk all the time.
#[test]
fn a_chunk_with_one_block_leaving_and_one_entering_keeps_its_size() {
    let steps: Vec<_> = (0..8000).map(|reference| (reference % 8, 1, false)).collect();
    let random = loads(&steps);
    for window_refs in [3, 4, 5] {
        let config = TwoSizesConfig {
            small: size(12),
            large: size(15),
            window_refs,
            threshold_blocks: 4,
            max_entries: 1,
            max_sets_log2: 0,
            windows_refs: vec![window_refs],
        };
        for instructions in Instructions::all() {
            let mut kernel = TwoSizes::new(config.clone(), instructions);
            let sizes = Sizes::new(vec![config.small, config.large]);
            let refs = feed(&mut kernel, &random, Stream::Data, &sizes, 7);
            kernel.finish(refs);
            let result = kernel.result();
            let promotions = u64::from(window_refs >= 4);
            assert_eq!([result.promotions, result.demotions], [promotions, 0], "T = {window_refs}");
            assert_eq!(
                [result.small_lookups, result.large_lookups],
                match promotions {
                    0 => [8000, 0],
                    _ => [3, 7997],
                }
            );
        }
    }
}

/// A reference that spans two blocks enters both before it is looked up, so that both of its
/// look-ups find the page that the two make large.
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
        // The first one was, and its run ends with the reference.
        (vec![(0, 3, false), spanning(0)], [3, 2, 1, 1, 3]),
        // The second one was.
        (vec![(1, 3, false), spanning(0)], [3, 2, 1, 1, 3]),
        // They lie in two chunks.
        (vec![spanning(3)], [2, 0, 0, 0, 0]),
    ] {
        let random = loads(&steps);
        compare(&random, Stream::Data, &config, 1);
        let mut kernel = TwoSizes::new(config.clone(), Instructions::PORTABLE);
        let sizes = Sizes::new(vec![config.small, config.large]);
        let refs = feed(&mut kernel, &random, Stream::Data, &sizes, 1);
        kernel.finish(refs);
        let result = kernel.result();
        let TwoSizesResult { small_lookups, large_lookups, promotions, .. } = result;
        let TwoSizesResult { blocks_copied, blocks_zeroed, .. } = result;
        assert_eq!(
            [small_lookups, large_lookups, promotions, blocks_copied, blocks_zeroed],
            expected,
            "{steps:?}"
        );
    }
}
