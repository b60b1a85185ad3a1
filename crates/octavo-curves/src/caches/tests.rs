//! All caches at once, compared with each cache simulated alone.

use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_oracle::{NaiveReferences, NaiveSets};
use octavo_trace::{Relocation, Stream};
use octavo_types::{AddrRange, Instructions, ItemKind, PageNumber, VirtAddr};
use proptest::prelude::*;

use super::*;
use crate::lanes::MAX_WAYS;
use crate::sizes::Sizes;
use crate::touches::Rows;
use crate::touches::testing::naive;

const SIZES: [u64; 4] = [16, 32, 64, 4096];
const STREAMS: [Stream; 3] = [Stream::Fetch, Stream::Data, Stream::All];

/// The number of each line that is looked up, in order; equal numbers are equal lines.
fn lines(random: &RandomStream, stream: Stream, line_bytes: u64) -> Vec<u64> {
    let mut list = NaiveReferences::default();
    random.play(&mut list);
    list.lines(naive(stream), line_bytes)
}

/// The misses of one cache.
fn misses(lines: &[u64], sets: usize, ways: usize) -> u64 {
    let mut cache = NaiveSets::new(sets, ways);
    let is_miss = |line: &&u64| !cache.access(**line as usize % sets, PageNumber::new(**line));
    lines.iter().filter(is_miss).count() as u64
}

fn everything_moved(pages: u64) -> Relocation {
    Relocation::new(vec![(AddrRange::new(VirtAddr::NULL, u64::MAX), pages << 12)])
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn each_cache_has_the_misses_of_its_own_simulation(
        random in stream(0..200), sizes in proptest::sample::subsequence(SIZES.to_vec(), 1..=4),
        batch_steps in 1usize..20, moved in 0u64..4,
    ) {
        let sizes: Vec<_> = sizes.into_iter().map(|bytes| LineSize::new(bytes).unwrap()).collect();
        for (stream, instructions) in STREAMS.iter().flat_map(|stream| {
            Instructions::all().into_iter().map(move |instructions| (*stream, instructions))
        }) {
            let pages = Sizes::new(vec![octavo_types::PageSize::BASE]);
            let mut rows = Rows::new(pages, everything_moved(moved));
            let mut splitter = LineSplitter::new(stream, &sizes).unwrap();
            let mut all: Vec<_> =
                sizes.iter().map(|size| CacheSets::new(*size, instructions)).collect();
            let mut batch = LineBatch::default();
            for (number, step) in random.steps.iter().enumerate() {
                if let Step::Segment(index, addresses) = step {
                    splitter.segment(&random.segments[*index], addresses, &mut rows);
                }
                if number % batch_steps == 0 || number + 1 == random.steps.len() {
                    batch = splitter.take(batch);
                    for (place, caches) in all.iter_mut().enumerate() {
                        caches.process(&batch, splitter.smallest(), place, &rows);
                    }
                }
            }
            for caches in &all {
                let curves = caches.curves();
                let bytes = curves.line.bytes();
                let first = (moved << 12) / bytes;
                let lines: Vec<u64> =
                    lines(&random, stream, bytes).iter().map(|line| line + first).collect();
                prop_assert_eq!(curves.lookups, lines.len() as u64);
                for level in [0, 1, 2, 3, 5, 8, 12, MAX_CACHE_SETS_LOG2] {
                    for ways in [1, 2, 3, 4, 7, 8, MAX_WAYS] {
                        let expected = misses(&lines, 1 << level, ways);
                        let counted = curves.misses[usize::from(level)][ways - 1];
                        prop_assert_eq!(counted, expected, "{} B, 2^{} x {}", bytes, level, ways);
                    }
                }
            }
        }
    }
}

/// Lines by hand: with one set of two ways, the lines 1 2 1 3 miss three times.
#[test]
fn a_flush_drops_lines_and_keeps_counts() {
    let size = LineSize::new(64).unwrap();
    let mut caches = CacheSets::new(size, Instructions::PORTABLE);
    let mut rows = Rows::new(Sizes::new(vec![octavo_types::PageSize::BASE]), Relocation::default());
    let mut splitter = LineSplitter::new(Stream::Data, &[size]).unwrap();
    let item = |kind, size_bytes| octavo_types::Item::new(kind, size_bytes, VirtAddr::NULL);
    let load =
        octavo_types::Segment::new(vec![item(ItemKind::Fetch, 4), item(ItemKind::Load, 8)], vec![]);
    let load = load.unwrap();
    let mut play = |caches: &mut CacheSets, numbers: &[u64]| {
        for number in numbers {
            splitter.segment(&load, &[VirtAddr::new(number * 64)], &mut rows);
        }
        let batch = splitter.take(LineBatch::default());
        caches.process(&batch, size, 0, &rows);
        splitter.end_touch();
    };
    play(&mut caches, &[1, 2, 1, 3]);
    let misses = |caches: &CacheSets| {
        [(0, 1), (0, 2), (1, 1)]
            .map(|(level, ways): (usize, usize)| caches.curves().misses[level][ways - 1])
    };
    assert_eq!(misses(&caches), [4, 3, 3]);
    caches.flush();
    play(&mut caches, &[3]);
    assert_eq!(misses(&caches), [5, 4, 4]);
    assert_eq!(caches.curves().lookups, 5);
}
