//! Laws of the cycles of an out-of-order core, tested by whole simulations.

use std::collections::BTreeMap;

use crate::common::{cache, config, hosted, names, play, tiny};
use octavo_config::{
    ArithmeticLatencies, BranchPrediction, FirstLevel, MachineConfig, MemoryTier,
    OutstandingMisses, PipelineConfig, Ways,
};
use octavo_machine::designs::designs;
use octavo_machine::designs::softvm::SoftvmConfig;
use octavo_machine::{Counters, Sim, Timing};
use octavo_oracle::strategies::{self, RandomStream, Step, few_pages, loads, stream};
use octavo_types::{AddrRange, Dependences, Event, Item, ItemKind, Segment, VirtAddr};
use proptest::collection::vec;
use proptest::prelude::*;

/// The dependences of an instruction: on earlier instructions, and registers read and written.
fn dependences() -> impl Strategy<Value = Dependences> {
    strategies::dependences(|| {
        prop_oneof![Just(0u64), (0u32..12).prop_map(|bit| 1 << bit), 0u64..4096]
    })
}

/// A copy of a segment with `change` applied to its items and these dependences given to its instructions in turn.
fn changed(segment: &Segment, all: &[Dependences], change: impl Fn(Item) -> Item) -> Segment {
    let items: Vec<Item> = segment.items().iter().copied().map(change).collect();
    let dependences = all.iter().cycle().take(segment.instructions() as usize).copied().collect();
    Segment::new(items, dependences).expect("every item is sound")
}

fn with_dependences(
    stream: impl Strategy<Value = RandomStream>,
) -> impl Strategy<Value = RandomStream> {
    (stream, vec(dependences(), 1..40)).prop_map(|(stream, all)| RandomStream {
        segments: stream
            .segments
            .iter()
            .map(|segment| changed(segment, &all, |item| item))
            .collect(),
        ..stream
    })
}

/// Streams of all kinds, and streams of loads of few pages; with dependences.
fn streams() -> impl Strategy<Value = RandomStream> {
    with_dependences(prop_oneof![stream(1..80).boxed(), few_pages(60, 1..150).boxed()])
}

/// Cores of all sizes.
fn pipelines() -> impl Strategy<Value = PipelineConfig> {
    let width = || prop_oneof![1u32..6, 1u32..=64];
    let queue = || prop_oneof![1u32..6, 1u32..80, 1u32..=1023];
    (
        [width(), width(), width(), width(), width(), width()],
        [queue(), queue(), queue(), queue(), queue(), queue(), queue(), queue()],
        [0u32..12, 0u32..12, 0u32..20],
        any::<[bool; 3]>(),
    )
        .prop_map(|(widths, queues, cycles, [is_perfect, wrong_paths, store_prefetch])| {
            PipelineConfig {
                frequency_ghz: 3.0,
                width: widths[0],
                fetch_width: Some(widths[5]),
                issue_width: widths[1],
                commit_width: widths[2],
                load_ports: widths[3],
                store_ports: widths[4],
                reorder_buffer: queues[0],
                rename_registers: queues[1],
                load_queue: queues[2],
                store_queue: queues[3],
                fetch_buffer: queues[4],
                outstanding: OutstandingMisses { l1d: queues[5], l2: queues[6], llc: queues[7] },
                forward_cycles: cycles[0],
                front_end_cycles: cycles[1],
                mispredict_cycles: cycles[2],
                branches: if is_perfect {
                    BranchPrediction::Perfect
                } else {
                    BranchPrediction::Tage
                },
                wrong_paths,
                store_prefetch,
                latencies: ArithmeticLatencies::default(),
            }
        })
}

/// The counters of each design, and the numbers of instructions and of data references of the stream.
fn counted(
    mut machine: MachineConfig,
    pipeline: Option<&PipelineConfig>,
    names: &[&str],
    stream: &RandomStream,
) -> (Vec<Counters>, [u64; 2]) {
    machine.core.pipeline = pipeline.cloned();
    let mut config = config(machine, names);
    config.setup.is_checked = false;
    let mut sim = Sim::new(&config).unwrap();
    play(&mut sim, stream);
    let counts = sim.counts();
    let counts = [counts.instructions, counts.loads + counts.stores];
    (sim.machines().iter().map(|machine| machine.counters()).collect(), counts)
}

fn get(counters: &Counters, component: &str, counter: &'static str) -> u64 {
    counters.get(component, counter).unwrap_or(0)
}

