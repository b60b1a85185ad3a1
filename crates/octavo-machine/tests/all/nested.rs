//! Machines with a guest match the naive machine exactly, while the host promotes, compacts and copies pages, and
//! snapshots its virtual machine.

mod gaps;
mod machines;
mod play;
mod policies;

use crate::common::{check_laws, config, has_run_out, stream_with_present, translation_cycles};
use machines::{Kind, NestedDesign, kind, kind_with_gaps, kind_with_holes, machine};
use octavo_config::{MachineConfig, TlbsHold};
use octavo_machine::designs::GtsmSettings;
use octavo_machine::designs::softvm::SoftvmConfig;
use octavo_machine::designs::{Variant, colt};
use octavo_machine::{
    Batch, ControlEvent, Counters, FetchSets, Filter, Front, Image, ImageId, Lines, Sim,
};
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_types::Instructions;
use play::{SideEvent, SideEvents, asides, play, play_naively};
use policies::HostPolicy;
use proptest::prelude::*;

fn compare(
    design: NestedDesign,
    kind: Kind,
    stream: &RandomStream,
    asides: &SideEvents,
) -> Result<Counters, TestCaseError> {
    let config = machine(kind);
    prop_assert_eq!(config.check(), Ok(()));
    let play_on = |instructions| {
        let mut machine = design.machine(&config, kind.policy, instructions);
        play(&mut *machine, (&config, kind.policy), stream, asides);
        machine
    };
    let machines: Vec<_> = Instructions::all().into_iter().map(|set| (set, play_on(set))).collect();
    if has_run_out(&*machines[0].1) {
        return Ok(machines[0].1.counters());
    }
    let mut naive = design.naive(&config, kind.policy);
    play_naively(&mut naive, stream, asides);
    let expected = naive.counters();
    if naive.was_torn() {
        return Ok(expected);
    }
    for (instructions, machine) in machines {
        prop_assert_eq!(machine.stopped(), None);
        prop_assert_eq!(machine.check(), Ok(()));
        let (ours, case) = (machine.counters(), format!("{instructions}, {design:?}, {kind:?}"));
        prop_assert_eq!(translation_cycles(&ours), naive.translation_cycles(), "{}", case);
        check_equal(&ours, &expected, &case)?;
    }
    Ok(expected)
}

/// Checks that the counters of a machine match the expected ones.
fn check_equal(ours: &Counters, expected: &Counters, case: &str) -> Result<(), TestCaseError> {
    let differ = expected.iter().filter_map(|(component, counter, value)| {
        let actual = ours.get(component, counter);
        let is_right = actual == Some(value);
        (!is_right).then(|| format!("{component} {counter}: {actual:?}, not {value}"))
    });
    let differ: Vec<String> = differ.collect();
    prop_assert!(differ.is_empty(), "{case}: {differ:#?}");
    check_laws(ours)
}

