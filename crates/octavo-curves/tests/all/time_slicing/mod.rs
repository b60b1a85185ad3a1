//! Threads with TLBs of their own, processes that share TLBs, and context switches: curves equal
//! TLBs that are simulated one by one.

mod naive;

use std::collections::BTreeMap;
use std::num::NonZeroU64;

use naive::*;
use octavo_curves::{
    AtContextSwitch, CacheCurves, ClassesConfig, CoreCurves, Curves, CurvesConfig, LineSize,
    SetCurves, Sizes, StackCurve, Stream, StreamCurves, Threads, TwoSizesConfig, TwoSizesSets,
    TwoSizesStack,
};
use octavo_oracle::strategies::{RandomStream, Step, few_pages, stream};
use octavo_oracle::{NaiveStudy, NaiveTwoSizesTlb};
use octavo_trace::{Began, Observer, StreamEnd, StreamIdentity, TimeSlicedConsumer};
use octavo_types::{Event, Instructions, PageSize};
use proptest::prelude::*;

use crate::play_through_ring;

const STREAMS: [Stream; 3] = [Stream::Fetch, Stream::Data, Stream::All];

fn config(
    (flush_every, line_sizes): (Option<u64>, &[LineSize]),
    threads: Threads,
    at_context_switch: AtContextSwitch,
) -> CurvesConfig {
    let size = |log2| PageSize::from_log2(log2).unwrap();
    CurvesConfig {
        max_entries: *ENTRIES.last().unwrap() as u32,
        set_indexes: INDEXES.into(),
        max_sets_log2: SETS_LOG2,
        windows_refs: vec![WINDOW_REFS],
        two_sizes: vec![TwoSizesConfig {
            small: size(PAIR_LOG2.0),
            large: size(PAIR_LOG2.1),
            window_refs: WINDOW_REFS,
            threshold_blocks: THRESHOLD_BLOCKS,
            max_entries: *ENTRIES.last().unwrap() as u32,
            max_sets_log2: SETS_LOG2,
            windows_refs: vec![WINDOW_REFS],
        }],
        classes: Some(ClassesConfig {
            page_size: PageSize::BASE,
            larger: size(14),
            sets_log2: CLASSIFIED.0,
            ways: CLASSIFIED.1,
        }),
        line_sizes: line_sizes.to_vec(),
        threads,
        at_context_switch,
        flush_every_instructions: flush_every.and_then(NonZeroU64::new),
        ..CurvesConfig::nothing(Sizes::new(sizes().into()), STREAMS.into())
    }
}

/// All streams, and the context switches of each core.
struct Naive {
    flush_every: u64,
    streams: Vec<NaiveStreamCurves>,
    /// By core.
    instructions: BTreeMap<usize, u64>,
    flushed_at: BTreeMap<usize, u64>,
}

impl Naive {
    fn new((flush_every, line_sizes): (Option<u64>, &[LineSize])) -> Self {
        Naive {
            flush_every: flush_every.unwrap_or(u64::MAX),
            streams: (STREAMS.map(|stream| NaiveStreamCurves::new(stream, line_sizes.to_vec())))
                .into(),
            instructions: BTreeMap::new(),
            flushed_at: BTreeMap::new(),
        }
    }

    /// Runs a step on a core. Time is cut into slices of `flush_every` instructions; there is a context switch at the
    /// first segment that begins in a new slice.
    fn step(&mut self, random: &RandomStream, step: &Step, core: usize, space: u64) {
        let Step::Segment(index, addresses) = step else { return };
        let segment = &random.segments[*index];
        let executed = self.instructions.entry(core).or_default();
        let slice = self.flushed_at.entry(core).or_default();
        let flushes = *executed / self.flush_every > *slice;
        *slice = *executed / self.flush_every;
        *executed += u64::from(segment.instructions());
        for stream in &mut self.streams {
            if flushes {
                stream.flush(core);
            }
            stream.segment(segment, addresses, core, space);
        }
    }

