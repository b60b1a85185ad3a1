//! All sets and ways at once, compared with each TLB simulated alone.

use std::collections::HashMap;

use octavo_oracle::strategies::{Step, page_sequence, stream};
use octavo_oracle::{NaiveReferences, NaiveSets};
use octavo_trace::{Observer, StreamEnd, StreamIdentity};
use octavo_types::{Consumer, Instructions, ItemKind, PageNumber, PageSize};
use proptest::prelude::*;

use super::pages::Page;
use super::{
    Engine, MAX_SETS_LOG2, Machine, Misses, Nested, Scattered, SetIndex, SingleSets, Work,
};
use crate::lanes::{LEVELS, MAX_WAYS, run};
use crate::touches::testing::through_ring;
use crate::{Curves, CurvesConfig, Sizes, Stream};

const INDEXES: [SetIndex; 4] = [
    SetIndex::Bits { from: 0 },
    SetIndex::Bits { from: 3 },
    SetIndex::Bits { from: 60 },
    SetIndex::Xor,
];

/// Misses at `[s][w - 1]` of naive TLBs that look up these pages.
fn expected(index: SetIndex, numbers: &[u64]) -> Vec<[u64; MAX_WAYS]> {
    let misses = |level: usize, ways: usize| {
        let mut tlb = NaiveSets::new(1 << level, ways);
        let is_miss = |number: &&u64| {
            !tlb.access(index.set(**number, level as u8), PageNumber::new(**number))
        };
        numbers.iter().filter(is_miss).count() as u64
    };
    (0..LEVELS).map(|level| std::array::from_fn(|way| misses(level, way + 1))).collect()
}

/// The look-ups of pages in an engine.
struct LookUps<'a>(&'a mut Engine, &'a [Page], &'a mut Misses);

impl Work for LookUps<'_> {
    fn on<M: Machine>(self, machine: M) {
        let uses = self.1.iter().map(|page| (*page, 0));
        match self.0 {
            Engine::Nested(engine) => engine.use_pages(machine, 0, uses, self.2),
            Engine::Scattered(engine) => engine.use_pages(machine, 0, uses, self.2),
        }
    }
}

/// The misses that an engine counts, with the pages in `batches` batches.
fn found(
    instructions: Instructions,
    index: SetIndex,
    mut engine: Engine,
    numbers: &[u64],
    batches: usize,
) -> Vec<[u64; MAX_WAYS]> {
    let mut ids = HashMap::new();
    let (mut pages, mut misses) = (Vec::new(), Misses::default());
    for &number in numbers {
        let next = ids.len() as u32;
        let id = *ids.entry(number).or_insert(next);
        if let Engine::Scattered(engine) = &mut engine {
            engine.know(index, number, id);
        }
        pages.push(Page::new(id, index.set(number, MAX_SETS_LOG2) as u32));
    }
    for batch in pages.chunks(pages.len().div_ceil(batches)) {
        run(instructions, LookUps(&mut engine, batch, &mut misses));
    }
    if let Engine::Scattered(engine) = engine {
        misses = engine.misses(&misses);
    }
    misses.missed(MAX_SETS_LOG2)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    #[test]
    fn every_tlb_is_exact(numbers in page_sequence(), batches in 1usize..4) {
        for index in INDEXES {
            let expected = expected(index, &numbers);
            for instructions in Instructions::all() {
                let scattered = Engine::Scattered(Scattered::new());
                let got = found(instructions, index, scattered, &numbers, batches);
                prop_assert_eq!(&got, &expected, "{} {:?} scattered", instructions, index);
                if index != SetIndex::Xor {
                    let nested = Engine::Nested(Nested::new());
                    let got = found(instructions, index, nested, &numbers, batches);
                    prop_assert_eq!(&got, &expected, "{} {:?}", instructions, index);
                }
            }
        }
    }
}

/// The numbers of the pages of `size` that the references of a stream touch, in order. A reference that spans two
/// pages touches both.
fn page_numbers(references: &NaiveReferences, stream: Stream, size: PageSize) -> Vec<u64> {
    let mut numbers = Vec::new();
    for reference in &references.references {
        let is_fetch = reference.kind == ItemKind::Fetch;
        if !(stream == Stream::All || (stream == Stream::Fetch) == is_fetch) {
            continue;
        }
        let first = reference.addr.raw() >> size.log2();
        let last = (reference.addr.raw() + u64::from(reference.size_bytes) - 1) >> size.log2();
        for _ in 0..if reference.kind == ItemKind::Modify { 2 } else { 1 } {
            numbers.extend(first..=last);
        }
    }
    numbers
}

proptest! {
    #![proptest_config(octavo_oracle::cases(48))]

    #[test]
    fn curves_equal_the_misses_of_every_tlb(
        random in stream(1..250),
        index in prop::sample::select(INDEXES.to_vec()),
        max_sets_log2 in 0u8..=MAX_SETS_LOG2,
        (single_sets_log2, ways) in (0u8..=MAX_SETS_LOG2, 1usize..=MAX_WAYS),
    ) {
        let sizes = Sizes::new([12, 14, 21].map(|log2| PageSize::from_log2(log2).unwrap()).into());
        let streams = [Stream::Fetch, Stream::Data, Stream::All];
        let mut references = NaiveReferences::default();
        random.play(&mut references);
        let expected = streams.map(|stream| {
            let misses = |size| expected(index, &page_numbers(&references, stream, size));
            sizes.iter().map(misses).collect::<Vec<_>>()
        });
        for instructions in Instructions::all() {
            let mut curves = Curves::new(&CurvesConfig {
                set_indexes: vec![index],
                max_sets_log2,
                instructions,
                ..CurvesConfig::nothing(sizes.clone(), streams.to_vec())
            });
            through_ring(&random, &mut curves);
            curves.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
            for (result, expected) in curves.results().iter().zip(&expected) {
                prop_assert_eq!(result.sets.len(), sizes.len());
                for (curve, (size, expected)) in result.sets.iter().zip(sizes.iter().zip(expected)) {
                    prop_assert_eq!((curve.page_size, curve.index), (size, index));
                    prop_assert_eq!(&curve.misses, &expected[..=usize::from(max_sets_log2)]);
                }
            }
            for (stream, expected) in streams.iter().zip(&expected) {
                for (size, expected) in sizes.iter().zip(expected) {
                    let mut single = SingleSets::new(
                        *stream, size, index, single_sets_log2, ways, instructions,
                    );
                    let (first, rest) = random.steps.split_at(random.steps.len() / 2);
                    for step in first {
                        if let Step::Segment(segment, addresses) = step {
                            single.segment(&random.segments[*segment], addresses);
                        }
                    }
                    single.misses();
                    for step in rest {
                        if let Step::Segment(segment, addresses) = step {
                            single.segment(&random.segments[*segment], addresses);
                        }
                    }
                    prop_assert_eq!(
                        single.misses(), expected[usize::from(single_sets_log2)][ways - 1]
                    );
                }
            }
        }
    }
}
