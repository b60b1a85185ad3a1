//! Every engine on the stream that some bytes describe, as the decoder gives it.

use std::num::NonZeroU64;

use octavo_curves::{
    ArrayShape, AtContextSwitch, ClassesConfig, Curves, CurvesConfig, LineSize, MachineTlbs,
    PageSample, SetIndex, Sizes, Stream, Study, StudyConfig, Threads, TlbsOfSize, TwoSizesConfig,
};
use octavo_machine::designs::{DesignSpec, designs};
use octavo_machine::resolve;
use octavo_machine::{Sim, SimConfig, Timing};
use octavo_oracle::hostile;
use octavo_trace::{
    Counts, Decoder, Encoder, Observer, StreamEnd, StreamIdentity, TimeSlicedConsumer,
};
use octavo_types::{Instructions, PageSize};

/// Designs that are simulated side by side.
const DESIGNS_AT_ONCE: usize = 4;

/// The stream as words.
fn words(bytes: &[u8]) -> Vec<u64> {
    let mut encoder = Encoder::default();
    hostile::play(bytes, &mut encoder);
    encoder.words().to_vec()
}

fn play<C: Observer>(bytes: &[u8], engine: &mut C) {
    Decoder::default().decode(&words(bytes), engine).expect("our own words");
    engine.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
}

/// The first byte of a description, which chooses a configuration, and the rest.
fn split(bytes: &[u8]) -> (usize, &[u8]) {
    bytes.split_first().map_or((0, bytes), |(first, rest)| (usize::from(*first), rest))
}

fn sizes(log2: impl Iterator<Item = u8>) -> Sizes {
    Sizes::new(log2.filter_map(PageSize::from_log2).collect())
}

/// A machine with arrays so small that entries are evicted soon: one is fully associative, and one
/// has a number of sets that is no power of two.
fn small_machine() -> MachineTlbs {
    let of_size = |page_size| {
        let shape = |sets, ways| ArrayShape { entry_size: page_size, sets, ways };
        TlbsOfSize { page_size, fetch: shape(2, 2), data: shape(1, 20), second: Some(shape(3, 8)) }
    };
    MachineTlbs { sizes: [PageSize::BASE, PageSize::HUGE, PageSize::LARGEST].map(of_size).into() }
}

/// The study of `octavo run`.
pub fn study(bytes: &[u8]) -> Counts {
    let (choice, bytes) = split(bytes);
    let entries = [1, 4, 64, 100];
    let levels = vec![entries[choice % 4]; 1 + choice / 4 % 2];
    let mut study = Study::new(&StudyConfig {
        sizes: sizes((12..=30).step_by(1 + choice / 8 % 4)),
        fetch_levels: levels.clone(),
        data_levels: levels,
        machine: (choice / 32 % 2 == 1).then(small_machine),
        core_cache_bytes: Some(1 << 16),
        native_layout: true,
        allocation_wrappers: Vec::new(),
    });
    play(bytes, &mut study);
    let total = study.total();
    let counts = study.counts().clone();
    assert_eq!(total.fetch_references + total.data_references, counts.references());
    for curve in total.fetch_curves.iter().chain(&total.data_curves) {
        assert!(curve.misses <= curve.accesses, "{curve:?}");
    }
    for curve in total.fetch_machine.iter().chain(&total.data_machine) {
        assert!(curve.misses <= curve.accesses, "{curve:?}");
    }
    let of_regions = study.regions().into_iter().map(|(_, region)| region.data_references);
    assert_eq!(of_regions.sum::<u64>(), total.data_references);
    counts
}

/// The kernels of `octavo curves`, all at once. They count the same references as the study.
pub fn curves(bytes: &[u8]) {
    let (counts, of_study) = (kernels(bytes), study(bytes));
    assert_eq!(counts.references(), of_study.references());
    assert_eq!(counts.instructions, of_study.instructions);
}

