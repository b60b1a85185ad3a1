//! All TLBs at once, compared with each TLB simulated alone.

use std::collections::HashMap;

use octavo_oracle::strategies::page_sequence;
use octavo_oracle::{NaiveSets, NaiveTlb};
use octavo_types::{PageNumber, PageSize};
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::lanes::MAX_WAYS;

/// The compared numbers of entries, of log2 of sets and of ways.
const ENTRIES: [u32; 9] = [1, 2, 3, 5, 31, 32, 33, 50, 90];
const SETS_LOG2: [usize; 7] = [0, 1, 2, 3, 4, 7, 10];
const WAYS: [usize; 5] = [1, 2, 3, 15, MAX_WAYS];

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The look-up of a page through a block.
    LookUp(Page),
    /// Look-ups of the last two pages in alternation, after the look-ups of both.
    Alternate([Page; 2], u32),
    /// The invalidation of a page.
    Invalidate(Page),
    /// The removal of all entries.
    Clear,
}

/// Random steps. Blocks have dense numbers, which index their page numbers. About a third of the chunks are large pages,
/// and invalidations change the size of a chunk.
fn steps(blocks_log2: u8) -> impl Strategy<Value = (Vec<Step>, Vec<u64>)> {
    let changes = prop_oneof![
        prop::collection::vec(any::<(Index, Index)>(), 0..6),
        prop::collection::vec(any::<(Index, Index)>(), 0..80),
    ];
    let alternations = prop::collection::vec((any::<Index>(), 1u32..5), 0..20);
    let clears = prop::collection::vec(any::<Index>(), 0..3);
    (page_sequence(), changes, alternations, clears).prop_map(
        move |(sequence, changes, alternations, clears)| {
            let mut numbers: Vec<u64> = sequence.clone();
            numbers.sort_unstable();
            numbers.dedup();
            let block = |number: u64| numbers.binary_search(&number).unwrap() as u32;
            let mut chunks: Vec<u64> = numbers.iter().map(|number| number >> blocks_log2).collect();
            chunks.dedup();
            let chunk = |number: u64| chunks.binary_search(&(number >> blocks_log2)).unwrap();
            let mut large: Vec<bool> = (0..chunks.len()).map(|chunk| chunk % 3 == 1).collect();
            let at = |index: &Index| index.index(sequence.len());
            let mut steps = Vec::new();
            for (time, number) in sequence.iter().enumerate() {
                let page = |number: u64, large: &[bool]| {
                    let chunk = chunk(number);
                    Page::new(block(number), chunk as u32, large[chunk])
                };
                steps.push(Step::LookUp(page(*number, &large)));
                for (_, times) in alternations.iter().filter(|(when, _)| at(when) == time) {
                    let pages = [sequence[time.saturating_sub(1)], *number];
                    let pages = pages.map(|number| page(number, &large));
                    if pages[0] != pages[1] {
                        steps.push(Step::Alternate(pages, *times));
                    }
                }
                for (_, which) in changes.iter().filter(|(when, _)| at(when) == time) {
                    let number = sequence[at(which)];
                    let all = numbers.iter().filter(|other| chunk(**other) == chunk(number));
                    let all: Vec<Step> =
                        all.map(|number| Step::Invalidate(page(*number, &large))).collect();
                    let is_large = &mut large[chunk(number)];
                    steps.extend(if *is_large { &all[..1] } else { &all[..] });
                    *is_large = !*is_large;
                }
                if clears.iter().any(|when| at(when) == time) {
                    steps.push(Step::Clear);
                }
            }
            (steps, numbers)
        },
    )
}

/// A TLB of any kind, with misses on small pages, on large pages, and invalidated entries.
struct Naive<T> {
    tlb: T,
    counts: [u64; 3],
}

impl<T> Naive<T> {
    /// Performs the steps on a TLB.
    fn of(
        tlb: T,
        steps: &[Step],
        mut hits: impl FnMut(&mut T, Page) -> bool,
        mut invalidate: impl FnMut(&mut T, PageNumber) -> u64,
        mut clear: impl FnMut(&mut T),
    ) -> [u64; 3] {
        let mut naive = Naive { tlb, counts: [0; 3] };
        let mut look_up = |naive: &mut Self, page: Page| {
            let misses = !hits(&mut naive.tlb, page);
            naive.counts[usize::from(page.is_large())] += u64::from(misses);
        };
        for step in steps {
            match *step {
                Step::LookUp(page) => look_up(&mut naive, page),
                Step::Alternate(pages, times) => {
                    let all =
                        pages.into_iter().chain(pages.into_iter().cycle().take(times as usize));
                    all.for_each(|page| look_up(&mut naive, page));
                }
                Step::Invalidate(page) => naive.counts[2] += invalidate(&mut naive.tlb, tag(page)),
                Step::Clear => clear(&mut naive.tlb),
            }
        }
        naive.counts
    }
}

fn tag(page: Page) -> PageNumber {
    PageNumber::new(page.id.into())
}

/// The counts of a set-associative TLB.
fn naive_sets(
    index: TwoSizesIndex,
    blocks_log2: u8,
    (sets_log2, ways): (usize, usize),
    steps: &[Step],
    numbers: &[u64],
) -> [u64; 3] {
    let hits = |tlb: &mut NaiveSets, page: Page| {
        let (small, large) =
            (numbers[page.block as usize], numbers[page.block as usize] >> blocks_log2);
        let number = match (index, page.is_large()) {
            (TwoSizesIndex::SplitSmall, true) | (TwoSizesIndex::SplitLarge, false) => return true,
            (TwoSizesIndex::Small, _) => small,
            (TwoSizesIndex::Large, _) | (_, true) => large,
            (_, false) => small,
        };
        tlb.access(number as usize % (1 << sets_log2), tag(page))
    };
    let tlb = NaiveSets::new(1 << sets_log2, ways);
    Naive::of(tlb, steps, hits, NaiveSets::invalidate, NaiveSets::flush)
}

