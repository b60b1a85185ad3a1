//! The TLBs of a machine in the study equal naive ones, count for count.

use octavo_config::DesignTables;
use octavo_curves::{ArrayShape, MachineCurve, MachineTlbs, Sizes, Study, StudyConfig, TlbsOfSize};
use octavo_oracle::strategies::{RandomStream, few_pages_with_stores, stream};
use octavo_oracle::{NaiveMachineTlbs, NaiveShape, Stream as NaiveStream};
use octavo_trace::{Observer, StreamEnd, StreamIdentity};
use octavo_types::PageSize;
use proptest::prelude::*;

use crate::play_through_ring;

fn shape(log2: u8) -> impl Strategy<Value = ArrayShape> {
    let entry_size = PageSize::from_log2(log2).unwrap();
    let ways = prop_oneof![1u32..=5, Just(8), Just(16), 48u32..=80];
    let sets = prop_oneof![3 => (0u32..6).prop_map(|log2| 1 << log2), 1 => 1u32..20];
    (sets, ways).prop_map(move |(sets, ways)| ArrayShape { entry_size, sets, ways })
}

/// Arrays for pages of 4 KiB, and of two larger sizes, one of which the second level holds in parts.
fn tlbs() -> impl Strategy<Value = MachineTlbs> {
    let size = |log2: u8, second_log2: u8| {
        (shape(log2), shape(log2), prop::option::weighted(0.8, shape(second_log2))).prop_map(
            move |(fetch, data, second)| {
                let page_size = PageSize::from_log2(log2).unwrap();
                TlbsOfSize { page_size, fetch, data, second }
            },
        )
    };
    (size(12, 12), size(16, 16), size(21, 21), size(30, 21)).prop_map(
        |(base, large, huge, largest)| MachineTlbs { sizes: vec![base, large, huge, largest] },
    )
}

fn study(machine: &MachineTlbs, entries: u32) -> Study {
    Study::new(&StudyConfig {
        sizes: Sizes::new(vec![PageSize::BASE]),
        fetch_levels: vec![entries],
        data_levels: vec![entries],
        machine: Some(machine.clone()),
        core_cache_bytes: Some(1 << 15),
        native_layout: true,
        allocation_wrappers: Vec::new(),
    })
}

fn without_memory_events(random: RandomStream) -> RandomStream {
    use octavo_oracle::strategies::Step;
    let steps = random.steps.into_iter().filter(|step| matches!(step, Step::Segment(..)));
    RandomStream { segments: random.segments, steps: steps.collect() }
}

fn compare(random: &RandomStream, machine: &MachineTlbs, entries: u32) {
    let mut study = study(machine, entries);
    play_through_ring(random, &mut study);
    let mut by_segment = self::study(machine, entries);
    random.play(&mut by_segment);
    assert_eq!(study.missed_lines(), by_segment.missed_lines());
    study.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
    let total = study.total();
    let naive_shape = |ArrayShape { entry_size, sets, ways }: ArrayShape| NaiveShape {
        entry_size,
        sets: sets as usize,
        ways: ways as usize,
    };
    for TlbsOfSize { page_size, fetch, data, second } in &machine.sizes {
        let (fetch, data) = (naive_shape(*fetch), naive_shape(*data));
        let mut naive = NaiveMachineTlbs::new(*page_size, fetch, data, second.map(naive_shape));
        random.play(&mut naive);
        let sides =
            [(NaiveStream::Fetch, &total.fetch_machine), (NaiveStream::Data, &total.data_machine)];
        for (stream, curves) in sides {
            let mut curves: Vec<&MachineCurve> =
                curves.iter().filter(|curve| curve.page_size == *page_size).collect();
            if curves.is_empty() {
                assert_eq!(naive.lookups(stream, 0).accesses, 0);
                continue;
            }
            assert_eq!(curves.len(), 1 + usize::from(second.is_some()));
            for (level, curve) in curves.drain(..).enumerate() {
                let expected = naive.lookups(stream, level);
                assert_eq!(
                    (curve.accesses, curve.misses),
                    (expected.accesses, expected.misses),
                    "{stream:?} {curve:?}"
                );
            }
        }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(96))]

    #[test]
    fn machine_tlbs_are_exact(
        random in stream(1..400), machine in tlbs(),
        entries in prop_oneof![Just(64u32), 1u32..8],
    ) {
        compare(&without_memory_events(random), &machine, entries);
    }

    #[test]
    fn machine_tlbs_are_exact_where_few_pages_come_often(
        random in few_pages_with_stores(200, 1..2000), machine in tlbs(),
    ) {
        compare(&random, &machine, 64);
    }
}

/// Every machine that ships with Octavo is modelled, except those whose first level serves both code and data.
#[test]
fn presets_are_modelled() {
    for name in octavo_config::preset_names() {
        let Ok(machine) = DesignTables::default().resolve::<&str>(name, &[]) else {
            assert_eq!(name, "puma", "the one with settings of a design");
            continue;
        };
        let config = machine.into_config();
        match MachineTlbs::of(&config.tlb) {
            Ok(tlbs) => {
                assert!(tlbs.sizes.iter().any(|size| size.page_size == PageSize::HUGE), "{name}")
            }
            Err(error) => {
                assert_eq!(name, "r3000", "{error}");
                assert_eq!(error.key, "tlb.l1");
            }
        }
    }
}

/// Skylake holds pages of 1 GiB in an array of their own in the second level; Zen 3 holds them there in
/// parts of 2 MiB.
#[test]
fn a_page_goes_to_the_array_of_the_largest_size_up_to_its_own() {
    let second = |name: &str| {
        let machine = DesignTables::default().resolve::<&str>(name, &[]);
        let config = machine.unwrap().into_config();
        let tlbs = MachineTlbs::of(&config.tlb).unwrap();
        let largest = tlbs.sizes.into_iter().find(|size| size.page_size == PageSize::LARGEST);
        largest.unwrap().second.unwrap()
    };
    let skylake = ArrayShape { entry_size: PageSize::LARGEST, sets: 4, ways: 4 };
    let zen3 = ArrayShape { entry_size: PageSize::HUGE, sets: 128, ways: 16 };
    assert_eq!((second("skylake"), second("zen3")), (skylake, zen3));
}