    fn flush(&mut self, core: usize) {
        self.streams.iter_mut().for_each(|stream| stream.flush(core));
    }

    /// Compares the results of all streams, summed over cores.
    fn compare(&self, found: &[StreamCurves]) {
        assert_eq!(found.len(), self.streams.len());
        for (found, expected) in found.iter().zip(&self.streams) {
            let cores: Vec<&NaiveCore> = expected.cores.values().collect();
            assert_eq!(found.references, expected.references);
            compare_tlbs(&found.stack, &found.sets, &cores);
            assert_eq!(found.caches.len(), expected.lines.len());
            compare_caches(&found.caches, &cores);
            let tlbs: Vec<_> = (0..CORES).map(|core| expected.two_sizes_of(core)).collect();
            let pair = &found.two_sizes[0];
            compare_two_sizes(&pair.stack, &pair.sets, &tlbs);
            let naive = &expected.two_sizes;
            let [small_lookups, large_lookups] = expected.two_sizes_lookups;
            assert_eq!(
                [pair.small_lookups, pair.large_lookups, pair.promotions, pair.demotions],
                [small_lookups, large_lookups, naive.promotions, naive.demotions]
            );
            assert_eq!(
                [pair.blocks_copied, pair.blocks_zeroed],
                [naive.blocks_copied, naive.blocks_zeroed]
            );
            // The kernel's own tests compare the working sets of the other streams.
            if found.stream == Stream::All {
                assert_eq!(pair.working_set_byte_refs, [naive.working_set_byte_refs]);
            }
            for (found, expected) in found.working_sets.iter().zip(&expected.working_sets) {
                assert_eq!(found.page_refs, expected.page_refs, "{}", found.page_size);
            }
            let totals = || found.classes.iter().map(|classes| classes.total);
            let classified: u64 = totals().map(|total| total.misses()).sum();
            let compulsory: u64 = totals().map(|total| total.compulsory).sum();
            let misses = |core: &&NaiveCore| core.classified.as_ref().map_or(0, |tlb| tlb.misses);
            assert_eq!(classified, cores.iter().map(misses).sum::<u64>());
            assert_eq!(compulsory, cores.iter().map(|core| distinct(core, 12)).sum::<u64>());
        }
    }
}

fn distinct(core: &NaiveCore, log2: u8) -> u64 {
    core.pages.get(&log2).map_or(0, |pages| pages.len() as u64)
}

fn compare_tlbs(stack: &[StackCurve], sets: &[SetCurves], cores: &[&NaiveCore]) {
    for curve in stack {
        let log2 = curve.page_size.log2();
        assert_eq!(curve.pages, cores.iter().map(|core| distinct(core, log2)).sum::<u64>());
        for entries in ENTRIES {
            let misses =
                |core: &&NaiveCore| core.full.get(&(log2, entries)).map_or(0, |tlb| tlb.misses);
            let expected: u64 = cores.iter().map(misses).sum();
            assert_eq!(curve.misses[entries - 1], expected, "{entries} of {}", curve.page_size);
        }
    }
    for curve in sets {
        let which = INDEXES.iter().position(|index| *index == curve.index).unwrap();
        for sets_log2 in 0..=SETS_LOG2 {
            for ways in WAYS {
                let key = (which, curve.page_size.log2(), sets_log2, ways);
                let misses = |core: &&NaiveCore| core.sets.get(&key).map_or(0, |tlb| tlb.misses);
                let expected: u64 = cores.iter().map(misses).sum();
                assert_eq!(curve.misses[usize::from(sets_log2)][ways - 1], expected, "{key:?}");
            }
        }
    }
}