/// All counters except those that the timing of the core determines.
fn untimed(counters: &Counters) -> BTreeMap<(String, &'static str), u64> {
    let timed = ["instructions", "cycles", "branches_taken", "branches_mispredicted", "traps"];
    counters
        .iter()
        .filter(|(component, counter, _)| {
            !(*component == "core" && timed.contains(counter)
                || *component == "core.stack"
                || *component == "memory" && counter.starts_with("row_"))
        })
        .map(|(component, counter, value)| ((component.to_owned(), counter), value))
        .collect()
}

/// Checks that the parts of the cycle stack add up to the cycles.
fn check_stack(counters: &Counters, design: &str) -> Result<(), TestCaseError> {
    let parts = counters.iter().filter(|(component, ..)| *component == "core.stack");
    let sum: u64 = parts.map(|(.., cycles)| cycles).sum();
    prop_assert_eq!(sum, get(counters, "core", "cycles"), "{}", design);
    Ok(())
}

/// The machine with caches that hold all lines.
fn with_large_caches(mut machine: MachineConfig) -> MachineConfig {
    let caches = &mut machine.cache;
    for (level, latency_cycles) in
        [(&mut caches.l1i, 4), (&mut caches.l1d, 4), (&mut caches.l2, 12), (&mut caches.llc, 40)]
    {
        *level = cache(1 << 14, 1, latency_cycles);
        level.ways = Ways::Full;
    }
    let mut softvm = *machine.designs.get::<SoftvmConfig>();
    for level in [&mut softvm.l1, &mut softvm.l2] {
        (level.bytes, level.ways) = (1 << 20, Ways::Full);
    }
    machine.designs.set(softvm);
    machine
}

/// Streams of references of at most 8 bytes, which touch at most two lines each.
fn small_references() -> impl Strategy<Value = RandomStream> {
    (stream(1..120), vec(dependences(), 1..40)).prop_map(|(stream, all)| {
        let small = |item: Item| Item { size_bytes: item.size_bytes.min(8), ..item };
        RandomStream {
            segments: stream.segments.iter().map(|segment| changed(segment, &all, small)).collect(),
            ..stream
        }
    })
}

proptest! {
    #![proptest_config(octavo_oracle::cases(60))]

    /// Ideal levels bound the cycles under two premises: data caches that hold all lines, and unlimited resources.
    /// Limited slots, walkers and miss registers are given out in program order, so that an earlier instruction which
    /// asks sooner may delay a later one on the critical path. Four instructions of at most 12 line accesses each never
    /// need more than the 64 slots of a cycle. With all else in program order, a delay of one instruction makes no
    /// later one earlier.
    #[test]
    fn perfect_levels_bound_cycles(stream in small_references(), mut pipeline in pipelines()) {
        let mut machine = with_large_caches(tiny());
        machine.memory.bytes = 8 << 30;
        machine.walker.walkers = 64;
        pipeline.reorder_buffer = pipeline.reorder_buffer.min(4);
        (pipeline.issue_width, pipeline.load_ports, pipeline.store_ports) = (64, 64, 64);
        pipeline.outstanding = OutstandingMisses { l1d: 1023, l2: 1023, llc: 1023 };
        let names = ["perfect_l1", "perfect_l2", "base4k", "softvm_free", "softvm", "spur"];
        let (all, _) = counted(machine, Some(&pipeline), &names, &stream);
        let cycles: Vec<u64> = all.iter().map(|counters| get(counters, "core", "cycles")).collect();
        prop_assert!(cycles[0] <= cycles[1] && cycles[1] <= cycles[2], "{cycles:?}");
        prop_assert!(cycles[3] <= cycles[4] && cycles[3] <= cycles[5], "{cycles:?}");
    }

    /// Handlers overlap nothing: each is fetched after all earlier instructions have committed, and its instruction is
    /// fetched again after it.
    #[test]
    fn handlers_overlap_nothing(stream in small_references(), pipeline in pipelines()) {
        let names = ["softvm", "mips_virtual", "mips_physical"];
        let (all, _) = counted(tiny(), Some(&pipeline), &names, &stream);
        for (name, counters) in names.iter().zip(&all) {
            let handled = get(counters, "core", "cycles_handler") + get(counters, "core", "cycles_write_backs");
            let traps = get(counters, "core", "traps");
            let alone = handled + traps * u64::from(pipeline.front_end_cycles);
            prop_assert!(alone <= get(counters, "core", "cycles"), "{}", name);
            prop_assert_eq!(traps > 0, alone > 0, "{}", name);
        }
    }

    /// Serial execution of the instructions, with all steps of each in series, takes at least as long.
    #[test]
    fn serial_execution_takes_no_less(stream in small_references(), pipeline in pipelines()) {
        let machine = tiny();
        let l1d = u64::from(machine.cache.l1d.latency_cycles);
        let virtual_caches = ["softvm", "spur", "mips_virtual", "mips_physical", "softvm_free"];
        let names = [&["base4k", "thp", "perfect_l2", "rmm"], &virtual_caches[..]].concat();
        let (all, [instructions, references]) = counted(machine, Some(&pipeline), &names, &stream);
        for (name, counters) in names.iter().zip(&all) {
            let costs: u64 = counters
                .iter()
                .filter(|(component, counter, _)| *component == "core" && counter.starts_with("cycles_"))
                .map(|(.., cycles)| cycles)
                .sum();
            prop_assert_eq!(get(counters, "core", "instructions"), instructions, "{}", name);
            // Data accesses before the first instruction of a segment are an entry of their own. Each entry is fetched,
            // dispatched, executed and committed.
            let entries = instructions + stream.steps.len() as u64;
            let entry_cycles = u64::from(pipeline.front_end_cycles) + 4;
            // A reference accesses two lines at most; a store enters the cache.
            let lines = references * 2;
            let mispredicted = get(counters, "core", "branches_mispredicted");
            // A handler is fetched, and then the instruction is fetched and dispatched again.
            let traps = get(counters, "core", "traps");
            let serial = costs
                + entries * entry_cycles
                + lines * (l1d + 2 + u64::from(pipeline.forward_cycles))
                + mispredicted * u64::from(pipeline.mispredict_cycles)
                + traps * 2 * entry_cycles;
            let cycles = get(counters, "core", "cycles");
            prop_assert!(cycles <= serial, "{}: {} > {}", name, cycles, serial);
        }
    }
}

