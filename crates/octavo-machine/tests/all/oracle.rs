//! Machines match the naive machine exactly.

use crate::common::naive::{ExtraHardware, NaiveMachine};
use crate::common::{
    any_size_first, check_laws, config, eager_prefetchers, has_run_out, play, prefetchers,
    stream_with_present, tiny, translation_cycles, with_prefetchers, with_tiers,
};
use octavo_config::{
    Fill, FirstLevel, FragmentationConfig, MachineConfig, PageSizes, TlbArray, WalkStart, Ways,
};
use octavo_hw::Replacement;
use octavo_machine::designs::GtsmSettings;
use octavo_machine::designs::perforated::hole_filter;
use octavo_machine::designs::{DesignSpec, Sizes, Variant, colt};
use octavo_machine::{Sim, resolve};
use octavo_oracle::strategies::{RandomStream, Step, few_pages, loads, stream};
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_os::frames::{MemoryShape, Order};
use octavo_os::page_table::{Format, HoleFilter};
use octavo_os::policy::PolicyConfig;
use octavo_os::{Memory, Os};
use octavo_types::{Consumer, Event, Instructions, Item, ItemKind, PageSize, Segment, VirtAddr};
use proptest::prelude::*;

/// The naive structures of a design in addition to conventional TLBs, and its policy.
fn parts(design: &str) -> (ExtraHardware, PolicyConfig) {
    let (hardware, _) = design.split_once('+').unwrap();
    let extra = match hardware {
        "conventional" => ExtraHardware::Nothing,
        "colt" => ExtraHardware::Coalescing(colt::ALL),
        "colt_sa" => ExtraHardware::Coalescing(colt::SETS),
        "colt_fa" => ExtraHardware::Coalescing(colt::FULLY_ASSOCIATIVE),
        "perforated" => ExtraHardware::Perforated(Variant::Filtered),
        "perforated_on_demand" => ExtraHardware::Perforated(Variant::OnDemand),
        "perforated_all" => ExtraHardware::Perforated(Variant::AllAtOnce),
        "gtsm" => ExtraHardware::Gapped,
        "rmm" => ExtraHardware::Ranges,
        "direct_segment" => ExtraHardware::Segment,
        "tps" => ExtraHardware::Tailored(
            DesignSpec::parse(design).unwrap().os().policy.page_table_format().vector_bits,
        ),
        _ => panic!("no naive {hardware}"),
    };
    (extra, DesignSpec::parse(design).unwrap().os().policy.clone())
}

fn naive(config: &MachineConfig, extra: ExtraHardware, policy: &PolicyConfig) -> NaiveMachine {
    let largest = policy.required_sizes().into_iter().map(Order::of).max();
    let largest = largest.map_or(Order::LINUX, |needed| needed.max(Order::LINUX));
    let shape = MemoryShape::new(config.memory.bytes >> 12, largest).unwrap();
    let is_tailored = matches!(extra, ExtraHardware::Tailored(_));
    let sizes = if is_tailored { Sizes::All } else { Sizes::X86 };
    let vector_bits = policy.page_table_format().vector_bits;
    let has_holes = matches!(extra, ExtraHardware::Perforated(_));
    let holes = has_holes.then_some(hole_filter as HoleFilter);
    let has_gapped = matches!(extra, ExtraHardware::Gapped);
    let levels = config.page_table.levels;
    let format = Format { levels, holes, has_gapped, vector_bits, ..Format::default() };
    let mut frames = config.memory.start().unwrap().build(shape, config.memory.seed()).unwrap();
    frames.set_tiers(config.memory.placed_tiers().map(|tier| tier.first_frame).collect());
    let memory = Memory::new(frames, &sizes.list(), format);
    let mut config = config.clone();
    if is_tailored {
        tailor(&mut config);
    }
    NaiveMachine::new(&config, Os::new(memory, policy.build()), extra)
}

