//! Laws of the cost of translation: better translation never takes more cycles.

use crate::common::bounds;
use crate::common::{cache, config, hosted, level, names, play, tiny, translation_cycles};
use octavo_config::{FirstLevel, MachineConfig, WalkStart, Ways};
use octavo_hw::PteEntry;
use octavo_machine::designs::registry::policies;
use octavo_machine::designs::{Setup, TranslationHardware};
use octavo_machine::{AnyMachine, Counters, Sim};
use octavo_oracle::strategies::{RandomStream, few_pages, stream};
use octavo_types::{Instructions, PageSize};
use proptest::prelude::*;

/// The ideal bounds, and hardware with the same first level and the same pages in it, under policies that make no
/// perforated or gapped pages (of these the first level holds base pages). Left out: CoLT and tailored pages, since
/// their first levels hold runs and pages of any size, and direct segments, since they replace look-ups of the first
/// level.
const BOUNDS_AND_OTHERS: [&str; 6] =
    ["perfect_l1", "perfect_l2", "conventional", "rmm", "perforated", "gtsm"];
/// The hardware without bitmaps and shadow nodes in memory, so that pages have the same frames on all of it.
const WITH_EQUAL_FRAMES: [&str; 4] = ["perfect_l1", "perfect_l2", "conventional", "rmm"];
const POLICIES: [&str; 3] = ["base", "thp", "eager"];

/// A machine with this hardware and policy, without a check that they fit together.
fn machine(config: &MachineConfig, hardware: &str, policy: &str) -> Box<dyn AnyMachine> {
    let setup = Setup::new(config, Instructions::PORTABLE).unwrap();
    let policy = policies().parse(policy).unwrap();
    TranslationHardware::by_name(hardware).unwrap().make(config, &setup, &policy).unwrap()
}

/// A stream, and the number of instructions of its warm-up.
#[derive(Clone, Debug)]
struct WarmedStream {
    stream: RandomStream,
    warm_up_instructions: u64,
}

/// Streams of all kinds, and two passes of loads of few pages. In the second pass walks hit the caches, so that they
/// may be shorter than look-ups.
fn streams() -> impl Strategy<Value = WarmedStream> {
    let cold = stream(1..120).prop_map(|stream| WarmedStream { stream, warm_up_instructions: 0 });
    let warm = few_pages(60, 100..300).prop_map(in_two_passes);
    prop_oneof![cold, warm]
}

/// A stream of one instruction per step, played twice; the first pass is the warm-up.
fn in_two_passes(stream: RandomStream) -> WarmedStream {
    let warm_up_instructions = stream.steps.len() as u64;
    let steps = [&stream.steps[..], &stream.steps[..]].concat();
    WarmedStream { stream: RandomStream { steps, ..stream }, warm_up_instructions }
}

/// The counters of machines with these kinds of hardware; `None` if one has run out of memory.
fn counted(
    config: &MachineConfig,
    warmed: &WarmedStream,
    hardware: &[&str],
    policy: &str,
) -> Option<Vec<Counters>> {
    let machines = hardware.iter().map(|name| machine(config, name, policy)).collect();
    let mut setup = crate::common::config(config.clone(), &[]);
    setup.warm_up_instructions = warmed.warm_up_instructions;
    let mut sim = Sim::new(&setup).unwrap().with_machines(machines);
    play(&mut sim, &warmed.stream);
    let have_all_played = sim.machines().iter().all(|machine| machine.stopped().is_none());
    have_all_played.then(|| sim.machines().iter().map(|machine| machine.counters()).collect())
}

/// All cycles beyond those of the instructions.
fn all_cycles(counters: &Counters) -> u64 {
    counters.iter().filter(|(component, ..)| *component == "core").map(|(.., cycles)| cycles).sum()
}

/// The cycles of the shortest walk: one entry, a hit in the first cache that it accesses.
fn shortest_walk(machine: &MachineConfig) -> u32 {
    let entry = match machine.walker.pte_entry {
        PteEntry::L1d => machine.cache.l1d.latency_cycles,
        PteEntry::L2 => machine.cache.l2.latency_cycles,
    };
    machine.walker.overhead_cycles + entry
}