/// Added latency of far memory, in cycles.
const ADDED: u32 = 300;

/// The machine with far memory only; the tier changes no other counter.
fn all_far(mut machine: MachineConfig) -> MachineConfig {
    let memory = machine.host.as_mut().map_or(&mut machine.memory, |host| &mut host.memory);
    let tier = MemoryTier {
        bytes: Some(memory.bytes),
        share: None,
        added_latency_cycles: ADDED,
        dram: None,
    };
    memory.tiers.insert("far".to_owned(), tier);
    machine
}

/// Dependent loads of 40 pages, each with its walk, and then of other lines of the same pages. At the cold start, the
/// walk and the read of the code come before all loads, so that every read of memory is on the critical path.
#[test]
fn every_read_of_dependent_loads_pays_the_added_latency_of_far_memory() {
    let steps: Vec<_> = (0..200).map(|number| (number * 7 % 40, 1, false)).collect();
    let stream = loads(&steps);
    let chain = Dependences::new(0, 1, 1);
    let segments = stream.segments.iter().map(|segment| changed(segment, &[chain], |item| item));
    let stream = RandomStream { segments: segments.collect(), ..stream };
    let pipeline =
        octavo_machine::resolve::<&str>("skylake", &[]).unwrap().into_config().core.pipeline;
    for hosts in [false, true] {
        let machine = if hosts { hosted(tiny(), 30, false) } else { tiny() };
        let cycles = |machine| {
            let (all, _) = counted(machine, pipeline.as_ref(), &["base4k"], &stream);
            (get(&all[0], "core", "cycles"), get(&all[0], "memory", "reads"), all)
        };
        let (near, reads, _) = cycles(machine.clone());
        let (far, reads_far, counters) = cycles(all_far(machine));
        assert!(reads > 60, "{reads} reads");
        assert_eq!((reads_far, get(&counters[0], "memory.tier.far", "reads")), (reads, reads));
        assert_eq!(get(&counters[0], "memory.tier.local", "reads"), 0);
        assert_eq!(far - near, u64::from(ADDED) * reads);
    }
}

/// Number of lines from which dependent loads read at random; lines of the last-level cache; loads between two events.
const RANDOM_LINES: u64 = 4096;
const LLC_LINES: u64 = 2048;
const LOADS_OF_PART: u64 = 32;