/// Replaces the arrays for large pages of the first-level data TLB by an array of 32 entries of any size, unless there
/// is one.
fn tailor(config: &mut MachineConfig) {
    let (FirstLevel::Split { l1d: data, .. } | FirstLevel::Unified { l1: data }) =
        &mut config.tlb.first;
    if data.arrays.values().any(|array| array.page_sizes == PageSizes::Any) {
        return;
    }
    data.arrays.retain(|_, array| array.page_sizes == PageSizes::List(vec![PageSize::BASE]));
    let (ways, page_sizes) = (Ways::Full, PageSizes::Any);
    let any = TlbArray { entries: 32, ways, page_sizes, replacement: Replacement::Lru };
    data.arrays.insert("tps".to_owned(), any);
}

fn compare(
    machine: &MachineConfig,
    stream: &RandomStream,
    designs: &[&str],
) -> Result<(), TestCaseError> {
    // A naive machine has no vector instructions: one is compared with all of ours.
    let mut naives: Vec<Option<NaiveMachine>> = designs.iter().map(|_| None).collect();
    for instructions in Instructions::all() {
        let mut config = config(machine.clone(), designs);
        config.setup.instructions = instructions;
        config.setup.is_checked = instructions == Instructions::PORTABLE;
        let mut sim = Sim::new(&config).unwrap();
        play(&mut sim, stream);
        for ((design, naive), simulated) in designs.iter().zip(&mut naives).zip(sim.machines()) {
            if has_run_out(&**simulated) {
                continue;
            }
            let naive = naive.get_or_insert_with(|| played_naively(machine, stream, design));
            let (ours, expected) = (simulated.counters(), naive.counters());
            for (component, counter, value) in expected.iter() {
                prop_assert_eq!(
                    ours.get(component, counter),
                    Some(value),
                    "{} {} {} {}",
                    design,
                    instructions,
                    component,
                    counter
                );
            }
            let expected = naive.translation_cycles();
            prop_assert_eq!(translation_cycles(&ours), expected, "{} {}", design, instructions);
            check_laws(&ours)?;
        }
    }
    Ok(())
}

/// The naive machine of a design after a stream.
fn played_naively(machine: &MachineConfig, stream: &RandomStream, design: &str) -> NaiveMachine {
    let (extra, policy) = parts(design);
    let mut naive = naive(machine, extra, &policy);
    let mut has_mappings = false;
    for step in &stream.steps {
        match step {
            Step::Segment(number, addresses) => {
                if !has_mappings {
                    naive.event(&octavo_machine::everything());
                }
                has_mappings = true;
                naive.segment(&stream.segments[*number], addresses);
            }
            Step::Event(event) => {
                has_mappings |= matches!(event, Event::Map { .. });
                naive.event(event);
            }
        }
    }
    naive
}

/// Variants of the [tiny] machine.
fn variant(kind: u32) -> MachineConfig {
    let mut machine = tiny();
    match kind {
        0 => {
            let FirstLevel::Split { l1d, .. } = machine.tlb.first else { unreachable!() };
            machine.tlb.first = FirstLevel::Unified { l1: l1d };
        }
        1 => machine.tlb.l2.as_mut().unwrap().fill = Fill::Victim,
        2 => machine.tlb.l2 = None,
        3 => machine.cache.l1d.replacement = Replacement::Srrip,
        4 => {
            let FirstLevel::Split { l1i, l1d } = &mut machine.tlb.first else { unreachable!() };
            l1i.arrays[0].replacement = Replacement::TreePlru;
            l1d.arrays[0].replacement = Replacement::Fifo;
            // Huge pages are filled in parts.
            l1d.arrays.shift_remove("2m");
        }
        5 => {
            machine.walker.start = WalkStart::WithLookup;
            machine.walker.overhead_cycles = 2;
            // Longer than a walk with one cached read, shorter than other walks.
            machine.tlb.l2.as_mut().unwrap().hit_latency_cycles = 11;
        }
        6 => machine.tlb.first = any_size_first(),
        7 => {
            machine.tlb.first = any_size_first();
            machine.tlb.l2.as_mut().unwrap().fill = Fill::Victim;
        }
        _ => {
            machine.page_table.levels = 5;
            machine.cache.line_bytes = 128;
            machine.walker.caches.clear();
        }
    }
    machine
}

const KINDS: u32 = 9;
const CONVENTIONAL: &[&str] = &["conventional+base", "conventional+thp"];
const COLT: &[&str] =
    &["colt+base", "colt_sa+base", "colt_fa+base", "colt+thp", "colt_sa+eager", "colt_fa+eager"];
