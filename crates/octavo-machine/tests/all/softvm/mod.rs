//! Software-managed translation compared with a naive machine that models the contents of lines. Processes map, share,
//! protect, move, fork and exit at random: counters match, no load returns stale data, and no store is lost.

mod naive;
mod settings;
mod streams;

use crate::common::{config, identity, tiny, virtual_cache};
use naive::{Design, Naive};
use octavo_config::{AddressSpaces, MachineConfig};
use octavo_machine::designs::softvm::SoftvmConfig;
use octavo_machine::designs::softvm::{
    Aliasing, IncreasedRights, Sharing, SoftTlbConfig, SoftvmRates, TableKind, WriteBackTranslation,
};
use octavo_machine::designs::{DesignSpec, Sizes};
use octavo_machine::{Counters, Sim};
use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::{Memory, ProcessId};
use octavo_trace::{StreamEnd, TimeSlicedConsumer, WordConsumer};
use octavo_types::{
    Access, AddrRange, Event, Instructions, Item, ItemKind, MapSource, Protection, Segment,
    VirtAddr,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use streams::{CODE, Step, is_sound, step};

/// Maximum number of live processes.
const MAX_LIVE: usize = 4;

fn machine(kind: u32) -> MachineConfig {
    let mut machine = tiny();
    let mut softvm = *machine.designs.get::<SoftvmConfig>();
    softvm.tlb = SoftTlbConfig { entries: 5, reserved: 2 };
    match kind {
        0 => {}
        1 => {
            softvm.kernel.write_back = WriteBackTranslation::Kept;
            softvm.rates =
                SoftvmRates { protections_per_billion: 60 << 20, dma_pages_per_billion: 20 << 20 };
        }
        2 => {
            // Segments and software distinguish processes, even if hardware TLBs are flushed.
            machine.core.address_spaces = AddressSpaces::Flushed;
            softvm.kernel.increase = IncreasedRights::Eager;
            softvm.rates.protections_per_billion = 100 << 20;
            softvm.l2 = virtual_cache(512, 1);
        }
        3 => {
            // First-level lines of the paper's size, with larger second-level lines.
            machine.cache.line_bytes = 16;
            softvm.l1.ways = octavo_config::Ways::Of(2);
            softvm.l2.line_bytes = Some(64);
            softvm.l2.bytes = 1 << 15;
            softvm.kernel.protection_bytes = 64;
            softvm.rates.protections_per_billion = 200 << 20;
        }
        4 => softvm.kernel.table = TableKind::Hierarchical,
        5 => {
            softvm.kernel.table = TableKind::Inverted;
            // Few anchors, so that chains have several pages.
            machine.memory.bytes = 4 << 20;
        }
        6 => softvm.kernel.sharing = Sharing::Aliased,
        7 => softvm.kernel.aliases = Aliasing::Refuse,
        8 | 9 => softvm.kernel.table = TableKind::Guarded,
        10 => softvm.kernel.table = TableKind::Hierarchical,
        _ => {
            // First-level lines larger than the access lines of the machine.
            machine.cache.line_bytes = 16;
            softvm.l1.line_bytes = Some(64);
            softvm.l2.line_bytes = Some(128);
            softvm.l2.bytes = 1 << 16;
            softvm.kernel.handler_instructions = 23;
            softvm.kernel.protection_bytes = 256;
            softvm.kernel.increase = IncreasedRights::Eager;
            softvm.rates.protections_per_billion = 100 << 20;
        }
    }
    machine.designs.set(softvm);
    machine
}

const KINDS: u32 = 12;

/// The suffix of a design name that selects the policy; some kinds have 2 MiB pages.
fn policy(kind: u32) -> &'static str {
    if matches!(kind, 9 | 10) { "+fixed:size=2MiB" } else { "" }
}

fn naive(config: &MachineConfig, design: Design, name: &str) -> Naive {
    let shape = MemoryShape::new(config.memory.bytes >> 12, Order::LINUX).unwrap();
    let memory = Memory::new(Frames::new(shape), &Sizes::X86.list(), Format::default());
    let mut os = DesignSpec::parse(name).unwrap().os().build(memory);
    os.spawn().unwrap();
    Naive::new(config, design, os)
}

