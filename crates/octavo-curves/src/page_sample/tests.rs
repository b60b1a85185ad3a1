//! Counts of kept pages compared with naive lists, and estimates compared with the exact kernels.

use super::estimate::Depths;
use super::*;
use crate::stack::{MAX_ENTRIES, Stack};
use crate::touches::testing::{feed, feed_runs, pages_in_program_time};
use crate::working_sets::{WorkingSet, WorkingSets};
use octavo_oracle::strategies::{RandomStream, few_pages, stream};
use octavo_oracle::{NaiveSampledDepths, NaiveWorkingSet};
use octavo_trace::Stream;
use octavo_types::{Instructions, PageNumber};
use proptest::prelude::*;
use proptest::sample::subsequence;

fn some_sizes() -> impl Strategy<Value = Sizes> {
    let all: Vec<PageSize> = (12..=30).map(|l| PageSize::from_log2(l).unwrap()).collect();
    subsequence(all, 1..=11).prop_map(Sizes::new)
}

fn some_windows() -> impl Strategy<Value = Vec<u64>> {
    prop::collection::vec(prop_oneof![1u64..10, 1u64..200, Just(1 << 62)], 0..4)
}

fn some_stream() -> impl Strategy<Value = RandomStream> {
    prop_oneof![few_pages(70, 0..60), stream(0..30)]
}

/// The kernel at the end of a stream.
fn sampled(
    random: &RandomStream,
    stream: Stream,
    sample: PageSample,
    (sizes, max_entries, windows_refs): (&Sizes, u32, &[u64]),
    batch_steps: usize,
) -> SampledPages {
    let mut kernel = SampledPages::new(sample, sizes, max_entries, windows_refs);
    let runs = (stream, kernel.longest_gap_refs());
    let mut process = |runs: &[Run], rows: &Rows| kernel.process(runs, rows);
    let refs = feed_runs(&mut process, random, runs, sizes, batch_steps);
    kernel.finish(refs);
    kernel
}

/// All working sets of a stream, exactly.
fn exact_sets(
    random: &RandomStream,
    stream: Stream,
    (sizes, windows_refs): (&Sizes, &[u64]),
    batch_steps: usize,
) -> Vec<WorkingSet> {
    let mut kernel = WorkingSets::new(sizes.clone(), windows_refs.to_vec());
    let runs = (stream, kernel.longest_gap_refs());
    let mut process = |runs: &[Run], rows: &Rows| kernel.process(runs, rows);
    let refs = feed_runs(&mut process, random, runs, sizes, batch_steps);
    kernel.finish(refs);
    kernel.results()
}

/// Checks depths, kept pages and page references in each window, by group, against naive lists.
fn check_counts(
    random: &RandomStream,
    stream: Stream,
    sample: PageSample,
    (sizes, windows_refs): (&Sizes, &[u64]),
    kernel: &SampledPages,
) {
    let references = pages_in_program_time(random, stream);
    for (number, page_size) in sizes.iter().enumerate() {
        let shift = page_size.base_shift();
        let group = |base: &PageNumber| sample.group(page_size, base.raw() >> shift);
        let mut naive = NaiveSampledDepths::default();
        for base in references.iter().flatten() {
            naive.touch(PageNumber::new(base.raw() >> shift), group(base));
        }
        let one_size = &kernel.sizes[number];
        let (depths, kept) = one_size.counted();
        let mut expected = Depths::new(depths.len());
        for ((group, others), times) in &naive.found {
            for _ in 0..*times {
                match *others < depths.len() {
                    true => expected.found(*others as u32 + 1, usize::from(*group)),
                    false => expected.deeper(usize::from(*group)),
                }
            }
        }
        assert_eq!(depths, &expected, "{page_size}");
        for (group, kept) in (0u8..).zip(kept) {
            assert_eq!(*kept, naive.kept.get(&group).copied().unwrap_or(0), "{page_size}");
        }
        for &window_refs in windows_refs {
            let mut expected = [0.0; GROUPS];
            for (wanted, expected) in (0u8..).zip(&mut expected) {
                if !naive.kept.contains_key(&wanted) {
                    continue;
                }
                let mut naive = NaiveWorkingSet::new(page_size, window_refs);
                for pages in &references {
                    let in_group = pages.iter().filter(|page| group(page) == Some(wanted));
                    naive.reference(&in_group.copied().collect::<Vec<_>>());
                }
                *expected = naive.page_refs as f64;
            }
            assert_eq!(one_size.page_refs(window_refs), expected, "{page_size} {window_refs}");
        }
    }
}