/// The share of random loads that hit the last-level cache, and the cycles per load. Other cores fill a line of the
/// cache every `others_fill_every_cycles` cycles.
fn random_loads(others_fill_every_cycles: u32) -> (f64, f64) {
    let mut machine = tiny();
    machine.cache.l1d = cache(1, 1, 4);
    machine.cache.l2 = cache(2, 2, 12);
    machine.cache.llc = cache(LLC_LINES, 16, 40);
    machine.cache.others_fill_every_cycles = others_fill_every_cycles;
    // All pages stay in the TLB, so that no walk reads through the caches.
    let FirstLevel::Split { l1d, .. } = &mut machine.tlb.first else { unreachable!("it is split") };
    for array in l1d.arrays.values_mut() {
        (array.entries, array.ways) = (RANDOM_LINES / 64 * 2, Ways::Full);
    }
    let (warm_up, measured) = (16 * RANDOM_LINES, 32 * RANDOM_LINES);
    let stream = loads(&[(0, 1, false)]);
    let chain = Dependences::new(0, 1, 1);
    let segment = changed(&stream.segments[0], &[chain], |item| item);
    let mut drawn = 1u64;
    let mut next = || {
        drawn =
            drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        VirtAddr::new((0x100 << 12) + (drawn >> 40) % RANDOM_LINES * 64)
    };
    let range = AddrRange::new(VirtAddr::new(0x100 << 12), RANDOM_LINES * 64);
    let pipeline =
        octavo_machine::resolve::<&str>("skylake", &[]).unwrap().into_config().core.pipeline;
    let mut steps = Vec::new();
    for load in 0..warm_up + measured {
        if load % LOADS_OF_PART == 0 {
            steps.push(Step::Event(Event::Advise { range, advice: 0 }));
        }
        steps.push(Step::Segment(0, vec![next()]));
    }
    let llc_hits_and_cycles = |steps: &[Step]| {
        let stream = RandomStream { segments: vec![segment.clone()], steps: steps.to_vec() };
        let (all, _) = counted(machine.clone(), pipeline.as_ref(), &["base4k"], &stream);
        (get(&all[0], "cache.llc", "hits") as f64, get(&all[0], "core", "cycles") as f64)
    };
    let first = steps.len() * 16 / 48;
    let (before, after) = (llc_hits_and_cycles(&steps[..first]), llc_hits_and_cycles(&steps));
    ((after.0 - before.0) / measured as f64, (after.1 - before.1) / measured as f64)
}