const PERFORATED: &[&str] = &[
    "perforated+perforated",
    "perforated+perforated:unused_are_holes=true",
    "perforated_on_demand+perforated:max_filter_bits=8:hole_pages=mapped",
    "perforated_all+perforated:max_filter_bits=8:max_immovable_percent=60",
];
const GAPPED: &[&str] = &["gtsm+gtsm", "gtsm+gtsm:whole_blocks=false"];
const TAILORED: &[&str] = &["tps+tps", "tps+tps:vector_bits=2", "tps+tps:vector_bits=16"];
const RANGES: &[&str] = &["rmm+eager", "direct_segment+eager"];

proptest! {
    #![proptest_config(octavo_oracle::cases(50))]

    #[test]
    fn conventional_machines_match_the_naive_machine(stream in stream(1..120)) {
        compare(&tiny(), &stream, CONVENTIONAL)?;
    }

    #[test]
    fn machines_match_the_naive_machine_where_memory_is_present(
        stream in stream_with_present(1..120),
        kind in 0..=KINDS,
    ) {
        let machine = if kind == KINDS { tiny() } else { variant(kind) };
        let others = [COLT, TAILORED, RANGES, PERFORATED, GAPPED].map(|designs| designs[0]);
        let reserving = "conventional+reserved_thp";
        compare(&machine, &stream, &[CONVENTIONAL, &[reserving], &others].concat())?;
    }

    #[test]
    fn other_replacement_policies_match_the_naive_machine(stream in stream(1..120), kind in 0..KINDS) {
        compare(&variant(kind), &stream, CONVENTIONAL)?;
    }

    /// Local memory is used up after some pages, or there is none.
    #[test]
    fn machines_with_memory_tiers_match_the_naive_machine(
        stream in stream(1..120),
        kind in 0..=KINDS,
        local_frames in prop_oneof![Just(0u64), 1u64..60, 500u64..1600],
        near_frames in prop_oneof![1u64..20, 500u64..1600],
    ) {
        let mut machine = if kind == KINDS { tiny() } else { variant(kind) };
        // Victim levels are filled by walks.
        if let Some(l2) = &mut machine.tlb.l2 {
            l2.fill = Fill::All;
        }
        machine.memory.bytes = 256 << 20;
        with_tiers(&mut machine.memory, local_frames, near_frames);
        let designs = [CONVENTIONAL, COLT, &TAILORED[..1], RANGES, &PERFORATED[..1]].concat();
        compare(&machine, &stream, &designs)?;
    }

    #[test]
    fn coalescing_machines_match_the_naive_machine(stream in stream(1..120)) {
        compare(&tiny(), &stream, COLT)?;
    }

    /// Pages touched in order are contiguous; the second pass hits their ranges.
    #[test]
    fn contiguous_pages_under_colt_match_the_naive_machine(
        pages in 20u64..80,
        others in prop::collection::vec((0u64..80, 1usize..4, prop::bool::weighted(0.1)), 1..150),
        kind in 0..=KINDS,
    ) {
        let in_order = (0..pages).map(|page| (page, 1, false));
        let steps: Vec<_> = in_order.clone().chain(in_order).chain(others).collect();
        let machine = if kind == KINDS { tiny() } else { variant(kind) };
        compare(&machine, &loads(&steps), COLT)?;
        let mut sim = Sim::new(&config(machine, &["colt_fa"])).unwrap();
        play(&mut sim, &loads(&steps));
        let counters = sim.machines()[0].counters();
        let side = if kind == 0 { "tlb.l1.ranges" } else { "tlb.l1d.ranges" };
        prop_assert!(counters.get(side, "hits") > Some(0));
    }

    #[test]
    fn other_coalescing_machines_match_the_naive_machine(stream in stream(1..120), kind in 0..KINDS) {
        compare(&variant(kind), &stream, COLT)?;
    }

    #[test]
    fn perforated_machines_match_the_naive_machine(
        stream in stream(1..120),
        kind in 0..=KINDS,
        portion in prop_oneof![Just(0.0), Just(1.0)],
        is_clustered in any::<bool>(),
    ) {
        let mut machine = if kind == KINDS { tiny() } else { variant(kind) };
        // Victim levels are filled by walks.
        if let Some(l2) = &mut machine.tlb.l2 {
            l2.fill = Fill::All;
        }
        machine.memory.bytes = 256 << 20;
        machine.memory.fragmentation = FragmentationConfig::Holes {
            portion,
            fraction: 0.2,
            layout: if is_clustered { HoleLayout::Clustered } else { HoleLayout::Dispersed },
            holes: HoleKind::Immovable,
            seed: 1,
        };
        compare(&machine, &stream, PERFORATED)?;
    }

    #[test]
    fn gtsm_machines_match_the_naive_machine(
        stream in stream(1..120),
        kind in 0..=KINDS,
        portion in prop_oneof![Just(0.0), Just(0.02), Just(0.04)],
        (walk_cache_entries, bitmap_entries) in (0u64..4, 1u64..4),
    ) {
        let mut machine = if kind == KINDS { tiny() } else { variant(kind) };
        if let Some(l2) = &mut machine.tlb.l2 {
            l2.fill = Fill::All;
        }
        machine.memory.bytes = 256 << 20;
        let layout = HoleLayout::Dispersed;
        machine.memory.fragmentation = FragmentationConfig::Faults { portion, layout, seed: 1 };
        machine.designs.set(GtsmSettings { walk_cache_entries, bitmap_entries });
        compare(&machine, &stream, GAPPED)?;
    }

    #[test]
    fn prefetching_machines_match_the_naive_machine(
        stream in prop_oneof![stream(1..120), few_pages(60, 1..150)],
        kind in 0..=KINDS,
        prefetchers in prefetchers(),
    ) {
        let machine = if kind == KINDS { tiny() } else { variant(kind) };
        let machine = with_prefetchers(machine, prefetchers);
        compare(&machine, &stream, CONVENTIONAL)?;
        compare(&machine, &stream, &["colt+base", "rmm+eager", "tps+tps"])?;
        // Counts do not depend on timing.
        let mut timed = machine.clone();
        timed.core.pipeline = resolve::<&str>("skylake", &[]).unwrap().into_config().core.pipeline;
        compare(&timed, &stream, CONVENTIONAL)?;
    }

    #[test]
    fn range_machines_match_the_naive_machine(stream in stream(1..120)) {
        compare(&tiny(), &stream, RANGES)?;
    }

    #[test]
    fn other_range_machines_match_the_naive_machine(stream in stream(1..120), kind in 0..KINDS) {
        compare(&variant(kind), &stream, RANGES)?;
    }
}

