//! The study equals the naive one, count for count.

use octavo_curves::{Curve, RegionResult, Sizes, Stream, Study, StudyConfig};
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_oracle::{NaiveResidency, NaiveStudy, Stream as NaiveStream};
use octavo_trace::{Observer, Relocation, Start, StreamEnd, StreamIdentity, WordConsumer};
use octavo_types::{AddrRange, Consumer, Event, MapSource, PageSize, Protection, VirtAddr};
use proptest::prelude::*;
use proptest::sample::subsequence;

use crate::play_through_ring;

const STREAMS: [(Stream, NaiveStream); 3] = [
    (Stream::Fetch, NaiveStream::Fetch),
    (Stream::Data, NaiveStream::Data),
    (Stream::All, NaiveStream::All),
];

fn page_sizes() -> impl Strategy<Value = Vec<PageSize>> {
    let all: Vec<PageSize> = (12..=30).map(|log2| PageSize::from_log2(log2).unwrap()).collect();
    subsequence(all, 1..=19)
}

fn levels() -> impl Strategy<Value = Vec<u32>> {
    let entries = prop_oneof![1u32..=4, 15u32..=18, 30u32..=70, 64u32..=90];
    prop::collection::vec(entries, 1..=3)
}

fn study(sizes: &[PageSize], levels: &[u32]) -> Study {
    Study::new(&StudyConfig {
        sizes: Sizes::new(sizes.to_vec()),
        fetch_levels: levels.to_vec(),
        data_levels: levels.to_vec(),
        machine: None,
        core_cache_bytes: None,
        native_layout: true,
        allocation_wrappers: Vec::new(),
    })
}

fn naive<'a>(sizes: &[PageSize], levels: &[u32], relocation: &'a Relocation) -> NaiveStudy<'a> {
    let entries: Vec<usize> = levels.iter().map(|entries| *entries as usize).collect();
    NaiveStudy::new(sizes, &entries, |addr| relocation.address(addr))
}

fn curves(result: &RegionResult, stream: Stream) -> &[Curve] {
    if stream == Stream::Fetch { &result.fetch_curves } else { &result.data_curves }
}

/// Compares a whole process's result with the naive study's.
fn compare_totals(result: &RegionResult, naive: &NaiveStudy) {
    for (stream, naive_stream) in &STREAMS[..2] {
        for curve in curves(result, *stream) {
            let level = curve.level as usize - 1;
            let expected = naive.lookups(*naive_stream, curve.page_size, level);
            assert_eq!(
                (curve.accesses, curve.misses),
                (expected.accesses, expected.misses),
                "{stream:?} {curve:?}"
            );
        }
    }
    for footprint in &result.footprints {
        let (_, stream) = STREAMS.iter().find(|(s, _)| *s == footprint.stream).unwrap();
        let pages = naive.pages(*stream, footprint.page_size).len() as u64;
        assert_eq!(footprint.touched_bytes, pages * footprint.page_size.bytes(), "{footprint:?}");
    }
}

/// Moves all of user space by an odd number of base pages. (One shift suffices: the parts of a program's
/// address space lie far apart, and no reference spans two of them.)
fn far_relocation() -> Relocation {
    let everything = AddrRange::new(VirtAddr::NULL, 1 << 62);
    Relocation::new(vec![(everything, 0x5555_5515_4000 + 0x1000)])
}

proptest! {
    #![proptest_config(octavo_oracle::cases(64))]

    #[test]
    fn counts_misses_and_footprints_are_exact(
        random in stream(1..400), sizes in page_sizes(), levels in levels(), moved in any::<bool>(),
    ) {
        let relocation = if moved { far_relocation() } else { Relocation::default() };
        let mut study = study(&sizes, &levels);
        study.started(&Start { relocation: relocation.clone(), ..Start::default() });
        let mut naive = naive(&sizes, &levels, &relocation);
        let mut residency = NaiveResidency::new(&sizes, |addr| relocation.address(addr));
        play_through_ring(&random, &mut study);
        random.play(&mut naive);
        random.play(&mut residency);
        study.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);

        let (counts, expected) = (study.counts(), naive.counts());
        prop_assert_eq!(
            (counts.instructions, counts.loads, counts.stores, counts.modifies),
            (expected.instructions, expected.loads, expected.stores, expected.modifies)
        );
        let total = study.total();
        compare_totals(&total, &naive);
        for footprint in total.footprints.iter().filter(|f| f.stream == Stream::All) {
            let peak = residency.peak_pages(footprint.page_size) * footprint.page_size.bytes();
            prop_assert_eq!(footprint.peak_resident_bytes, Some(peak), "{:?}", footprint);
        }
    }

    #[test]
    fn regions_are_exact_and_add_up(
        random in stream(1..300), sizes in page_sizes(), levels in levels(),
    ) {
        // Every 4 GiB of the address space is a file of its own, mapped before the first execution and never
        // changed: no reference of 64 bytes can lie in two files and in one large page.
        let quiet = RandomStream {
            segments: random.segments.clone(),
            steps: random.steps.into_iter().filter(|s| matches!(s, Step::Segment(..))).collect(),
        };
        let relocation = Relocation::default();
        let mut study = study(&sizes, &levels);
        for file in 0..64u64 {
            study.event(&Event::Map {
                range: AddrRange::new(VirtAddr::new(file << 32), 1 << 32),
                protection: Protection { read: true, write: false, execute: false },
                source: MapSource::File { path: format!("/file/{file}"), offset_bytes: 0 },
                flags: 2,
            });
        }
        let region_of = |addr: VirtAddr| if addr.raw() >> 38 == 0 { (addr.raw() >> 32) as u32 } else { 99 };
        let mut naive = naive(&sizes, &levels, &relocation).with_regions(region_of);
        quiet.play(&mut study);
        quiet.play(&mut naive);

        let total = study.total();
        let (mut fetches, mut data) = (0, 0);
        for (region, result) in study.regions() {
            let number = region.path.as_ref().map_or(99, |path| path[6..].parse().unwrap());
            let counts = naive.region_counts(number);
            prop_assert_eq!(result.fetch_references, counts.instructions);
            prop_assert_eq!(result.data_references, counts.loads + counts.stores);
            for (stream, naive_stream) in &STREAMS[..2] {
                for curve in curves(&result, *stream) {
                    let level = curve.level as usize - 1;
                    let expected = naive.region_lookups(number, *naive_stream, curve.page_size, level);
                    prop_assert_eq!((curve.accesses, curve.misses), (expected.accesses, expected.misses));
                }
            }
            for footprint in &result.footprints {
                let (_, stream) = STREAMS.iter().find(|(s, _)| *s == footprint.stream).unwrap();
                let pages = naive.region_pages(number, *stream, footprint.page_size).len() as u64;
                prop_assert_eq!(footprint.touched_bytes, pages * footprint.page_size.bytes());
            }
            fetches += result.fetch_references;
            data += result.data_references;
        }
        prop_assert_eq!((fetches, data), (total.fetch_references, total.data_references));
    }
}