fn compare_caches(caches: &[CacheCurves], cores: &[&NaiveCore]) {
    for curves in caches {
        let line_bytes = curves.line.bytes();
        let lookups = cores.iter().filter_map(|core| core.line_lookups.get(&line_bytes));
        assert_eq!(curves.lookups, lookups.sum::<u64>());
        for sets_log2 in 0..=SETS_LOG2 {
            for ways in WAYS {
                let key = (line_bytes, sets_log2, ways);
                let misses =
                    |core: &&NaiveCore| core.caches.get(&key).map_or(0, |cache| cache.misses);
                let expected: u64 = cores.iter().map(misses).sum();
                assert_eq!(curves.misses[usize::from(sets_log2)][ways - 1], expected, "{key:?}");
            }
        }
    }
}

fn compare_two_sizes(stack: &TwoSizesStack, sets: &[TwoSizesSets], cores: &[&[NaiveTwoSizesTlb]]) {
    let mut number = 0;
    let mut next = || {
        number += 1;
        cores.iter().fold([0; 3], |sum, tlbs| {
            let NaiveTwoSizesTlb { small_misses, large_misses, invalidated, .. } = tlbs[number - 1];
            [sum[0] + small_misses, sum[1] + large_misses, sum[2] + invalidated]
        })
    };
    for entries in ENTRIES {
        let TwoSizesStack { small_misses, large_misses, invalidated } = stack;
        let found = [small_misses, large_misses, invalidated].map(|counts| counts[entries - 1]);
        assert_eq!(found, next(), "{entries} entries");
    }
    for ((index, _), sets) in TWO_SIZES_INDEXES.iter().zip(sets) {
        assert_eq!(sets.index, *index);
        for log2 in 0..=usize::from(SETS_LOG2) {
            for ways in WAYS {
                let found = [&sets.small_misses, &sets.large_misses, &sets.invalidated]
                    .map(|counts| counts[log2][ways - 1]);
                assert_eq!(found, next(), "{index:?} 2^{log2} x {ways}");
            }
        }
    }
}

/// A stream with starts and switches of threads.
fn threaded() -> impl Strategy<Value = RandomStream> {
    let random = prop_oneof![stream(0..60), few_pages(12, 0..90), few_pages(60, 0..90)];
    let events =
        prop::collection::vec((any::<prop::sample::Index>(), 1u32..6, any::<bool>()), 0..20);
    (random, events).prop_map(|(mut random, events)| {
        for (place, thread, starts) in events {
            let event = match starts {
                true => Event::ThreadStart { thread },
                false => Event::ThreadSwitch { thread },
            };
            random.steps.insert(place.index(random.steps.len() + 1), Step::Event(event));
        }
        random
    })
}

fn flush_every() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), (1u64..40).prop_map(Some), (1u64..2000).prop_map(Some)]
}