proptest! {
    // The naive TLBs of these designs are larger than those of the machine: 30 cases take a second.
    #![proptest_config(octavo_oracle::cases(30))]

    #[test]
    fn tps_machines_match_the_naive_machine(stream in stream(1..120), kind in 0..=KINDS) {
        compare(&if kind == KINDS { tiny() } else { variant(kind) }, &stream, TAILORED)?;
    }

    /// Pages that grow as they are touched in order, and are then stored to.
    #[test]
    fn tps_vectors_match_the_naive_machine(
        pages in 20u64..80,
        others in prop::collection::vec((0u64..80, 1usize..4, prop::bool::weighted(0.3)), 1..150),
        kind in 0..=KINDS,
    ) {
        let in_order = (0..pages).map(|page| (page, 1, false));
        let steps: Vec<_> = in_order.clone().chain(in_order).chain(others).collect();
        let machine = if kind == KINDS { tiny() } else { variant(kind) };
        compare(&machine, &loads(&steps), TAILORED)?;
        let mut sim = Sim::new(&config(machine, &["tps:vector_bits=16"])).unwrap();
        play(&mut sim, &loads(&steps));
        let counters = sim.machines()[0].counters();
        for counter in ["stores", "marked", "references"] {
            prop_assert!(counters.get("walker.vectors", counter) > Some(0), "{counter}");
        }
    }
}