/// A line is in the cache if it was read within the last T, the time in which the cache is filled once. With T = x
/// times N loads, a share h = 1 - exp(-x) of the N lines is in the cache; it holds N h lines of the program and T /
/// `every` lines of other cores (Che, Tung and Wang 2002).
#[test]
fn other_cores_hold_the_share_of_the_last_cache_that_they_fill() {
    let (alone, _) = random_loads(0);
    assert!((alone - LLC_LINES as f64 / RANDOM_LINES as f64).abs() < 0.01, "{alone}");
    let mut before = alone;
    for every in [2000, 500, 100] {
        let (hits, load_cycles) = random_loads(every);
        let held = |x: f64| {
            let fills = x * RANDOM_LINES as f64 * load_cycles / f64::from(every);
            RANDOM_LINES as f64 * (1.0 - (-x).exp()) + fills
        };
        let (mut low, mut high) = (0.0, 10.0);
        for _ in 0..60 {
            let middle = (low + high) / 2.0;
            *(if held(middle) < LLC_LINES as f64 { &mut low } else { &mut high }) = middle;
        }
        let expected = 1.0 - f64::exp(-low);
        assert!((hits - expected).abs() < 0.02, "every {every}: {hits}, not {expected}");
        assert!(hits < before, "more of others, less of the program");
        before = hits;
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// Each read of far memory adds the added latency to the charged cycles. (`pom_tlb` is left out: it reads lines in
    /// order to write them, at no cost.)
    #[test]
    fn charged_cycles_grow_by_the_added_latency_of_each_read(
        stream in streams(),
        pipeline in pipelines(),
        is_hosted in any::<bool>(),
    ) {
        let machine = if is_hosted { hosted(tiny(), 30, false) } else { tiny() };
        let names = ["base4k", "thp", "colt", "perforated", "gtsm", "tps", "rmm", "perfect_l2"];
        let (near, _) = counted(machine.clone(), Some(&pipeline), &names, &stream);
        let (far, _) = counted(all_far(machine), Some(&pipeline), &names, &stream);
        let charged = |counters: &Counters| -> u64 {
            let parts = counters
                .iter()
                .filter(|(component, counter, _)| *component == "core" && counter.starts_with("cycles_"));
            parts.map(|(.., cycles)| cycles).sum()
        };
        for ((name, near), far) in names.iter().zip(&near).zip(&far) {
            let reads = get(near, "memory", "reads");
            prop_assert_eq!(get(far, "memory.tier.far", "reads"), reads, "{}", name);
            prop_assert_eq!(charged(far) - charged(near), u64::from(ADDED) * reads, "{}", name);
        }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(40))]

    /// With `Timing::ByStream`, a stream with dependences is timed out of order, any other additively; intervals and
    /// the warm-up follow the chosen timing.
    #[test]
    fn dependences_choose_the_timing(
        stream in prop_oneof![stream(1..400), few_pages(60, 1..400)],
        all in vec(dependences(), 1..40),
        is_dependent in any::<bool>(),
        pipeline in pipelines(),
        (warm_up, interval) in (0u64..1500, prop::option::of(1000u64..2000)),
    ) {
        let unchanged = |item: Item| item;
        let all = if is_dependent { all } else { Vec::new() };
        let segments: Vec<Segment> =
            stream.segments.iter().map(|segment| changed(segment, &all, unchanged)).collect();
        let has_any = stream.steps.iter().any(|step| match step {
            Step::Segment(number, _) => !segments[*number].dependences().is_empty(),
            Step::Event(_) => false,
        });
        let stream = RandomStream { segments, ..stream };
        let mut machine = tiny();
        machine.core.pipeline = Some(pipeline);
        let play = |timing| {
            let mut config = config(machine.clone(), &["base4k", "softvm"]);
            config.timing = timing;
            config.warm_up_instructions = warm_up;
            config.interval_instructions = interval;
            let mut sim = Sim::new(&config).unwrap();
            play(&mut sim, &stream);
            let counted: Vec<_> = sim
                .machines()
                .iter()
                .map(|machine| (machine.counters(), machine.intervals().to_vec()))
                .collect();
            (format!("{counted:?}"), sim.has_dependences())
        };
        let (chosen, has_dependences) = play(Timing::ByStream);
        prop_assume!(has_dependences == has_any, "dependences come late");
        let expected = if has_any { Timing::OutOfOrder } else { Timing::Additive };
        prop_assert_eq!(chosen, play(expected).0);
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(16))]

    /// Every design, native and in a guest: timing changes no other counter, and the cycle stack adds up.
    #[test]
    fn timing_changes_no_other_counter(
        stream in streams(),
        pipeline in pipelines(),
        cores in 1u32..4,
        host in prop::option::of((28u8..34, any::<bool>())),
    ) {
        let mut machine = tiny();
        machine.core.count = cores;
        if let Some((memory_log2, caches_halves)) = host {
            machine = hosted(machine, memory_log2, caches_halves);
        }
        let names = names(&machine);
        let (without, _) = counted(machine.clone(), None, &names, &stream);
        let (with, [instructions, _]) = counted(machine, Some(&pipeline), &names, &stream);
        for ((name, with), without) in names.iter().zip(&with).zip(&without) {
            prop_assert_eq!(untimed(with), untimed(without), "{}", name);
            check_stack(with, name)?;
            prop_assert!(get(with, "core", "instructions") <= instructions, "{}", name);
        }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(40))]

    /// A fast-forwarded warm-up changes no counter except those of timing; without a warm-up, not even these.
    #[test]
    fn fast_forward_changes_no_untimed_counter(
        stream in streams(),
        pipeline in pipelines(),
        warm_up in 0u64..200,
    ) {
        let names: Vec<&str> = designs().iter().map(|design| design.name).collect();
        let mut machine = tiny();
        machine.core.pipeline = Some(pipeline);
        let play = |is_fast_forwarded| {
            let mut config = config(machine.clone(), &names);
            config.timing = Timing::OutOfOrder;
            config.setup.is_checked = false;
            config.warm_up_instructions = warm_up;
            config.is_fast_forwarded = is_fast_forwarded;
            let mut sim = Sim::new(&config).unwrap();
            play(&mut sim, &stream);
            sim.machines().iter().map(|machine| machine.counters()).collect::<Vec<_>>()
        };
        for ((name, fast), executed) in names.iter().zip(play(true)).zip(play(false)) {
            prop_assert_eq!(untimed(&fast), untimed(&executed), "{}", name);
            let instructions = |counters| get(counters, "core", "instructions");
            prop_assert_eq!(instructions(&fast), instructions(&executed), "{}", name);
            if warm_up == 0 {
                let cycles = |counters| get(counters, "core", "cycles");
                prop_assert_eq!(cycles(&fast), cycles(&executed), "{}", name);
            }
            check_stack(&fast, name)?;
        }
    }
}

