use super::*;
use crate::touches::testing::{feed_runs, pages_in_program_time};
use octavo_oracle::NaiveWorkingSet;
use octavo_oracle::strategies::{RandomStream, few_pages, stream};
use octavo_trace::Stream;
use proptest::prelude::*;
use proptest::sample::subsequence;

fn some_sizes() -> impl Strategy<Value = Sizes> {
    let all: Vec<PageSize> = (12..=30).map(|l| PageSize::from_log2(l).unwrap()).collect();
    subsequence(all, 1..=11).prop_map(Sizes::new)
}

fn some_windows() -> impl Strategy<Value = Vec<u64>> {
    let window = prop_oneof![
        3 => 1u64..10, 3 => 1u64..200, 1 => 1u64..10_000, 1 => Just(1 << 62),
    ];
    prop::collection::vec(window, 1..5)
}

fn compare(random: &RandomStream, stream: Stream, sizes: &Sizes, windows: &[u64], batch: usize) {
    let mut kernel = WorkingSets::new(sizes.clone(), windows.to_vec());
    let runs = (stream, kernel.longest_gap_refs());
    let mut process = |runs: &[Run], rows: &Rows| kernel.process(runs, rows);
    let refs = feed_runs(&mut process, random, runs, sizes, batch);
    kernel.finish(refs);
    let mut expected = Vec::new();
    for page_size in sizes.iter() {
        for &window_refs in windows {
            let mut naive = NaiveWorkingSet::new(page_size, window_refs);
            for pages in pages_in_program_time(random, stream) {
                naive.reference(&pages);
            }
            expected.push(WorkingSet { page_size, window_refs, page_refs: naive.page_refs });
        }
    }
    assert_eq!(kernel.results(), expected, "{stream:?}");
}

proptest! {
    #![proptest_config(octavo_oracle::cases(96))]

    #[test]
    fn few_pages_match_brute_force_windows(
        random in few_pages(70, 0..60),
        sizes in some_sizes(),
        windows in some_windows(),
        batch in 1usize..70,
    ) {
        for stream in [Stream::Data, Stream::All] {
            compare(&random, stream, &sizes, &windows, batch);
        }
    }

    #[test]
    fn programs_match_brute_force_windows(
        random in stream(0..30),
        sizes in some_sizes(),
        windows in some_windows(),
        batch in 1usize..20,
    ) {
        for stream in [Stream::Fetch, Stream::Data, Stream::All] {
            compare(&random, stream, &sizes, &windows, batch);
        }
    }
}

/// For one window, fetches and data each reference a subset of the pages of both: each working set is at most that of
/// both, and their sum is at least that of both.
#[test]
fn the_working_set_of_both_streams_is_between_each_and_their_sum() {
    // Each page is loaded rarely while fetches continue, so that few references of data span a long time.
    let steps: Vec<_> = (0..400).map(|step| (step % 50, 1, false)).collect();
    let random = octavo_oracle::strategies::loads(&steps);
    let sizes = Sizes::new(vec![PageSize::BASE]);
    let page_refs = [Stream::Fetch, Stream::Data, Stream::All].map(|stream| {
        let mut kernel = WorkingSets::new(sizes.clone(), vec![20]);
        let runs = (stream, kernel.longest_gap_refs());
        let mut process = |runs: &[Run], rows: &Rows| kernel.process(runs, rows);
        let refs = feed_runs(&mut process, &random, runs, &sizes, 100);
        kernel.finish(refs);
        kernel.results()[0].page_refs
    });
    let [fetch, data, all] = page_refs;
    // Once the window is full, ten of the last 20 references are data, all to different pages.
    let filling: u128 = (1..20u128).map(|refs| refs / 2).sum();
    assert_eq!(data, filling + 10 * (800 - 19));
    assert_eq!(fetch, 800);
    assert_eq!(all, fetch + data);
}