/// Checks that machines of these designs match the naive machine in two passes of loads, and that none of these
/// counters is 0.
fn check_occur(machine: &MachineConfig, designs: &[&str], compared: &[(&str, &'static str)]) {
    let pass = (0..2048).map(|page| (page, 1, false));
    let stream = loads(&pass.clone().chain(pass).collect::<Vec<_>>());
    compare(machine, &stream, designs).unwrap();
    let mut sim = Sim::new(&config(machine.clone(), designs)).unwrap();
    play(&mut sim, &stream);
    for (design, machine) in designs.iter().zip(sim.machines()) {
        let counters = machine.counters();
        for (component, counter) in compared {
            assert!(
                counters.get(component, counter) > Some(0),
                "{design}: no {component} {counter}"
            );
        }
    }
}

/// The comparisons are not vacuous: their events occur.
#[test]
fn compared_events_occur() {
    let mut machine = tiny();
    machine.memory.bytes = 256 << 20;
    let layout = HoleLayout::Dispersed;
    machine.memory.fragmentation = FragmentationConfig::Faults { portion: 0.02, layout, seed: 1 };
    let gaps = [
        ("os", "gapped"),
        ("tlb.l2.gapped", "hits"),
        ("walker", "bitmap_references"),
        ("walker.cache.bitmap", "hits"),
    ];
    check_occur(&machine, GAPPED, &gaps);
    let holes = [
        ("os", "perforations"),
        ("tlb.l2.perforated", "hits"),
        ("tlb.l2.bitmap", "hits"),
        ("walker", "bitmap_references"),
        ("walker", "hole_walks"),
    ];
    // Unused pages are holes in whole blocks only.
    let (in_whole, others): (Vec<&str>, Vec<&str>) =
        PERFORATED.iter().partition(|design| design.contains("unused_are_holes"));
    machine.memory.fragmentation = FragmentationConfig::Empty;
    check_occur(&machine, &in_whole, &holes);
    machine.memory.fragmentation = FragmentationConfig::Holes {
        portion: 1.0,
        fraction: 0.2,
        // With dispersed holes in all eighths of a page, some of these designs would make no perforated page.
        layout: HoleLayout::Clustered,
        holes: HoleKind::Immovable,
        seed: 1,
    };
    check_occur(&machine, &others, &holes);
    let mut machine = with_prefetchers(tiny(), eager_prefetchers());
    machine.core.pipeline = resolve::<&str>("skylake", &[]).unwrap().into_config().core.pipeline;
    let lines: Vec<_> = (0..2048)
        .map(|line| Step::Segment(0, vec![VirtAddr::new((0x100 << 12) + line * 64)]))
        .collect();
    let segments = loads(&[(0, 1, false)]).segments;
    let stream = RandomStream { segments, steps: lines };
    compare(&machine, &stream, CONVENTIONAL).unwrap();
    let mut sim = Sim::new(&config(machine, CONVENTIONAL)).unwrap();
    play(&mut sim, &stream);
    let counters = sim.machines()[0].counters();
    for level in ["prefetch.l1d", "prefetch.l2"] {
        for counter in ["issued", "useful", "late", "dropped"] {
            assert!(counters.get(level, counter) > Some(0), "no {level} {counter}");
        }
    }
}

/// More references to one line than one access can count: a loop, and a segment with many fetches from one line.
#[test]
fn long_runs_of_repeats_are_counted_exactly() {
    let item = |kind, size_bytes, addr| Item::new(kind, size_bytes, VirtAddr::new(addr));
    let fetches = |count| vec![item(ItemKind::Fetch, 1, 0x40_1000); count];
    let data = [item(ItemKind::Load, 8, 0), item(ItemKind::Modify, 4, 0)];
    let segments = [[&fetches(3)[..], &data].concat(), fetches(500)];
    let addresses = [0x50_0008, 0x50_0010].map(VirtAddr::new).to_vec();
    let mut steps = vec![Step::Segment(0, addresses); 700];
    steps.push(Step::Segment(1, Vec::new()));
    let segments = segments.map(|items| Segment::new(items, Vec::new()).unwrap()).to_vec();
    for kind in 0..=KINDS {
        let machine = if kind == KINDS { tiny() } else { variant(kind) };
        let stream = RandomStream { segments: segments.clone(), steps: steps.clone() };
        compare(&machine, &stream, CONVENTIONAL).unwrap();
    }
}
