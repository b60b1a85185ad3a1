//! The study of `octavo run` and a machine with conventional TLBs agree on misses and walks.

use octavo_config::MachineConfig;
use octavo_curves::{MachineCurve, MachineTlbs, Sizes, Study, StudyConfig};
use octavo_machine::Sim;
use octavo_machine::resolve;
use octavo_oracle::strategies::{RandomStream, Step, few_pages, stream};
use octavo_trace::{Decoder, Encoder, Observer, StreamEnd, StreamIdentity};
use octavo_types::{
    AddrRange, Event, Item, ItemKind, MapSource, PageSize, Protection, Segment, VirtAddr,
};
use proptest::prelude::*;

use crate::common::{config, has_run_out, play, tiny};

fn preset(name: &str) -> MachineConfig {
    let mut machine = resolve::<&str>(name, &[]).unwrap().into_config();
    machine.memory.bytes = 4 << 30;
    machine
}

/// Misses counted by the study: in the first levels for code and for data, and in the second level.
fn studied(machine: &MachineConfig, page_size: PageSize, random: &RandomStream) -> [u64; 3] {
    let mut study = Study::new(&StudyConfig {
        sizes: Sizes::new(vec![PageSize::BASE]),
        fetch_levels: vec![64],
        data_levels: vec![64],
        machine: Some(MachineTlbs::of(&machine.tlb).unwrap()),
        core_cache_bytes: None,
        native_layout: true,
        allocation_wrappers: Vec::new(),
    });
    let mut encoder = Encoder::default();
    random.play(&mut encoder);
    Decoder::default().decode(encoder.words(), &mut study).unwrap();
    study.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
    let total = study.total();
    let misses = |curves: &[MachineCurve], level| -> u64 {
        let found = |curve: &&MachineCurve| curve.page_size == page_size && curve.level == level;
        curves.iter().filter(found).map(|curve| curve.misses).sum()
    };
    let (fetch, data) = (&total.fetch_machine, &total.data_machine);
    [misses(fetch, 1), misses(data, 1), misses(fetch, 2) + misses(data, 2)]
}

fn compare(
    machine: &MachineConfig,
    design: &str,
    page_size: PageSize,
    random: &RandomStream,
) -> Result<(), TestCaseError> {
    let mut sim = Sim::new(&config(machine.clone(), &[design])).unwrap();
    play(&mut sim, random);
    let simulated = &*sim.machines()[0];
    if has_run_out(simulated) {
        return Ok(());
    }
    let counters = simulated.counters();
    let misses = |level| counters.get(level, "misses").unwrap();
    let expected = ["tlb.l1i", "tlb.l1d", "tlb.l2"].map(misses);
    prop_assert_eq!(studied(machine, page_size, random), expected, "{}", machine.name);
    Ok(())
}

fn without_events(random: RandomStream) -> RandomStream {
    let is_segment = |step: &Step| matches!(step, Step::Segment(..));
    RandomStream { steps: random.steps.into_iter().filter(is_segment).collect(), ..random }
}

/// The stream with more kinds of permissions, and with private and shared mappings of files.
fn with_rights(random: RandomStream) -> RandomStream {
    let mut number = 0u64;
    let steps = random.steps.into_iter().map(|step| match step {
        Step::Event(Event::Protect { range, .. }) => {
            number += 1;
            let protection = Protection::from_bits([1, 3, 7, 5, 0][number as usize % 5]);
            Step::Event(Event::Protect { range, protection })
        }
        Step::Event(Event::Map { range, source: source @ MapSource::File { .. }, .. }) => {
            number += 1;
            let protection = Protection::from_bits(1 | (number & 6));
            Step::Event(Event::Map { range, protection, source, flags: 1 + (number & 1) })
        }
        step => step,
    });
    RandomStream { steps: steps.collect(), ..random }
}

/// A store to a page of a private file copies the page, so that the next fetch from it misses. The store comes among
/// executions that the study handles many at a time.
#[test]
fn a_store_that_copies_a_page_ends_its_translation_for_code() {
    let at = VirtAddr::new;
    let item = |kind, addr| Item::new(kind, 4, addr);
    let code = |start, kinds: &[ItemKind]| {
        let data = kinds.iter().map(|kind| item(*kind, VirtAddr::NULL));
        let items = [item(ItemKind::Fetch, at(start))].into_iter().chain(data).collect();
        Segment::new(items, vec![]).unwrap()
    };
    let (file, other) = (0x40_0000, 0x80_0000);
    let map = |start, source| {
        let (range, protection) = (AddrRange::new(at(start), 0x1000), Protection::from_bits(7));
        Step::Event(Event::Map { range, protection, source, flags: 2 })
    };
    let path = "/lib".into();
    let stores = |to| Step::Segment(1, vec![at(to)]);
    let fetches = || Step::Segment(0, vec![]);
    let random = RandomStream {
        segments: vec![code(file, &[]), code(other, &[ItemKind::Store])],
        steps: vec![
            map(file, MapSource::File { path, offset_bytes: 0 }),
            map(other, MapSource::Anonymous),
            fetches(),
            stores(other),
            stores(other),
            stores(file),
            stores(other),
            fetches(),
            stores(file),
            fetches(),
        ],
    };
    for machine in [tiny(), preset("zen3")] {
        compare(&machine, "base4k", PageSize::BASE, &random).unwrap();
        assert_eq!(studied(&machine, PageSize::BASE, &random)[0], 3, "{}", machine.name);
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(48))]

    #[test]
    fn study_and_machine_agree_on_base_pages(random in stream(1..400)) {
        let random = with_rights(random);
        compare(&tiny(), "base4k", PageSize::BASE, &random)?;
        for name in ["zen3", "golden-cove", "neoverse-n1"] {
            compare(&preset(name), "base4k", PageSize::BASE, &random)?;
        }
    }

    #[test]
    fn study_and_machine_agree_on_few_hot_pages(random in few_pages(300, 1..2000)) {
        compare(&tiny(), "base4k", PageSize::BASE, &random)?;
        compare(&preset("skylake"), "base4k", PageSize::BASE, &random)?;
    }

    #[test]
    fn study_and_machine_agree_on_huge_pages(random in stream(1..400)) {
        let random = without_events(random);
        for machine in [tiny(), preset("zen3"), preset("skylake")] {
            compare(&machine, "thp", PageSize::HUGE, &random)?;
        }
    }
}