/// Line sizes in one case of six, since flushing all caches of a stream takes long.
fn line_sizes() -> impl Strategy<Value = Vec<LineSize>> {
    let all = LINES_BYTES.map(|bytes| LineSize::new(bytes).unwrap());
    prop_oneof![5 => Just(Vec::new()), 1 => Just(all.to_vec())]
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn context_switches_flush_tlbs(
        random in threaded(), flush_every in flush_every(), line_sizes in line_sizes(),
    ) {
        let setting = (flush_every, &line_sizes[..]);
        let mut naive = Naive::new(setting);
        random.steps.iter().for_each(|step| naive.step(&random, step, 0, 0));
        for instructions in Instructions::all() {
            let config = config(setting, Threads::Shared, AtContextSwitch::Keep);
            let mut curves = Curves::new(&CurvesConfig { instructions, ..config });
            play_through_ring(&random, &mut curves);
            curves.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
            naive.compare(curves.results());
        }
    }

    #[test]
    fn private_tlbs_of_threads_equal_naive_ones(
        random in threaded(), flush_every in flush_every(), line_sizes in line_sizes(),
    ) {
        let setting = (flush_every, &line_sizes[..]);
        let mut naive = Naive::new(setting);
        let (mut running, mut known) = (1, vec![1]);
        for step in &random.steps {
            match step {
                Step::Event(Event::ThreadSwitch { thread }) => {
                    running = *thread;
                    known.extend((!known.contains(thread)).then_some(*thread));
                }
                Step::Event(Event::ThreadStart { thread }) => naive.flush(*thread as usize),
                _ => naive.step(&random, step, running as usize, 0),
            }
        }
        let config = config(setting, Threads::Private, AtContextSwitch::Keep);
        let mut curves = Curves::new(&config);
        play_through_ring(&random, &mut curves);
        curves.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
        naive.compare(curves.results());
        for (found, expected) in curves.results().iter().zip(&naive.streams) {
            let threads: Vec<u32> = found.cores.iter().map(|core| core.thread).collect();
            prop_assert_eq!(&threads, &known);
            for CoreCurves { thread, instructions, references, stack, sets, caches, two_sizes, .. } in &found.cores {
                let core = *thread as usize;
                prop_assert_eq!(*instructions, naive.instructions.get(&core).copied().unwrap_or(0));
                let none = NaiveCore::default();
                let naive = expected.cores.get(&core).unwrap_or(&none);
                prop_assert_eq!(*references, naive.references);
                compare_tlbs(stack, sets, &[naive]);
                compare_caches(caches, &[naive]);
                let tlbs = [expected.two_sizes_of(core)];
                compare_two_sizes(&two_sizes[0].stack, &two_sizes[0].sets, &tlbs);
            }
        }
    }

    /// Any order of quanta, of processes that use the same page numbers; some end before others.
    #[test]
    fn shared_tlbs_equal_naive_ones(
        images in prop::collection::vec(threaded(), 1..5),
        order in prop::collection::vec((any::<prop::sample::Index>(), 1usize..12), 1..40),
        flush_every in flush_every(),
        line_sizes in line_sizes(),
        flushes in any::<bool>(),
    ) {
        let at_context_switch = if flushes { AtContextSwitch::Flush } else { AtContextSwitch::Keep };
        let setting = (flush_every, &line_sizes[..]);
        let mut curves = Curves::new(&config(setting, Threads::Shared, at_context_switch));
        let mut naive = Naive::new(setting);
        let mut taken = vec![0; images.len()];
        let mut last = None;
        let everything = (0..images.len()).map(|image| (image, usize::MAX));
        let quanta = order.iter().map(|(image, steps)| (image.index(images.len()), *steps));
        let mut counts = BTreeMap::new();
        for (image, steps) in quanta.chain(everything) {
            if counts.contains_key(&image) {
                continue;
            }
            curves.switch_to(image as u32);
            if flushes && last.is_some_and(|last| last != image) {
                naive.flush(0);
            }
            last = Some(image);
            let random = &images[image];
            let rest = random.steps[taken[image]..].iter().take(steps);
            let steps: Vec<Step> = rest.cloned().collect();
            taken[image] += steps.len();
            steps.iter().for_each(|step| naive.step(random, step, 0, image as u64));
            let part = RandomStream { segments: random.segments.clone(), steps };
            play_through_ring(&part, &mut curves);
            if taken[image] == random.steps.len() {
                let identity = StreamIdentity {
                    stream: image as u32,
                    began: Began::Fork,
                    ..StreamIdentity::only()
                };
                counts.insert(image, curves.process_ended(&identity, &StreamEnd::PLAIN));
            }
        }
        let references: u64 = counts.values().map(|counts| counts.references()).sum();
        prop_assert_eq!(references, curves.progress().references);
        curves.all_ended();
        naive.compare(curves.results());
        for (image, random) in images.iter().enumerate() {
            let mut alone = NaiveStudy::new(&[PageSize::BASE], &[1], |addr| addr);
            random.play(&mut alone);
            let (found, expected) = (&counts[&image], alone.counts());
            prop_assert_eq!(
                (found.instructions, found.loads, found.stores),
                (expected.instructions, expected.loads, expected.stores)
            );
        }
    }
}
