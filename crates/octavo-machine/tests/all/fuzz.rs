//! Processes that map, touch, unmap, move, protect, fork and exit at random, on machines of all designs at once, with
//! much or little memory, while the operating systems promote and merge in the background. Every translation matches
//! the page table, no frame is lost, and counts add up.

use crate::common::{
    any_size_first, check_laws, config, hosted, identity, names, stream_with_present, tiny,
};
use octavo_config::{AddressSpaces, Fill, FragmentationConfig};
use octavo_machine::Sim;
use octavo_oracle::strategies::Step;
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_trace::{StreamEnd, TimeSlicedConsumer, WordConsumer};
use octavo_types::{Item, ItemKind, Segment, VirtAddr};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// Designs with settings, in addition to the named designs.
const OTHERS: [&str; 16] = [
    "perforated:scan_every_instructions=1:unused_are_holes=true",
    "perforated_all:scan_every_instructions=1:min_parts=0",
    "perforated_on_demand:scan_every_instructions=1:hole_pages=mapped:max_immovable_percent=100",
    "perforated:scan_every_instructions=1:same_pages=all:same_pages_every_instructions=1",
    "thp:scan_every_instructions=1:same_pages=all:same_pages_every_instructions=1",
    "tps:same_pages=base:same_pages_every_instructions=1",
    "softvm:same_pages=all:same_pages_every_instructions=1",
    "gtsm:scan_every_instructions=1",
    "gtsm:scan_every_instructions=1:whole_blocks=false:gtsm.bitmap_entries=64",
    "conventional+thp:scan_every_instructions=1",
    "colt+thp:scan_every_instructions=1",
    "colt_fa+reserved_thp:promotion_threshold_percent=50",
    "colt_sa+eager",
    "tps:promotion_threshold_percent=50:merge_every_instructions=1",
    "tps:size_encoding=one-bit:span=round-up:merge_every_instructions=1",
    "direct_segment+eager:largest=4KiB",
];
/// Maximum number of live processes.
const MAX_LIVE: usize = 4;
/// Steps of all processes of one machine in a long run.
const STEPS_OF_A_MACHINE: u64 = 4000;

/// A segment of many instructions in one line, after which background work is due.
fn long_segment(instructions: u64) -> Segment {
    let item = Item::new(ItemKind::Fetch, 4, VirtAddr::new(0x40_0000));
    Segment::new(vec![item; instructions as usize], Vec::new()).unwrap()
}

/// Numbers of events on all machines.
#[derive(Default, Debug)]
struct EventCounts {
    forks: u64,
    stopped: u64,
    promotions: u64,
    copies: u64,
    invepts: u64,
    punches: u64,
    patches: u64,
    hole_walks: u64,
    gapped: u64,
    merged: u64,
    unmerged: u64,
}