fn kernels(bytes: &[u8]) -> Counts {
    let (choice, bytes) = split(bytes);
    let (base, large) = (PageSize::BASE, PageSize::from_log2(15).expect("32 KiB"));
    let streams = vec![Stream::Fetch, Stream::Data, Stream::All];
    let mut config =
        CurvesConfig::nothing(sizes([12, 13, 15, 21, 30].into_iter()), streams.clone());
    config.native_layout = true;
    config.max_entries = 64;
    config.set_indexes = vec![SetIndex::Bits { from: 0 }, SetIndex::Xor];
    config.max_sets_log2 = 4;
    config.line_sizes = [16, 64, 4096].into_iter().filter_map(LineSize::new).collect();
    config.windows_refs = vec![1, 16, 1000];
    config.two_sizes = vec![TwoSizesConfig {
        small: base,
        large,
        window_refs: 100,
        threshold_blocks: 1 + (choice % 8) as u32,
        max_entries: 16,
        max_sets_log2: 3,
        windows_refs: vec![50],
    }];
    config.classes =
        Some(ClassesConfig { page_size: base, larger: PageSize::HUGE, sets_log2: 2, ways: 2 });
    config.at_context_switch =
        if choice & 8 == 0 { AtContextSwitch::Keep } else { AtContextSwitch::Flush };
    config.flush_every_instructions = NonZeroU64::new([0, 7][choice >> 4 & 1]);
    match choice >> 5 & 3 {
        0 => config.threads = Threads::Private,
        1 => config.sample = Some(PageSample { rate: 0.25, seed: 1 }),
        _ => {}
    }
    if choice & 128 != 0 {
        config.instructions = Instructions::PORTABLE;
    }
    let mut curves = Curves::new(&config);
    play(bytes, &mut curves);
    let counts = curves.counts().clone();
    let references = [counts.instructions, counts.loads + counts.stores, counts.references()];
    for (result, references) in curves.results().iter().zip(references) {
        assert_eq!(result.references, references);
        for stack in &result.stack {
            assert!(stack.misses.is_sorted_by(|few, more| few >= more), "{stack:?}");
        }
    }
    counts
}

/// Machines of `octavo sim`: each byte at the front chooses a design.
pub fn sim(bytes: &[u8]) {
    let (choice, bytes) = split(bytes);
    let (chosen, bytes) = bytes.split_at(bytes.len().min(DESIGNS_AT_ONCE));
    let preset = ["skylake", "zen2", "apple-m1", "puma"][choice % 4];
    let mut settings = vec![
        format!("memory.bytes={}MiB", [64, 32][choice >> 2 & 1]),
        format!("page_table.levels={}", 4 + (choice >> 3 & 1)),
    ];
    if choice & 16 != 0 {
        settings.push("host=kvm".to_owned());
    }
    let machine = resolve(preset, &settings).or_else(|_| resolve(preset, &settings[..2]));
    let machine = machine.expect("a preset").config().clone();
    let all = designs();
    let designs = chosen.iter().map(|byte| all[usize::from(*byte) % all.len()].name);
    let designs = designs.chain(["base4k"]).map(|name| DesignSpec::parse(name).expect("a design"));
    let config = SimConfig::new(machine, designs.collect(), Instructions::best());
    let mut config = SimConfig {
        native_layout: true,
        warm_up_instructions: [0, 20][choice >> 5 & 1],
        is_fast_forwarded: choice >> 6 & 1 == 1,
        interval_instructions: [None, Some(10)][choice >> 6 & 1],
        timing: if choice & 128 != 0 { Timing::OutOfOrder } else { Timing::Additive },
        ..config.expect("no snapshot")
    };
    config.setup.is_checked = true;
    let sim = Sim::new(&config);
    // Not every machine supports every design.
    let Ok(mut sim) = sim else { return };
    sim.begun(&StreamIdentity::only());
    sim.switch_to(0);
    Decoder::default().decode(&words(bytes), &mut sim).expect("our own words");
    sim.finish();
    for (design, machine) in sim.designs().iter().zip(sim.machines()) {
        assert_eq!(machine.check(), Ok(()), "{design:?}");
        let counters = machine.counters();
        for (component, counter, value) in counters.iter() {
            let get = |counter| counters.get(component, counter).unwrap_or(0);
            if counter == "accesses" {
                assert_eq!(value, get("hits") + get("misses"), "{design:?} {component}");
            }
        }
    }
    sim.process_ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
    sim.all_ended();
}