/// Plays the steps on a machine and on the naive one, and compares them. Returns the counters.
fn compare(design: Design, kind: u32, steps: &[Step]) -> Result<Counters, TestCaseError> {
    let machine = machine(kind);
    let name = format!("{}{}", design.name(), policy(kind));
    let mut counted = Counters::default();
    for instructions in Instructions::all() {
        let mut config = config(machine.clone(), &[name.as_str()]);
        config.setup.instructions = instructions;
        config.setup.is_checked = instructions == Instructions::PORTABLE;
        let mut sim = Sim::new(&config).unwrap();
        let mut naive = naive(&machine, design, &name);
        // Live processes: stream, process, and number of its next segment.
        let mut live = vec![(0u32, ProcessId(0), 0u64)];
        let (mut begun, mut at) = (1, 0);
        sim.begun(&identity(0, None));
        sim.switch_to(0);
        let code = Event::Map {
            range: AddrRange::new(VirtAddr::new(CODE), 0x4000),
            protection: Protection::from_bits(5),
            source: MapSource::File { path: "code".to_owned(), offset_bytes: 0 },
            flags: 2,
        };
        sim.event(&code);
        naive.event(&code);
        let execute =
            |sim: &mut Sim,
             naive: &mut Naive,
             number: &mut u64,
             (offset, bytes, data): (u64, u16, &[(Access, u64, u16)])| {
                let item = |kind, size_bytes, addr| Item::new(kind, size_bytes, addr);
                let fetch = VirtAddr::new(CODE + offset);
                let mut items = vec![item(ItemKind::Fetch, bytes, fetch)];
                naive.reference(Access::Fetch, fetch.raw(), u64::from(bytes));
                for (kind, addr, bytes) in data {
                    let data_kind =
                        if *kind == Access::Load { ItemKind::Load } else { ItemKind::Store };
                    items.push(item(data_kind, *bytes, VirtAddr::NULL));
                    naive.reference(*kind, *addr, u64::from(*bytes));
                }
                let words: Vec<u64> =
                    [*number].into_iter().chain(data.iter().map(|(_, addr, _)| *addr)).collect();
                sim.execution(&Segment::new(items, Vec::new()).unwrap(), &words);
                *number += 1;
            };
        execute(&mut sim, &mut naive, &mut live[0].2, (0, 4, &[]));
        for step in steps {
            match step {
                Step::Execute(offset, bytes, data) => {
                    execute(&mut sim, &mut naive, &mut live[at].2, (*offset, *bytes, data));
                }
                Step::Event(event) if is_sound(event) => {
                    sim.event(event);
                    naive.event(event);
                }
                Step::Event(_) => {}
                Step::Switch(index) => {
                    at = index.index(live.len());
                    sim.switch_to(live[at].0);
                }
                Step::Fork if live.len() < MAX_LIVE => {
                    let (stream, parent, _) = live[at];
                    sim.begun(&identity(begun, Some(stream)));
                    live.push((begun, naive.fork(parent), 0));
                    begun += 1;
                    // Its first instruction: its parent's stream has recorded the events before.
                    at = live.len() - 1;
                    sim.switch_to(live[at].0);
                    naive.process = live[at].1;
                    execute(&mut sim, &mut naive, &mut live[at].2, (0, 4, &[]));
                }
                Step::End(index) if live.len() > 1 => {
                    let (stream, process, _) = live.remove(index.index(live.len()));
                    sim.process_ended(&identity(stream, None), &StreamEnd::PLAIN);
                    naive.end(process);
                    at = 0;
                    sim.switch_to(live[at].0);
                }
                Step::Fork | Step::End(_) => {}
            }
            naive.process = live[at].1;
            if naive.refused {
                break;
            }
        }
        sim.finish();
        let ours = sim.machines()[0].counters();
        let stopped = sim.machines()[0].stopped();
        prop_assert_eq!(stopped.is_some(), naive.refused, "{:?}", stopped);
        if let Some(why) = stopped {
            prop_assert!(why.ends_with("give softvm.kernel.aliases=sweep"), "{}", why);
        }
        for ((component, counter), value) in naive.counters() {
            if naive.refused && !component.starts_with("softvm") {
                // The last access missed the caches before it was refused.
                continue;
            }
            let got = ours.get(component, counter).unwrap_or(0);
            prop_assert_eq!(got, value, "{} {} of kind {} {:?}", component, counter, kind, design);
        }
        // The naive machine has no counters of events that did not occur; these must be 0.
        let known = naive.counters();
        for (component, counter, value) in ours.iter() {
            // Sums and differences of other counters are not compared.
            let is_compared = counter != "accesses" && !counter.ends_with("_tlb_hit");
            let is_of_softvm = component.starts_with("softvm") || component.starts_with("vcache");
            if is_of_softvm && is_compared && !known.contains_key(&(component, counter)) {
                prop_assert_eq!(
                    value,
                    0,
                    "{} {} of kind {} {:?}",
                    component,
                    counter,
                    kind,
                    design
                );
            }
        }
        prop_assert_eq!(sim.machines()[0].check(), Ok(()));
        prop_assert_eq!(ours.get("walker", "walks"), Some(0), "nothing walks");
        counted = ours;
        counted.add("fuzz", "large_pages", naive.has_large_pages);
        counted.add("fuzz", "refused", u64::from(naive.refused));
        counted.add("fuzz", "hits_of_others_pages", naive.hits_without_fault);
    }
    Ok(counted)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(60))]

    #[test]
    fn softvm_matches_the_naive_machine(steps in vec(step(), 1..150), kind in 0..KINDS) {
        compare(Design::Software, kind, &steps)?;
    }

    #[test]
    fn spur_matches_the_naive_machine(steps in vec(step(), 1..100), kind in 0..KINDS) {
        compare(Design::Spur, kind, &steps)?;
        compare(Design::Free, kind, &steps)?;
    }

    #[test]
    fn software_refilled_tlbs_match_the_naive_machine(steps in vec(step(), 1..100), kind in 0..KINDS) {
        compare(Design::MipsVirtual, kind, &steps)?;
        compare(Design::MipsPhysical, kind, &steps)?;
    }
}