/// Compares all TLBs, and returns those of the best instructions.
fn compare(blocks_log2: u8, max_entries: u32, steps: &[Step], numbers: &[u64]) -> Tlbs {
    let size = |log2| PageSize::from_log2(log2).unwrap();
    let config = TwoSizesConfig {
        small: size(12),
        large: size(12 + blocks_log2),
        window_refs: 1,
        threshold_blocks: 1,
        max_entries,
        max_sets_log2: MAX_SETS_LOG2,
        windows_refs: Vec::new(),
    };
    let mut results = HashMap::new();
    let mut last = None;
    for instructions in Instructions::all() {
        let mut tlbs = Tlbs::new(&config, instructions);
        for step in steps {
            match *step {
                Step::LookUp(page) => {
                    if tlbs.page(page) {
                        tlbs.process_steps(numbers);
                    }
                }
                Step::Alternate(pages, times) => {
                    tlbs.process_steps(numbers);
                    pages.into_iter().for_each(|page| {
                        tlbs.page(page);
                    });
                    tlbs.alternate(times);
                }
                Step::Invalidate(page) => {
                    tlbs.process_steps(numbers);
                    tlbs.invalidate(page, numbers[page.block as usize]);
                }
                Step::Clear => {
                    tlbs.process_steps(numbers);
                    tlbs.clear();
                }
            }
        }
        tlbs.process_steps(numbers);
        results.insert(instructions.name(), (tlbs.stack(), tlbs.sets()));
        last = Some(tlbs);
    }
    for entries in ENTRIES.into_iter().filter(|entries| *entries <= max_entries) {
        let expected = Naive::of(
            NaiveTlb::new(entries as usize),
            steps,
            |tlb, page| tlb.access(tag(page)),
            |tlb, tag| u64::from(tlb.invalidate(tag)),
            NaiveTlb::flush,
        );
        for (name, (stack, _)) in &results {
            let found = [&stack.small_misses, &stack.large_misses, &stack.invalidated]
                .map(|counts| counts[entries as usize - 1]);
            assert_eq!(found, expected, "{name}, {entries} entries");
        }
    }
    use TwoSizesIndex::*;
    for (number, index) in [Small, Large, Exact, SplitSmall, SplitLarge].into_iter().enumerate() {
        for (sets_log2, ways) in
            SETS_LOG2.into_iter().flat_map(|log2| WAYS.map(|ways| (log2, ways)))
        {
            let expected = naive_sets(index, blocks_log2, (sets_log2, ways), steps, numbers);
            for (name, (_, sets)) in &results {
                let sets = &sets[number];
                assert_eq!(sets.index, index);
                let found = [&sets.small_misses, &sets.large_misses, &sets.invalidated]
                    .map(|counts| counts[sets_log2][ways - 1]);
                assert_eq!(found, expected, "{name}, {index:?}, 2^{sets_log2} sets of {ways} ways");
            }
        }
    }
    last.expect("there are portable instructions")
}

proptest! {
    #![proptest_config(octavo_oracle::cases(48))]

    /// Also with large pages of more blocks than there are sets.
    #[test]
    fn every_tlb_is_exact(
        (blocks_log2, (steps, numbers)) in prop_oneof![4 => 1u8..=4, 1 => 5u8..=13]
            .prop_flat_map(|blocks_log2| (Just(blocks_log2), steps(blocks_log2))),
        max_entries in prop::sample::select(ENTRIES.to_vec()),
    ) {
        compare(blocks_log2, max_entries, &steps, &numbers);
    }
}

/// The eight blocks of a large page, each used once. With fewer sets they share entries.
#[test]
fn a_large_page_is_in_as_many_sets_as_it_has_blocks() {
    let numbers: Vec<u64> = (16..24).collect();
    let pages = (0..8).map(|block| Page::new(block, 0, true));
    let mut steps: Vec<Step> = pages.map(Step::LookUp).collect();
    steps.push(Step::Invalidate(Page::new(3, 0, true)));
    let tlbs = compare(3, 2, &steps, &numbers);
    let entries: Vec<_> = (0..LEVELS).map(|level| [1 << level.min(3); MAX_WAYS]).collect();
    assert_eq!(tlbs.sets()[0].index, TwoSizesIndex::Small);
    assert_eq!(tlbs.sets()[0].large_misses, entries);
    assert_eq!(tlbs.sets()[0].invalidated, entries);
}

/// Blocks 0 and 1,024 of a large page share a set at every level, in which the page has one entry. They are used in
/// alternation between uses of small pages.
#[test]
fn blocks_that_agree_in_all_index_bits_share_every_entry() {
    let numbers = [0, 1024, 2048, 2049];
    let large = [Page::new(0, 0, true), Page::new(1, 0, true)];
    let small = [Page::new(2, 1, false), Page::new(3, 1, false)];
    let mut steps = Vec::new();
    for times in [1, 2, 3] {
        steps.extend(small.map(Step::LookUp));
        steps.push(Step::Alternate(large, times));
        steps.push(Step::Alternate([small[1], large[0]], times));
    }
    compare(11, 5, &steps, &numbers);
}
