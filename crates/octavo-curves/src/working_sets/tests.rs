use super::*;
use crate::touches::testing::{base_pages, feed};
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
    let refs = feed(&mut kernel, random, stream, sizes, batch);
    kernel.finish(refs);
    let mut expected = Vec::new();
    for page_size in sizes.iter() {
        for &window_refs in windows {
            let mut naive = NaiveWorkingSet::new(page_size, window_refs);
            for pages in base_pages(random, stream) {
                naive.reference(&pages);
            }
            expected.push(WorkingSet { page_size, window_refs, page_refs: naive.page_refs });
        }
    }
    assert_eq!(kernel.results(), expected, "{stream:?}");
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn a_few_pages_are_as_in_brute_force_windows(
        random in few_pages(70, 0..60),
        sizes in some_sizes(),
        windows in some_windows(),
        batch in 1usize..70,
    ) {
        compare(&random, Stream::Data, &sizes, &windows, batch);
    }

    #[test]
    fn programs_are_as_in_brute_force_windows(
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