/// Checks that none of these counters is 0 after a stream on a conventional machine.
fn check_occur(
    kind: Kind,
    stream: &RandomStream,
    asides: &SideEvents,
    counters: &[(&str, &'static str)],
) {
    check_occur_with(NestedDesign::Conventional("thp"), kind, stream, asides, counters);
}

fn check_occur_with(
    design: NestedDesign,
    kind: Kind,
    stream: &RandomStream,
    asides: &SideEvents,
    counters: &[(&str, &'static str)],
) {
    let counted = compare(design, kind, stream, asides).unwrap();
    for (component, counter) in counters {
        assert!(counted.get(component, counter) > Some(0), "{kind:?}: no {component} {counter}");
    }
}

proptest! {
    // The host maps whole regions at once, and all of their pages are compared.
    #![proptest_config(octavo_oracle::cases(16))]

    #[test]
    fn range_machines_match_the_naive_machine(stream in stream(1..120), asides in asides(), kind in kind()) {
        let kind = Kind { policy: HostPolicy::Eager, ..kind };
        compare(NestedDesign::Ranges, kind, &stream, &asides)?;
        compare(NestedDesign::Segment, kind, &stream, &asides)?;
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(40))]

    #[test]
    fn conventional_machines_match_the_naive_machine(
        stream in stream(1..120),
        asides in asides(),
        kind in kind(),
    ) {
        compare(NestedDesign::Conventional("base"), kind, &stream, &asides)?;
        compare(NestedDesign::Conventional("thp"), kind, &stream, &asides)?;
    }

    #[test]
    fn machines_match_the_naive_machine_where_memory_is_present(
        stream in stream_with_present(1..120),
        asides in asides(),
        kind in kind(),
        with_holes in kind_with_holes(),
        with_gaps in kind_with_gaps(),
    ) {
        for policy in ["base", "thp"] {
            compare(NestedDesign::Conventional(policy), kind, &stream, &asides)?;
        }
        let perforated = NestedDesign::Perforated("perforated", Variant::Filtered);
        compare(perforated, with_holes, &stream, &asides)?;
        compare(NestedDesign::Gapped("gtsm"), with_gaps, &stream, &asides)?;
    }

    #[test]
    fn coalescing_machines_match_the_naive_machine(stream in stream(1..120), asides in asides(), kind in kind()) {
        for coalescing in [colt::ALL, colt::SETS, colt::FULLY_ASSOCIATIVE] {
            compare(NestedDesign::Coalescing("base", coalescing), kind, &stream, &asides)?;
        }
        compare(NestedDesign::Coalescing("thp", colt::ALL), kind, &stream, &asides)?;
    }

    #[test]
    fn perforated_machines_match_the_naive_machine(
        stream in stream(1..120),
        asides in asides(),
        kind in kind_with_holes(),
    ) {
        for (policy, variant) in [
            ("perforated:max_filter_bits=8:min_parts=0", Variant::Filtered),
            ("perforated:unused_are_holes=true", Variant::OnDemand),
            ("perforated:max_filter_bits=8:hole_pages=mapped", Variant::AllAtOnce),
            ("thp", Variant::Filtered),
            ("base", Variant::Filtered),
        ] {
            compare(NestedDesign::Perforated(policy, variant), kind, &stream, &asides)?;
        }
    }

    #[test]
    fn gtsm_machines_match_the_naive_machine(
        stream in stream(1..120),
        asides in asides(),
        kind in kind_with_gaps(),
    ) {
        for policy in ["gtsm", "gtsm:whole_blocks=false:scan_every_instructions=1", "base"] {
            compare(NestedDesign::Gapped(policy), kind, &stream, &asides)?;
        }
    }

    /// Virtual caches and software-refilled TLBs hold no page that the host has moved or write-protected: every access
    /// is checked against both tables.
    #[test]
    fn softvm_observes_host_changes(
        stream in stream(1..120),
        asides in asides(),
        kind in kind(),
    ) {
        let mut config = machine(kind);
        // No line is evicted.
        let mut softvm = *config.designs.get::<SoftvmConfig>();
        softvm.l2.bytes = 1 << 18;
        config.designs.set(softvm);
        prop_assert_eq!(config.check(), Ok(()));
        for design in
            [NestedDesign::Software, NestedDesign::SoftwareTlb, NestedDesign::PhysicalSoftwareTlb]
        {
            let mut machine = design.machine(&config, kind.policy, Instructions::PORTABLE);
            play(&mut *machine, (&config, kind.policy), &stream, &asides);
            prop_assert_eq!(machine.stopped(), None);
            prop_assert_eq!(machine.check(), Ok(()));
            check_laws(&machine.counters())?;
            prop_assert_eq!(machine.counters().get("walker", "walks"), Some(0), "nothing walks");
        }
    }

    /// The front of a simulation filters out only references that cannot change a count, with or without guest halves.
    #[test]
    fn nested_simulations_match_the_naive_machine(stream in stream(1..120), kind in kind()) {
        let kind = Kind { policy: HostPolicy::Base, is_fragmented: false, ..kind };
        let conventional = ["base", "thp"].map(NestedDesign::Conventional);
        compare_simulated(machine(kind), "base", kind, &["base4k", "thp"], &conventional, &stream)?;
    }

    /// GTSM simulations match too, with separate walk caches for both tables.
    #[test]
    fn nested_gtsm_simulations_match_the_naive_machine(
        stream in stream(1..120),
        kind in kind_with_gaps(),
        walk_cache_entries in 0u64..4,
    ) {
        let kind = Kind { policy: HostPolicy::GapsAlone, has_faults: true, ..kind };
        let mut machine = machine(kind);
        let gtsm = *machine.designs.get::<GtsmSettings>();
        machine.designs.set(GtsmSettings { walk_cache_entries, ..gtsm });
        let (host_policy, gapped) = ("gtsm:whole_blocks=false", [NestedDesign::Gapped("gtsm")]);
        compare_simulated(machine, host_policy, kind, &["gtsm"], &gapped, &stream)?;
    }
}

fn compare_simulated(
    mut machine: MachineConfig,
    host_policy: &str,
    kind: Kind,
    designs: &[&str],
    nested: &[NestedDesign],
    stream: &RandomStream,
) -> Result<(), TestCaseError> {
    machine.host.as_mut().unwrap().policy = host_policy.to_owned();
    let mut sim = Sim::new(&config(machine.clone(), designs)).unwrap();
    sim.event(&octavo_machine::everything());
    crate::common::play(&mut sim, stream);
    for (simulated, design) in sim.machines().iter().zip(nested) {
        let mut naive = design.naive(&machine, kind.policy);
        play_naively(&mut naive, stream, &Vec::new());
        check_equal(&simulated.counters(), &naive.counters(), &format!("{design:?}, {kind:?}"))?;
    }
    Ok(())
}

/// Two cores load a page of the same guest. The host forks the virtual machine, so that both cores must drop all
/// translations: the core that is not running is interrupted.
#[test]
fn invept_reaches_all_cores() {
    let kind = Kind {
        machine: 0,
        host: 2,
        policy: HostPolicy::Snapshots,
        tlbs_hold: TlbsHold::Final,
        is_fragmented: false,
        movable: true,
        is_guest_fragmented: false,
        has_faults: false,
    };
    let mut config = machine(kind);
    config.core.count = 2;
    let mut machine =
        NestedDesign::Conventional("base").machine(&config, kind.policy, Instructions::PORTABLE);
    let lines = Lines::of_bytes(64);
    let mut front = Front::new(lines, Filter::Nothing, FetchSets::new(4, lines));
    let mut image = Image::new(4);
    let stream = octavo_oracle::strategies::loads(&[(0, 1, false)]);
    let Step::Segment(number, addresses) = &stream.steps[0] else { unreachable!() };
    let mut load = |front: &mut Front| {
        front.execution(&mut image, *number, &stream.segments[*number], addresses);
    };
    front.push_event(ControlEvent::Spawn { image: ImageId(0), copy_of: None });
    for core in [0, 1] {
        front.switch(core, ImageId(0));
        load(&mut front);
    }
    front.push_event(ControlEvent::WarmUpEnd);
    front.push_event(ControlEvent::Tick(1));
    for core in [1, 0] {
        front.switch(core, ImageId(0));
        load(&mut front);
    }
    machine.play(&front.take_batch(Batch::default()));
    assert_eq!(machine.check(), Ok(()));
    let counters = machine.counters();
    let get = |component, counter| counters.get(component, counter).unwrap();
    // One INVEPT for the fork, and two for copies of the page-table nodes of code and data: the first core walks them,
    // and walkers may write to guest nodes.
    assert_eq!((get("host.os", "invepts"), get("host.os", "cores_interrupted")), (3, 3));
    assert_eq!(get("host.os", "copy_on_write_faults"), 2);
    for side in ["tlb.l1i", "tlb.l1d", "tlb.l2"] {
        let walked = if side == "tlb.l2" { 4 } else { 2 };
        assert_eq!((side, get(side, "misses")), (side, walked));
    }
    // The guest's walk caches are kept, so that each of the four walks reads one guest entry. The host's table is
    // walked for the entry and for the page, and again after each copy.
    assert_eq!(get("walker.guest", "references"), 4);
    assert_eq!(get("walker.host", "walks"), 4 * 2 + 2);
}

/// Two passes of stores through many pages of a heap, with background work in between.
fn heap_passes() -> (RandomStream, SideEvents) {
    use octavo_types::{Item, ItemKind, Segment, VirtAddr};
    let item = |kind, addr| Item::new(kind, 8, VirtAddr::new(addr));
    let items = vec![item(ItemKind::Fetch, 0x40_0000), item(ItemKind::Store, 0)];
    let pages = (0..1200u64).chain((0..600).map(|page| page * 2));
    let steps = pages.map(|page| Step::Segment(0, vec![VirtAddr::new(0x1000_0000 + (page << 12))]));
    let stream = RandomStream {
        segments: vec![Segment::new(items, Vec::new()).unwrap()],
        steps: steps.collect(),
    };
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    use proptest::strategy::ValueTree;
    let index = prop::sample::Index::arbitrary();
    let mut aside = |event| (index.new_tree(&mut runner).unwrap().current(), event);
    (stream, (0..8).map(|_| aside(SideEvent::Tick)).collect())
}

const fn heap_kind(policy: HostPolicy, is_fragmented: bool, tlbs_hold: TlbsHold) -> Kind {
    Kind {
        machine: 0,
        host: 2,
        policy,
        tlbs_hold,
        is_fragmented,
        movable: true,
        is_guest_fragmented: false,
        has_faults: false,
    }
}

/// No compared counter is always 0.
#[test]
fn compared_events_occur() {
    let (stream, asides) = heap_passes();
    let kind = heap_kind;
    let fills = [("tlb.nested", "hits"), ("tlb.nested", "misses"), ("walker.host", "marked")];
    check_occur(kind(HostPolicy::Base, false, TlbsHold::Final), &stream, &asides, &fills);
    let splintered = [("walker", "splintered"), ("walker.host.cache.l2", "hits")];
    check_occur(kind(HostPolicy::Base, false, TlbsHold::Halves), &stream, &asides, &splintered);
    let promoted = [("host.os", "invepts"), ("host.os", "promotions")];
    check_occur(kind(HostPolicy::Promotes, false, TlbsHold::Final), &stream, &asides, &promoted);
    check_occur(kind(HostPolicy::Promotes, false, TlbsHold::Halves), &stream, &asides, &promoted);
    let compacted = [("host.os", "invepts"), ("host.os", "frames_compacted")];
    check_occur(kind(HostPolicy::Compacts, true, TlbsHold::Final), &stream, &asides, &compacted);
    let copied = [("host.os", "invepts"), ("host.os", "copy_on_write_faults")];
    check_occur(kind(HostPolicy::Snapshots, false, TlbsHold::Final), &stream, &asides, &copied);
    check_occur(kind(HostPolicy::HugeSnapshots, true, TlbsHold::Halves), &stream, &asides, &copied);
    let design = NestedDesign::Perforated("perforated:max_filter_bits=8", Variant::Filtered);
    let as_perforated = |policy| Kind {
        movable: false,
        is_guest_fragmented: true,
        ..kind(policy, true, TlbsHold::Final)
    };
    let both_sides = [
        ("walker", "hole_walks"),
        ("walker.guest", "bitmap_references"),
        ("walker.host", "bitmap_references"),
        ("walker.host", "hole_walks"),
        ("walker.bitmap_register", "hits"),
        ("tlb.l2.bitmap", "hits"),
        ("tlb.l2.content", "entries_perforated"),
    ];
    check_occur_with(design, as_perforated(HostPolicy::Perforated), &stream, &asides, &both_sides);
    let patched = [("host.os", "invepts"), ("tlb.flushes", "made")];
    let reserving = Kind { is_fragmented: false, ..as_perforated(HostPolicy::Reserving) };
    check_occur_with(design, reserving, &stream, &asides, &patched);
    let splintered = [("walker", "splintered"), ("walker", "hole_walks")];
    check_occur_with(design, as_perforated(HostPolicy::Base), &stream, &asides, &splintered);
}