prop_compose! {
    /// Small machines of many kinds, with a second level.
    fn machines()(
        is_unified in any::<bool>(),
        start in prop::sample::select(vec![WalkStart::AfterLookup, WalkStart::WithLookup]),
        pte_entry in prop::sample::select(vec![PteEntry::L1d, PteEntry::L2]),
        overhead_cycles in 0u32..12,
        has_walk_caches in any::<bool>(),
        lookup_cycles in 0u32..40,
        (entries, ways) in prop::sample::select(vec![(4, 4), (12, 3), (24, 2)]),
        is_guest in any::<bool>(),
    ) -> MachineConfig {
        let mut machine = tiny();
        machine.memory.bytes = 1 << 30;
        if is_unified {
            let FirstLevel::Split { l1d, .. } = machine.tlb.first else { unreachable!() };
            machine.tlb.first = FirstLevel::Unified { l1: l1d };
        }
        let sizes = [PageSize::BASE, PageSize::HUGE];
        machine.tlb.l2 = Some(level(lookup_cycles, &[("main", entries, ways, &sizes)]));
        machine.walker.start = start;
        machine.walker.pte_entry = pte_entry;
        machine.walker.overhead_cycles = overhead_cycles;
        if !has_walk_caches {
            machine.walker.caches.clear();
        }
        // With guest halves, TLBs would hold larger pages than those of a bound.
        if is_guest { hosted(machine, 31, false) } else { machine }
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(40))]

    /// Premise: the same first level with the same pages.
    #[test]
    fn perfect_levels_bound_translation_cycles(
        machine in machines(),
        warmed in streams(),
        policy in prop::sample::select(&POLICIES[..]),
    ) {
        let counted = counted(&machine, &warmed, &BOUNDS_AND_OTHERS, policy);
        prop_assume!(counted.is_some());
        let cycles: Vec<u64> = counted.unwrap().iter().map(translation_cycles).collect();
        prop_assert_eq!(cycles[0], 0);
        let least = cycles[2..].iter().min();
        prop_assert!(Some(&cycles[1]) <= least, "{BOUNDS_AND_OTHERS:?}: {cycles:?}");
    }

    /// Premises: caches so large that walks evict nothing, and the same frames. (In small caches, a walk that evicts a
    /// line may move its use to the next level, which then keeps it longer. A frame that is reused after its page was
    /// unmapped still has lines in the caches.)
    #[test]
    fn perfect_levels_bound_total_cycles(
        machine in machines(),
        warmed in streams(),
        policy in prop::sample::select(&POLICIES[..]),
    ) {
        let mut machine = machine;
        let caches = &mut machine.cache;
        for (level, latency_cycles) in [(&mut caches.l1i, 4), (&mut caches.l1d, 4), (&mut caches.l2, 12), (&mut caches.llc, 40)] {
            *level = cache(1 << 20, 1, latency_cycles);
            level.ways = Ways::Full;
        }
        let counted = counted(&machine, &warmed, &WITH_EQUAL_FRAMES, policy);
        prop_assume!(counted.is_some());
        let cycles: Vec<u64> = counted.unwrap().iter().map(all_cycles).collect();
        prop_assert!(cycles[0] <= cycles[1], "{cycles:?}");
        let least = cycles[2..].iter().min();
        prop_assert!(Some(&cycles[1]) <= least, "{WITH_EQUAL_FRAMES:?}: {cycles:?}");
    }

    /// Premise: a look-up takes no longer than the shortest walk.
    #[test]
    fn missing_second_level_costs_at_least_a_perfect_one(
        machine in machines(),
        warmed in streams(),
        policy in prop::sample::select(&POLICIES[..]),
    ) {
        let mut machine = machine;
        let mut without = machine.clone();
        without.tlb.l2 = None;
        let l2 = machine.tlb.l2.as_mut().unwrap();
        l2.hit_latency_cycles = l2.hit_latency_cycles.min(shortest_walk(&without));
        let perfect = counted(&machine, &warmed, &["perfect_l2"], policy);
        let none = counted(&without, &warmed, &["conventional"], policy);
        prop_assume!(perfect.is_some() && none.is_some());
        let cycles = [perfect, none].map(|counted| translation_cycles(&counted.unwrap()[0]));
        prop_assert!(cycles[0] <= cycles[1], "{cycles:?}");
    }

    /// The same for a second level that holds all pages after a first pass. Loads only: the first store to a page walks
    /// to mark it.
    #[test]
    fn missing_second_level_costs_at_least_one_that_always_hits(
        machine in machines(),
        stream in few_pages(40, 1..150),
    ) {
        let mut with = machine;
        with.tlb.l2.as_mut().unwrap().arrays[0].entries = 64;
        with.tlb.l2.as_mut().unwrap().arrays[0].ways = Ways::Full;
        let mut without = with.clone();
        without.tlb.l2 = None;
        let l2 = with.tlb.l2.as_mut().unwrap();
        l2.hit_latency_cycles = l2.hit_latency_cycles.min(shortest_walk(&without));
        let warmed = in_two_passes(stream);
        let second_pass = |machine| counted(&machine, &warmed, &["conventional"], "base").unwrap();
        let (hits, none) = (&second_pass(with)[0], &second_pass(without)[0]);
        prop_assert_eq!(hits.get("tlb.l2", "misses"), Some(0));
        prop_assert_eq!(hits.get("walker", "walks"), Some(0));
        prop_assert!(translation_cycles(hits) <= translation_cycles(none));
    }

    /// Walks that start with the look-up hide part of its cycles, and change no other counter.
    #[test]
    fn concurrent_walk_start_never_costs_more(
        machine in machines(),
        caches_halves in any::<bool>(),
        stream in stream(1..80),
    ) {
        let is_guest = machine.host.is_some() && caches_halves;
        let machine = if is_guest { hosted(machine, 31, true) } else { machine };
        let names = names(&machine);
        let counted = |start| {
            let mut machine = machine.clone();
            machine.walker.start = start;
            let mut config = config(machine, &names);
            config.setup.is_checked = false;
            let mut sim = Sim::new(&config).unwrap();
            play(&mut sim, &stream);
            sim.machines().iter().map(|machine| machine.counters()).collect::<Vec<_>>()
        };
        let (after, with) = (counted(WalkStart::AfterLookup), counted(WalkStart::WithLookup));
        for ((name, after), with) in names.iter().zip(&after).zip(&with) {
            let others = |counters| {
                let is_other = |counter: &str| !counter.starts_with("cycles_");
                bounds::listed(counters, |_, counter, _| is_other(counter))
            };
            prop_assert_eq!(others(after), others(with), "{}", name);
            prop_assert!(translation_cycles(with) <= translation_cycles(after), "{}", name);
            // The cycles of a look-up that hits are never hidden.
            let hits = with.get("tlb.l2", "hits").unwrap_or(0);
            let lookup_cycles = u64::from(machine.tlb.l2.as_ref().unwrap().hit_latency_cycles);
            prop_assert!(with.get("core", "cycles_tlb_l2").unwrap_or(0) >= hits * lookup_cycles, "{}", name);
        }
    }
}
