//! Machines whose programs run in a guest count exactly what naive ones do, while the host promotes,
//! compacts, copies and takes snapshots of its virtual machine.

mod common;
#[path = "nested/machines.rs"]
mod machines;
#[path = "nested/play.rs"]
mod play;
#[path = "nested/policies.rs"]
mod policies;

use common::check_laws;
use machines::{Kind, Translates, kind, machine};
use octavo_config::TlbsHold;
use octavo_machine::Counters;
use octavo_machine::designs::colt;
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_types::Instructions;
use play::{Aside, Asides, asides, play, play_naively};
use policies::HostPolicy;
use proptest::prelude::*;

fn compare(
    translates: Translates,
    kind: Kind,
    stream: &RandomStream,
    asides: &Asides,
) -> Result<Counters, TestCaseError> {
    let config = machine(kind);
    prop_assert_eq!(config.check(), Ok(()));
    let mut naive = translates.naive(&config, kind.policy);
    play_naively(&mut naive, stream, asides);
    let expected = naive.counters();
    if naive.was_torn() {
        return Ok(expected);
    }
    for instructions in Instructions::all() {
        let mut machine = translates.machine(&config, kind.policy, instructions);
        play(&mut *machine, (&config, kind.policy), stream, asides);
        prop_assert_eq!(machine.stopped(), None);
        prop_assert_eq!(machine.check(), Ok(()));
        let ours = machine.counters();
        let differ = expected.iter().filter_map(|(component, counter, value)| {
            let told = ours.get(component, counter);
            let is_right = told == Some(value);
            (!is_right).then(|| format!("{component} {counter}: {told:?}, not {value}"))
        });
        let differ: Vec<String> = differ.collect();
        prop_assert!(differ.is_empty(), "{instructions}, {translates:?}, {kind:?}: {differ:#?}");
        check_laws(&ours)?;
    }
    Ok(expected)
}

/// That a stream of one kind makes all of this happen.
fn makes(kind: Kind, stream: &RandomStream, asides: &Asides, what: &[(&str, &'static str)]) {
    let counted = compare(Translates::Conventional("thp"), kind, stream, asides).unwrap();
    for (component, counter) in what {
        assert!(counted.get(component, counter) > Some(0), "{kind:?}: no {component} {counter}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn conventional_machines_count_what_naive_ones_do(
        stream in stream(1..120),
        asides in asides(),
        kind in kind(),
    ) {
        compare(Translates::Conventional("base"), kind, &stream, &asides)?;
        compare(Translates::Conventional("thp"), kind, &stream, &asides)?;
    }

    #[test]
    fn so_do_those_that_coalesce(stream in stream(1..120), asides in asides(), kind in kind()) {
        for coalescing in [colt::ALL, colt::SETS, colt::FULLY_ASSOCIATIVE] {
            compare(Translates::Coalescing("base", coalescing), kind, &stream, &asides)?;
        }
        compare(Translates::Coalescing("thp", colt::ALL), kind, &stream, &asides)?;
    }

    #[test]
    fn so_do_those_with_ranges(stream in stream(1..120), asides in asides(), kind in kind()) {
        let kind = Kind { policy: HostPolicy::Eager, ..kind };
        compare(Translates::Ranges, kind, &stream, &asides)?;
        compare(Translates::Segment, kind, &stream, &asides)?;
    }
}

/// Stores that go through many pages of a heap twice, with work of the operating systems in between:
/// nothing that is compared above is always 0.
#[test]
fn what_is_compared_happens() {
    use octavo_types::{Item, ItemKind, Segment, VirtAddr};
    let item = |kind, addr| Item {
        kind,
        guarded: false,
        atomic: false,
        size_bytes: 8,
        addr: VirtAddr::new(addr),
    };
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
    let mut aside = |what| (index.new_tree(&mut runner).unwrap().current(), what);
    let asides: Asides = (0..8).map(|_| aside(Aside::Tick)).collect();
    let kind = |policy, is_fragmented, tlbs_hold| Kind {
        machine: 0,
        host: 2,
        policy,
        tlbs_hold,
        is_fragmented,
    };
    let fills = [("tlb.nested", "hits"), ("tlb.nested", "misses"), ("walker.host", "marked")];
    makes(kind(HostPolicy::Base, false, TlbsHold::Final), &stream, &asides, &fills);
    let splintered = [("walker", "splintered"), ("walker.host.cache.l2", "hits")];
    makes(kind(HostPolicy::Base, false, TlbsHold::Halves), &stream, &asides, &splintered);
    let promoted = [("host.os", "invepts"), ("host.os", "promotions")];
    makes(kind(HostPolicy::Promotes, false, TlbsHold::Final), &stream, &asides, &promoted);
    makes(kind(HostPolicy::Promotes, false, TlbsHold::Halves), &stream, &asides, &promoted);
    let compacted = [("host.os", "invepts"), ("host.os", "frames_compacted")];
    makes(kind(HostPolicy::Compacts, true, TlbsHold::Final), &stream, &asides, &compacted);
    let copied = [("host.os", "invepts"), ("host.os", "copy_on_write_faults")];
    makes(kind(HostPolicy::Snapshots, false, TlbsHold::Final), &stream, &asides, &copied);
    makes(kind(HostPolicy::HugeSnapshots, true, TlbsHold::Halves), &stream, &asides, &copied);
}