proptest! {
    // Naive windows are slow, and there is one for each group.
    #![proptest_config(octavo_oracle::cases(48))]

    #[test]
    fn kept_pages_are_counted_as_in_naive_lists(
        random in some_stream(),
        sizes in some_sizes(),
        windows in some_windows(),
        rate in prop_oneof![Just(1.0), 0.05f64..0.9],
        seed in any::<u64>(),
        max_entries in prop_oneof![1u32..5, 6u32..40, Just(MAX_ENTRIES)],
        batch_steps in 1usize..70,
    ) {
        let sample = PageSample { rate, seed };
        for stream in [Stream::Fetch, Stream::Data, Stream::All] {
            let requested = (&sizes, max_entries, &windows[..]);
            let kernel = sampled(&random, stream, sample, requested, batch_steps);
            check_counts(&random, stream, sample, (&sizes, &windows), &kernel);
        }
    }

    /// Every value is exact, and every interval has zero width.
    #[test]
    fn a_sample_of_all_pages_is_exact(
        random in some_stream(),
        sizes in some_sizes(),
        windows in some_windows(),
        seed in any::<u64>(),
        max_entries in prop_oneof![1u32..5, 6u32..40, Just(MAX_ENTRIES)],
        batch_steps in 1usize..70,
    ) {
        let sample = PageSample { rate: 1.0, seed };
        for stream in [Stream::Fetch, Stream::Data, Stream::All] {
            let requested = (&sizes, max_entries, &windows[..]);
            let results = sampled(&random, stream, sample, requested, batch_steps).results();
            let mut stack = Stack::new(sizes.clone(), max_entries, Instructions::PORTABLE);
            feed(&mut stack, &random, stream, &sizes, batch_steps);
            let exactly = |value: f64| Some(Estimate { value, low: value, high: value });
            let windows_of_sizes = (&sizes, &windows[..]);
            let mut page_refs =
                exact_sets(&random, stream, windows_of_sizes, batch_steps).into_iter();
            let expected: Vec<SampledSize> = stack.curves().into_iter().map(|curve| SampledSize {
                page_size: curve.page_size,
                pages: curve.pages,
                kept_pages: curve.pages,
                misses: curve.misses.iter().map(|misses| exactly(*misses as f64)).collect(),
                working_sets: windows.iter().map(|window| {
                    (*window, exactly(page_refs.next().unwrap().page_refs as f64))
                }).collect(),
            }).collect();
            prop_assert_eq!(results, expected);
        }
    }
}

/// Estimates of one number with many seeds, compared with its exact value.
#[derive(Default)]
struct Judged {
    truth: f64,
    values: Vec<f64>,
    held: usize,
}

impl Judged {
    fn add(&mut self, truth: f64, estimate: Option<Estimate>) {
        let estimate = estimate.expect("the sample is large enough");
        self.truth = truth;
        self.values.push(estimate.value);
        self.held += usize::from((estimate.low..=estimate.high).contains(&truth));
    }

    /// The error of the mean, in standard errors of the mean.
    fn errors_off(&self) -> f64 {
        let n = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / n;
        let squares: f64 = self.values.iter().map(|value| (value - mean).powi(2)).sum();
        (mean - self.truth) / (squares / (n - 1.0) / n).sqrt()
    }
}

/// Random loads: about half from `pages` pages, the others from the first `used_more` pages.
fn random_loads(pages: u64, used_more: u64, loads: usize) -> RandomStream {
    let mut state = 7;
    let mut draw = || {
        state = splitmix(state);
        let page = state >> 8;
        (page % if state % 2 == 0 { used_more } else { pages }, 1, false)
    };
    let steps: Vec<_> = (0..loads).map(|_| draw()).collect();
    octavo_oracle::strategies::loads(&steps)
}