/// The stream with all addresses moved by `bytes`.
fn moved(stream: &RandomStream, all: &[Dependences], bytes: u64) -> RandomStream {
    let move_addr = |addr: VirtAddr| addr.wrapping_add(bytes);
    let change = |item: Item| match item.kind {
        ItemKind::Fetch => Item { addr: move_addr(item.addr), ..item },
        _ => item,
    };
    let step = |step: &Step| match step {
        Step::Segment(number, addresses) => {
            Step::Segment(*number, addresses.iter().copied().map(move_addr).collect())
        }
        Step::Event(event) => Step::Event(event.clone()),
    };
    RandomStream {
        segments: stream.segments.iter().map(|segment| changed(segment, all, change)).collect(),
        steps: stream.steps.iter().map(step).collect(),
    }
}

/// The first stream on one thread, and then the second on another.
fn joined(first: &RandomStream, second: &RandomStream) -> RandomStream {
    let own = first.segments.len();
    let renumbered = second.steps.iter().cloned().map(|step| match step {
        Step::Segment(number, addresses) => Step::Segment(own + number, addresses),
        event => event,
    });
    let switch = Step::Event(Event::ThreadSwitch { thread: 2 });
    RandomStream {
        segments: [&first.segments[..], &second.segments[..]].concat(),
        steps: first.steps.iter().cloned().chain([switch]).chain(renumbered).collect(),
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(40))]

    /// Two threads that share no line, on two cores: their cycles add up to those of each thread alone.
    #[test]
    fn cores_of_a_machine_add_up(
        first in few_pages(40, 1..80),
        second in few_pages(40, 1..80),
        all in vec(dependences(), 1..40),
        pipeline in pipelines(),
    ) {
        let first = moved(&first, &all, 0);
        let second = moved(&second, &all, 1 << 40);
        let mut machine = with_large_caches(tiny());
        machine.core.count = 2;
        machine.core.pipeline = Some(PipelineConfig { branches: BranchPrediction::Perfect, ..pipeline });
        // A perfect first level, since the threads would share lines of page tables.
        let counters = |stream: &RandomStream| {
            let mut sim = Sim::new(&config(machine.clone(), &["perfect_l1"])).unwrap();
            play(&mut sim, stream);
            sim.machines()[0].counters()
        };
        let [one, two, both] = [&first, &second, &joined(&first, &second)].map(counters);
        for (component, counter, value) in both.iter() {
            if component == "core" || component == "core.stack" {
                let alone = get(&one, component, counter) + get(&two, component, counter);
                prop_assert_eq!(value, alone, "{} {}", component, counter);
            }
        }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(16))]

    /// Machines that one or several host threads simulate in groups count the same as each alone.
    #[test]
    fn grouped_machines_count_what_each_counts_alone(
        stream in streams(),
        pipeline in pipelines(),
        cores in 1u32..4,
        threads in 1usize..4,
        (warm_up, interval) in (0u64..300, prop::option::of(1000u64..2000)),
    ) {
        let mut machine = tiny();
        machine.core.count = cores;
        machine.core.pipeline = Some(pipeline);
        let simulation = |names: &[&str]| {
            let mut config = config(machine.clone(), names);
            config.setup.is_checked = false;
            config.warm_up_instructions = warm_up;
            config.interval_instructions = interval;
            Sim::new(&config).unwrap()
        };
        let counted = |mut sim: Sim| {
            play(&mut sim, &stream);
            let outcomes = sim.machines().iter().map(|machine| format!("{:?}", machine.outcome()));
            outcomes.collect::<Vec<_>>()
        };
        // Only designs with the same stream: another filter would move instructions.
        let shape = simulation(&["base4k"]).stream().clone();
        let names: Vec<&str> = designs()
            .iter()
            .map(|design| design.name)
            .filter(|name| *simulation(&[name]).stream() == shape)
            .collect();
        prop_assert!(names.len() > 8, "too few designs for two groups");
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let together = pool.install(|| counted(simulation(&names)));
        for (name, together) in names.iter().zip(together) {
            prop_assert_eq!(counted(simulation(&[name])), vec![together], "{}", name);
        }
    }
}