fn play(number: u64, runner: &mut TestRunner, steps: u64, seen: &mut EventCounts) {
    let mut machine = tiny();
    machine.core.count = 1 + (number % 3) as u32;
    let address_spaces = [AddressSpaces::Tagged, AddressSpaces::Flushed];
    machine.core.address_spaces = address_spaces[(number / 3 % 2) as usize];
    if number % 4 == 1 {
        machine.memory.fragmentation = FragmentationConfig::Holes {
            portion: 1.0,
            fraction: 0.2,
            layout: HoleLayout::Clustered,
            holes: HoleKind::Movable,
            seed: number,
        };
    }
    if number % 4 == 2 {
        let (portion, layout) = (0.03, HoleLayout::Dispersed);
        machine.memory.fragmentation =
            FragmentationConfig::Faults { portion, layout, seed: number };
    }
    if number % 4 == 3 {
        machine.memory.bytes = 6 << 20;
    }
    if number % 5 < 2 {
        machine.tlb.l2.as_mut().unwrap().fill = Fill::Victim;
    }
    if number % 5 == 1 {
        machine.tlb.first = any_size_first();
    }
    if number % 2 == 1 {
        // Sometimes the host has little memory, too.
        machine = hosted(machine, if number % 8 == 5 { 23 } else { 33 }, number % 4 == 1);
    }
    let is_native = machine.host.is_none();
    // Policies that merge pages must observe every store.
    let is_possible = |name: &&str| is_native || !name.contains("same_pages");
    let names: Vec<&str> = names(&machine).into_iter().chain(OTHERS).filter(is_possible).collect();
    let mut sim = Sim::new(&config(machine, &names)).unwrap();
    let pieces = stream_with_present(1..200);
    let long = long_segment(1 << 12);
    // Live processes, each with the number of its next segment.
    let (mut live, mut begun, mut done) = (vec![(0, 1)], 1, 0);
    sim.begun(&identity(0, None));
    while done < steps {
        let draw = (0u32..100, any::<prop::sample::Index>());
        let (action, index) = draw.new_tree(runner).unwrap().current();
        let at = index.index(live.len());
        let process = live[at].0;
        sim.switch_to(process);
        if action < 20 && live.len() < MAX_LIVE {
            sim.begun(&identity(begun, Some(process)));
            live.push((begun, 1));
            begun += 1;
            seen.forks += 1;
        } else if action < 30 && live.len() > 1 {
            sim.process_ended(&identity(process, None), &StreamEnd::PLAIN);
            live.remove(at);
        } else {
            let piece = pieces.new_tree(runner).unwrap().current();
            let first = live[at].1;
            for step in &piece.steps {
                match step {
                    Step::Segment(segment, addresses) => {
                        let mut words = vec![first + *segment as u64];
                        words.extend(piece.segments[*segment].addresses_of_groups(addresses));
                        sim.execution(&piece.segments[*segment], &words);
                    }
                    Step::Event(event) => sim.event(event),
                }
            }
            live[at].1 += piece.segments.len() as u64;
            done += piece.steps.len() as u64;
            (0..64).for_each(|_| sim.execution(&long, &[0]));
        }
    }
    sim.finish();
    for (name, machine) in names.iter().zip(sim.machines()) {
        assert_eq!(machine.check(), Ok(()), "{name}");
        let counters = machine.counters();
        check_laws(&counters).unwrap();
        let get = |counter| counters.get("os", counter).unwrap();
        seen.promotions += get("promotions");
        seen.copies += get("copy_on_write_faults");
        seen.invepts += counters.get("host.os", "invepts").unwrap_or(0);
        seen.punches += counters.get("os", "punches").unwrap_or(0);
        seen.patches += counters.get("os", "patches").unwrap_or(0);
        seen.hole_walks += counters.get("walker", "hole_walks").unwrap_or(0);
        seen.merged += counters.get("os", "pages_merged").unwrap_or(0);
        seen.unmerged += counters.get("os", "pages_unmerged").unwrap_or(0);
        seen.gapped += counters.get("os", "gapped").unwrap_or(0);
        seen.stopped += u64::from(machine.stopped().is_some());
    }
}

fn run(machines: u64, steps: u64) {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut seen = EventCounts::default();
    for number in 0..machines {
        play(number, &mut runner, steps, &mut seen);
        println!("{number}: {seen:?}");
    }
    let EventCounts {
        forks,
        stopped,
        promotions,
        copies,
        invepts,
        punches,
        patches,
        hole_walks,
        gapped,
        merged,
        unmerged,
    } = seen;
    let counts = [
        forks, stopped, promotions, copies, invepts, punches, patches, hole_walks, gapped, merged,
        unmerged,
    ];
    assert!(counts.iter().all(|count| *count > 0), "{seen:?}");
}

#[test]
fn random_steps_match_the_model() {
    run(4, 1000);
}

/// A million steps on each machine, or `OCTAVO_FUZZ_STEPS`.
#[test]
#[ignore = "takes minutes"]
fn a_million_random_steps_match_the_model() {
    let steps = std::env::var("OCTAVO_FUZZ_STEPS").ok().map(|text| text.parse().unwrap());
    run(steps.unwrap_or(1_000_000u64).div_ceil(STEPS_OF_A_MACHINE), STEPS_OF_A_MACHINE);
}