/// Working sets and misses of two page sizes, from samples with many seeds.
fn judged(random: &RandomStream) -> Vec<Judged> {
    const WINDOW_REFS: u64 = 500;
    const ENTRIES: [usize; 3] = [100, 300, 600];
    let sizes = Sizes::new(vec![PageSize::BASE, PageSize::from_log2(13).unwrap()]);
    let mut stack = Stack::new(sizes.clone(), 1000, Instructions::PORTABLE);
    feed(&mut stack, random, Stream::Data, &sizes, 1000);
    let curves = stack.curves();
    let exact_sets = exact_sets(random, Stream::Data, (&sizes, &[WINDOW_REFS]), 1000);
    let mut judged: Vec<Judged> = Vec::new();
    judged.resize_with(sizes.len() * (ENTRIES.len() + 1), Judged::default);
    for seed in 0..SEEDS {
        let requested = (&sizes, 1000, &[WINDOW_REFS][..]);
        let sample = PageSample { rate: 0.2, seed };
        let results = sampled(random, Stream::Data, sample, requested, 1000).results();
        let mut judged = judged.iter_mut();
        for ((estimated, exact), sets) in results.iter().zip(&curves).zip(&exact_sets) {
            assert_eq!(estimated.pages, exact.pages);
            judged.next().unwrap().add(sets.page_refs as f64, estimated.working_sets[0].1);
            for entries in ENTRIES {
                let truth = exact.misses[entries - 1] as f64;
                judged.next().unwrap().add(truth, estimated.misses[entries - 1]);
            }
        }
    }
    judged
}

/// Number of seeds. Seeds are fixed, so that these tests are deterministic.
const SEEDS: u64 = 400;

/// Fails if a threshold is off by one kept page, or a scale by a tenth.
#[test]
fn estimates_are_unbiased_if_all_depths_are_equally_likely() {
    for (at, judged) in judged(&random_loads(2000, 2000, 20_000)).iter().enumerate() {
        // Four standard errors: of 16,000 correct estimates one would fail.
        assert!(judged.errors_off().abs() < 4.0, "number {at}: {} off", judged.errors_off());
    }
}

/// Where the curve bends, errors of depths cause a bias, which must be small compared with the error. Fails if
/// intervals are computed from half the error.
#[test]
fn intervals_hold_the_exact_number() {
    for (at, judged) in judged(&random_loads(2000, 250, 20_000)).iter().enumerate() {
        let share = judged.held as f64 / SEEDS as f64;
        assert!(share > 0.92, "number {at}: {share} of intervals hold it");
        // In standard errors of one estimate, not of the mean.
        let off = judged.errors_off() / (SEEDS as f64).sqrt();
        assert!(off.abs() < 0.4, "number {at}: {off} off");
    }
}

#[test]
fn small_samples_give_no_estimate() {
    let sizes = Sizes::new(vec![PageSize::BASE]);
    let random = random_loads(400, 50, 8000);
    let sample = |rate| {
        let requested = (&sizes, 1000, &[100][..]);
        let sample = PageSample { rate, seed: 1 };
        sampled(&random, Stream::Data, sample, requested, 1000).results().remove(0)
    };
    let few = sample(0.02);
    assert_eq!(few.pages, 400);
    assert!(few.kept_pages < 30, "{}", few.kept_pages);
    assert_eq!(few.working_sets, [(100, None)]);
    assert!(few.misses[..399].iter().all(Option::is_none));
    // A TLB that holds all pages misses once on each, and pages are counted exactly.
    let pages = Estimate { value: 400.0, low: 400.0, high: 400.0 };
    assert!(few.misses[399..].iter().all(|misses| *misses == Some(pages)));
    let more = sample(0.25);
    assert!(more.working_sets[0].1.is_some());
    let has_estimate: Vec<bool> = more.misses.iter().map(Option::is_some).collect();
    let first = has_estimate.iter().position(|has| *has).unwrap();
    // The first TLB that holds five kept pages on average, at the actual rate of the sample.
    let expected = (5.0 * 399.0 / (more.kept_pages - 1) as f64).ceil() as usize;
    assert_eq!(first + 1, expected);
    assert!(has_estimate[first..].iter().all(|has| *has));
}