/// As the tests above, with many more steps.
#[test]
#[ignore = "takes minutes"]
fn softvm_matches_the_naive_machine_on_long_streams() {
    let source_file = Some(file!());
    let mut runner = TestRunner::new(Config { cases: 4000, source_file, ..Config::default() });
    let streams = (vec(step(), 1..250), 0..KINDS);
    for design in Design::ALL {
        runner.run(&streams, |(steps, kind)| compare(design, kind, &steps).map(drop)).unwrap();
    }
}

/// Random streams exercise every event that can occur.
#[test]
fn every_softvm_counter_is_exercised() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut seen = std::collections::BTreeMap::new();
    for number in 0..90 {
        let steps = vec(step(), 100..150).new_tree(&mut runner).unwrap().current();
        for (component, counter, value) in
            compare(Design::Software, number % KINDS, &steps).unwrap().iter()
        {
            *seen.entry(format!("{component}.{counter}")).or_insert(0) += value;
        }
    }
    let softvm_counters = seen.iter().filter(|(name, _)| name.starts_with("softvm"));
    // Permissions are changed line by line at the first level only, and lines of code are never dirty.
    let never = [
        "softvm.lazy.whole",
        "softvm.lazy.l1_written_back",
        "softvm.lazy.l2_written_back",
        "softvm.synonyms.whole",
        "softvm.dma.whole",
        "softvm.write_back.fetch_misses",
    ];
    // The handler's lines are rarely missing, since it has usually just run for a miss.
    let rare = "softvm.write_back.handler_l2i_misses";
    for (name, value) in softvm_counters.filter(|(name, _)| *name != rare) {
        assert_eq!(*value == 0, never.contains(&name.as_str()), "{name} = {value}");
    }
    let others = [
        "os.copy_on_write_faults",
        "os.shootdowns",
        "fuzz.refused",
        "fuzz.hits_of_others_pages",
        "fuzz.large_pages",
    ];
    for name in others {
        assert!(seen[name] > 0, "{name}");
    }
}

/// Between a store and a load of the same line, the write-back handler uses other lines of the set: the load counts as
/// a use of its line.
#[test]
fn repeats_count_as_uses_of_their_line() {
    let execute = |data: Vec<(Access, u64, u16)>| Step::Execute(0, 1, data);
    let (store, load) = (Access::Store, Access::Load);
    let steps = [
        execute(vec![(store, 0x10000139, 200)]),
        execute(vec![]),
        execute(vec![(load, 0x10002000, 1)]),
        execute(vec![]),
        execute(vec![(store, 0x110002028, 1), (load, 0x110002028, 1), (load, 0x7fff00000028, 1)]),
    ];
    compare(Design::Software, 3, &steps).unwrap();
}
