//! All sizes at once, compared with TLBs simulated one by one.

use super::*;
use crate::touches::Splitter;
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_oracle::{NaiveReferences, NaiveTlb};
use octavo_trace::Relocation;
use octavo_trace::Stream;
use octavo_types::{Item, ItemKind, PageNumber, Segment, VirtAddr};
use proptest::prelude::*;
use proptest::sample::subsequence;
use std::collections::BTreeSet;

fn sizes() -> impl Strategy<Value = Vec<PageSize>> {
    let all: Vec<PageSize> = (12..=30).map(|log2| PageSize::from_log2(log2).unwrap()).collect();
    subsequence(all, 1..=19)
}

/// The kernel's curves of a stream, in batches of `batch_steps` steps. Without `instructions`, plain arrays are used,
/// as on other architectures.
fn curves(
    random: &RandomStream,
    stream: Stream,
    batch_steps: usize,
    (sizes, max_entries): (&[PageSize], u32),
    instructions: Option<Instructions>,
) -> Vec<StackCurve> {
    let sizes = Sizes::new(sizes.to_vec());
    let mut rows = Rows::new(sizes.clone(), Relocation::default());
    let (mut splitter, mut batch) = (Splitter::new(stream), Touches::default());
    let portable = Instructions::PORTABLE;
    let mut stack = Stack::new(sizes, max_entries, instructions.unwrap_or(portable));
    for (number, step) in random.steps.iter().enumerate() {
        if let Step::Segment(index, addresses) = step {
            splitter.segment(&random.segments[*index], addresses, &mut rows);
        }
        if number % batch_steps == 0 || number + 1 == random.steps.len() {
            batch = splitter.take(batch);
            match instructions {
                Some(_) => stack.process(&batch, &rows),
                None => stack.process_with(vectors::Plain, &batch.touches, &rows),
            }
        }
    }
    stack.curves()
}

fn all_instructions() -> impl Iterator<Item = Option<Instructions>> {
    Instructions::all().into_iter().map(Some).chain([None])
}

/// Compares every curve with TLBs of some numbers of entries.
fn compare(random: &RandomStream, stream: Stream, curves: &[StackCurve], entries: &[u32]) {
    let mut list = NaiveReferences::default();
    random.play(&mut list);
    let in_stream = list.references.iter().filter(|reference| {
        stream == Stream::All || (stream == Stream::Fetch) == (reference.kind == ItemKind::Fetch)
    });
    // A modify is a load and then a store: two references, also where it spans two pages.
    let looked_up: Vec<(u64, u64)> = in_stream
        .flat_map(|reference| {
            let first = reference.addr.raw();
            let last = first + u64::from(reference.size_bytes) - 1;
            vec![(first, last); if reference.kind == ItemKind::Modify { 2 } else { 1 }]
        })
        .collect();
    for curve in curves {
        let log2 = curve.page_size.log2();
        let pages: Vec<u64> =
            looked_up.iter().flat_map(|(first, last)| first >> log2..=last >> log2).collect();
        let distinct = pages.iter().collect::<BTreeSet<_>>().len() as u64;
        assert_eq!(curve.pages, distinct, "{}", curve.page_size);
        for &entries in entries.iter().filter(|entries| **entries as usize <= curve.misses.len()) {
            let mut tlb = NaiveTlb::new(entries as usize);
            let misses = pages.iter().filter(|page| !tlb.access(PageNumber::new(**page))).count();
            assert_eq!(
                curve.misses[entries as usize - 1],
                misses as u64,
                "{entries} entries of {}",
                curve.page_size
            );
        }
    }
}

/// Loads of one byte in each of `pages`, by one instruction.
fn loads(pages: &[u64]) -> RandomStream {
    let item = |kind, addr| Item::new(kind, 1, VirtAddr::new(addr));
    let items = vec![item(ItemKind::Fetch, 0x40_0000), item(ItemKind::Load, 0)];
    let steps = pages.iter().map(|page| Step::Segment(0, vec![VirtAddr::new(page << 12)]));
    RandomStream { segments: vec![Segment::new(items, vec![]).unwrap()], steps: steps.collect() }
}

/// Page numbers of loops over a few pages, alternations, and random pages.
fn pages() -> impl Strategy<Value = Vec<u64>> {
    let run = prop_oneof![
        (1u64..200, 1u64..120, 1u64..20, 1usize..300).prop_map(|(first, pages, stride, count)| {
            (0..count as u64).map(|step| first + step % pages * stride).collect()
        }),
        (1u64..60, 1u64..60, 1usize..40).prop_map(|(a, b, count)| {
            (0..count).map(|step| if step % 2 == 0 { a } else { b }).collect()
        }),
        prop::collection::vec(1u64..100, 1..200),
        prop::collection::vec(1u64..1 << 35, 1..20),
    ];
    prop::collection::vec(run, 1..12).prop_map(|runs: Vec<Vec<u64>>| runs.concat())
}

const SOME: [u32; 19] = [1, 2, 3, 4, 5, 8, 9, 15, 16, 17, 18, 23, 24, 25, 33, 50, 64, 100, 4096];

proptest! {
    #![proptest_config(octavo_oracle::cases(128))]

    #[test]
    fn all_entries_are_exact_on_streams(
        random in stream(1..200),
        batch_steps in 1usize..30,
        sizes in sizes(),
        max_entries in prop_oneof![1u32..40, 41u32..=MAX_ENTRIES],
    ) {
        for stream in [Stream::Fetch, Stream::Data, Stream::All] {
            let mut all = all_instructions().map(|instructions| {
                curves(&random, stream, batch_steps, (&sizes, max_entries), instructions)
            });
            let first = all.next().unwrap();
            prop_assert!(first.iter().all(|curve| curve.misses.len() == max_entries as usize));
            compare(&random, stream, &first, &SOME);
            for other in all {
                prop_assert_eq!(&other, &first);
            }
        }
    }

    /// Longer streams, with loops over more pages than the lists hold.
    #[test]
    fn all_entries_are_exact_on_loops(
        pages in pages(),
        batch_steps in 1usize..4000,
        sizes in sizes(),
        max_entries in prop_oneof![17u32..80, Just(MAX_ENTRIES)],
    ) {
        let random = loads(&pages);
        let mut all = all_instructions().map(|instructions| {
            curves(&random, Stream::Data, batch_steps, (&sizes, max_entries), instructions)
        });
        let first = all.next().unwrap();
        let everything: Vec<u32> = (1..=max_entries.min(80)).collect();
        compare(&random, Stream::Data, &first[..1], &everything);
        compare(&random, Stream::Data, &first, &SOME);
        for other in all {
            prop_assert_eq!(&other, &first);
        }
    }
}

/// Thousands of random pages, so that TLBs of many entries differ.
#[test]
fn deep_stacks_are_exact_too() {
    let mut random = 1u64;
    let mut page = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // Half of the references are to few pages, the other half to many.
        (random >> 33) % if random >> 63 == 0 { 2800 } else { 200 } + 1
    };
    let pages: Vec<u64> = (0..16_000).map(|_| page()).collect();
    let random = loads(&pages);
    for log2 in [vec![12], vec![12, 13, 15]] {
        let sizes: Vec<PageSize> =
            log2.into_iter().map(|log2| PageSize::from_log2(log2).unwrap()).collect();
        for instructions in all_instructions() {
            let curves = curves(&random, Stream::Data, 5000, (&sizes, MAX_ENTRIES), instructions);
            compare(
                &random,
                Stream::Data,
                &curves,
                &[22, 23, 24, 25, 200, 1000, 2000, MAX_ENTRIES],
            );
        }
    }
}
