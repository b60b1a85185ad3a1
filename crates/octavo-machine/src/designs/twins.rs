//! Shared by the tests that compare designs with their naive twins: small machines, random programs of several
//! processes, and the comparison of counters.

use octavo_config::{DesignSettings, Fill, MachineConfig, TlbsHold};
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_trace::{Began, StreamEnd, StreamIdentity, TimeSlicedConsumer, WordConsumer};
use octavo_types::{
    AddrRange, Event, Instructions, Item, ItemKind, MapSource, Protection, Segment, VirtAddr,
};
use proptest::prelude::*;

use crate::config::resolve;
use crate::counters::Counters;
use crate::designs::registry::{Setup, TranslationHardware, policies};
use crate::machine::AnyMachine;
use crate::sim::{Sim, SimConfig, Timing};

pub fn setup(config: &MachineConfig) -> Setup {
    Setup { is_checked: true, ..Setup::new(config, Instructions::PORTABLE).unwrap() }
}

/// A machine of the registry.
pub fn machine(hardware: &str, config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let os = policies().parse(policy).unwrap();
    TranslationHardware::by_name(hardware).unwrap().make(config, &setup(config), &os).unwrap()
}

/// Skylake with TLBs and caches so small that they overflow, and these settings.
pub fn tiny(settings: &[&str]) -> MachineConfig {
    let small = [
        "memory.bytes=2GiB",
        "tlb.l1i.4k.entries=4",
        "tlb.l1i.4k.ways=2",
        "tlb.l1d.4k.entries=6",
        "tlb.l1d.4k.ways=2",
        "tlb.l1d.2m.entries=2",
        "tlb.l1d.2m.ways=1",
        "tlb.l1d.1g=none",
        "tlb.l2.main.entries=12",
        "tlb.l2.main.ways=3",
        "tlb.l2.1g=none",
        "cache.l1i.bytes=1KiB",
        "cache.l1i.ways=2",
        "cache.l1d.bytes=1KiB",
        "cache.l1d.ways=2",
        "cache.l2.bytes=2KiB",
        "cache.llc.bytes=4KiB",
        "cache.llc.ways=4",
    ];
    let mut machine = resolve("skylake", &[&small[..], settings].concat()).unwrap().into_config();
    // Twins count events; they do not charge walks to a core.
    machine.core.pipeline = None;
    machine
}

/// Asserts that each of these settings of a design's table is rejected by a sentence with this advice.
pub fn assert_rejected(table: &str, invalid: &[(&str, &str)]) {
    for (setting, advice) in invalid {
        let result = resolve("skylake", &[&format!("{table}.{setting}")]).map(|_| ());
        let message = result.unwrap_err().to_string();
        assert!(message.contains(&format!("{table}.")) && message.contains(advice), "{message}");
    }
}

/// The machine with these settings of a design.
pub fn with<T: DesignSettings>(config: &MachineConfig, settings: T) -> MachineConfig {
    let mut config = config.clone();
    config.designs.set(settings);
    config
}

/// The settings of a guest of a host with 4 GiB, whose nested TLB overflows.
pub const GUEST: [&str; 4] = [
    "host.policy=base",
    "host.memory.bytes=4GiB",
    "host.tlb.main.entries=6",
    "host.tlb.main.ways=3",
];

/// An action of a process.
#[derive(Clone, Debug)]
pub enum Action {
    Run(RandomStream),
    Fork,
    Exit,
    /// An event of memory, which random streams lack.
    Change(Event),
}

/// Random actions, each with a number that chooses its process among the live ones.
pub fn actions() -> impl Strategy<Value = Vec<(usize, Action)>> {
    let range = (0u64..512, 1u64..600)
        .prop_map(|(page, pages)| AddrRange::new(VirtAddr::new((0x100 + page) << 12), pages << 12));
    let protect = (range, 0usize..3).prop_map(|(range, rights)| {
        let protection = Protection::from_bits([0, 1, 3][rights]);
        Action::Change(Event::Protect { range, protection })
    });
    let action = prop_oneof![
        4 => stream(1..60).prop_map(Action::Run),
        2 => Just(Action::Fork),
        1 => Just(Action::Exit),
        1 => protect,
    ];
    prop::collection::vec((0usize..12, action), 1..8)
}

/// Random machines: number of cores, whether context switches flush, the size of guest or native memory, and how the
/// second level is filled, if there is one.
pub fn configs(settings: &'static [&'static str]) -> impl Strategy<Value = MachineConfig> {
    let bytes = prop_oneof![
        (18u32..27).prop_map(|log2| 1u64 << log2),
        Just(6 << 20),
        Just(1000 << 20),
        Just(2 << 30),
        Just(2 << 30)
    ];
    let second =
        prop_oneof![4 => Just(Some(Fill::All)), 1 => Just(Some(Fill::Victim)), 1 => Just(None)];
    let shape = (1u32..4, any::<bool>(), bytes, second);
    shape.prop_map(move |(cores, flushes, bytes, second)| {
        let spaces =
            if flushes { "core.address_spaces=flushed" } else { "core.address_spaces=tagged" };
        let mut config = tiny(&[settings, &[spaces]].concat());
        config.core.count = cores;
        config.memory.bytes = bytes;
        match second {
            Some(fill) => config.tlb.l2.as_mut().unwrap().fill = fill,
            None => config.tlb.l2 = None,
        }
        config
    })
}

/// Machines of [`configs`] in a guest, one for each of two policies of the host, with little memory or enough.
pub fn guest_configs() -> impl Strategy<Value = [MachineConfig; 2]> {
    let host_log2 = prop_oneof![18u8..25, 25u8..31, Just(32)];
    let all = (configs(&GUEST), host_log2, prop::bool::weighted(0.3));
    all.prop_map(|(config, host_log2, halves)| {
        ["base", "thp"].map(|policy| {
            let mut config = config.clone();
            let host = config.host.as_mut().unwrap();
            host.policy = policy.to_owned();
            host.memory.bytes = 1 << host_log2;
            host.tlbs_hold = if halves { TlbsHold::Halves } else { TlbsHold::Final };
            config
        })
    })
}

/// A simulation of no designs on a machine.
pub fn sim_config(config: &MachineConfig) -> SimConfig {
    let usual = SimConfig::new(config.clone(), Vec::new(), Instructions::PORTABLE).unwrap();
    SimConfig { setup: setup(config), timing: Timing::Additive, ..usual }
}

fn sim(config: &MachineConfig, machines: Vec<Box<dyn AnyMachine>>) -> Sim {
    Sim::new(&sim_config(config)).unwrap().with_machines(machines)
}

fn identity(stream: u32, parent: Option<u32>) -> StreamIdentity {
    let began = if parent.is_some() { Began::Fork } else { Began::Start };
    StreamIdentity { stream, parent, pid: stream, began, program: String::new() }
}

/// Plays actions of several processes on machines.
pub fn play(sim: &mut Sim, actions: &[(usize, Action)]) {
    // Live processes, each with the number of its next segment.
    let (mut live, mut begun) = (vec![(0, 0)], 1);
    sim.begun(&identity(0, None));
    for (choice, action) in actions {
        let at = choice % live.len();
        let (process, first) = live[at];
        sim.switch_to(process);
        match action {
            Action::Fork => {
                sim.begun(&identity(begun, Some(process)));
                live.push((begun, 0));
                begun += 1;
            }
            Action::Exit if live.len() > 1 => {
                sim.process_ended(&identity(process, None), &StreamEnd::PLAIN);
                live.remove(at);
            }
            Action::Exit => {}
            Action::Change(event) => sim.event(event),
            Action::Run(stream) => {
                for step in &stream.steps {
                    match step {
                        Step::Segment(number, addresses) => {
                            let mut words = vec![first + *number as u64];
                            words.extend(stream.segments[*number].addresses_of_groups(addresses));
                            sim.execution(&stream.segments[*number], &words);
                        }
                        Step::Event(event) => sim.event(event),
                    }
                }
                live[at].1 += stream.segments.len() as u64;
            }
        }
    }
    sim.finish();
}

/// The counters of machines after these actions.
pub fn counted(
    config: &MachineConfig,
    machines: Vec<Box<dyn AnyMachine>>,
    actions: &[(usize, Action)],
) -> Vec<Counters> {
    let mut sim = sim(config, machines);
    play(&mut sim, actions);
    sim.machines().iter().map(|machine| machine.counters()).collect()
}

/// Counters that differ: component, counter, and both values.
pub fn differences<'a>(
    one: &'a Counters,
    other: &Counters,
) -> Vec<(&'a str, &'static str, u64, Option<u64>)> {
    let values =
        |(component, counter, value)| (component, counter, value, other.get(component, counter));
    one.iter().map(values).filter(|(.., value, other)| Some(*value) != *other).collect()
}

/// Plays actions on a design and its twin, and compares every counter. Returns those of the design.
pub fn compare(
    config: &MachineConfig,
    machines: [Box<dyn AnyMachine>; 2],
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let mut sim = sim(config, machines.into());
    play(&mut sim, actions);
    let [design, twin] = [0, 1].map(|at| sim.machines()[at].counters());
    prop_assert_eq!(differences(&design, &twin), Vec::new());
    prop_assert_eq!(differences(&twin, &design), Vec::new());
    prop_assert_eq!(sim.machines()[0].stopped(), sim.machines()[1].stopped());
    Ok(design)
}

/// Tests that `$compare`, of a machine, a policy and actions, finds no difference, natively and in a guest.
macro_rules! equals_twin {
    ($compare:path) => {
        proptest::proptest! {
            #![proptest_config(octavo_oracle::cases(24))]

            #[test]
            fn design_equals_twin(
                config in $crate::designs::twins::configs(&[]),
                actions in $crate::designs::twins::actions(),
            ) {
                for policy in ["base", "thp"] {
                    $compare(&config, policy, &actions)?;
                }
            }

            #[test]
            fn design_equals_twin_in_a_guest(
                configs in $crate::designs::twins::guest_configs(),
                actions in $crate::designs::twins::actions(),
            ) {
                for config in &configs {
                    for policy in ["base", "thp"] {
                        $compare(config, policy, &actions)?;
                    }
                }
            }
        }
    };
}
pub(crate) use equals_twin;

/// The segment of one instruction, at an address, with one load or store.
fn segment(at: u64, kind: ItemKind) -> Segment {
    let item = |kind, addr| Item::new(kind, 8, VirtAddr::new(addr));
    Segment::new(vec![item(ItemKind::Fetch, at), item(kind, 0)], Vec::new()).unwrap()
}

/// The address of the first instruction.
const CODE: u64 = 0x40_0000;

/// Maps this many base pages.
pub fn map(first: u64, pages: u64) -> Step {
    Step::Event(Event::Map {
        range: AddrRange::new(VirtAddr::new(first), pages << 12),
        protection: Protection::from_bits(3),
        source: MapSource::Anonymous,
        flags: 0x22,
    })
}

/// Loads or stores at these addresses.
pub fn references(
    kind: ItemKind,
    addresses: impl Iterator<Item = u64>,
) -> impl Iterator<Item = Step> {
    let number = usize::from(kind == ItemKind::Store);
    addresses.map(move |addr| Step::Segment(number, vec![VirtAddr::new(addr)]))
}

/// Steps over the segments of a load and of a store.
pub fn run(steps: Vec<Step>) -> Action {
    Action::Run(RandomStream {
        segments: [ItemKind::Load, ItemKind::Store].map(|kind| segment(CODE, kind)).into(),
        steps,
    })
}

/// A load by one of the three instructions of [`run_loads`].
pub fn load(instruction: usize, at: u64) -> Step {
    Step::Segment(instruction, vec![VirtAddr::new(at)])
}

/// A run of three instructions that load, for designs that follow instructions.
pub fn run_loads(steps: Vec<Step>) -> Action {
    let segments = [0, 1, 2].map(|number| segment(CODE + 16 * number, ItemKind::Load));
    Action::Run(RandomStream { segments: segments.into(), steps })
}

/// The counters of a machine in the last of these runs of one process.
pub fn counted_last(
    config: &MachineConfig,
    make: impl Fn() -> Box<dyn AnyMachine>,
    runs: &[Action],
) -> Counters {
    let actions: Vec<_> = runs.iter().map(|action| (0, action.clone())).collect();
    let after = |actions: &[(usize, Action)]| counted(config, vec![make()], actions).remove(0);
    after(&actions).since(&after(&actions[..actions.len() - 1]))
}

/// Mappings and addresses of pages that fit the tables but not the TLBs: 40 of 2 MiB, alternately in two
/// mappings of 1 GiB; and 60 of 4 KiB in another region.
pub fn fitting_pages() -> (Vec<Step>, Vec<u64>) {
    let (huge, small) = (0x40_0000_0000, 0x10_0800_0000);
    let huge_pages = (0..40).map(|page| huge + ((page % 2) << 30) + ((page / 2) << 21));
    let addresses = huge_pages.chain((0..60).map(|page| small + (page << 12)));
    (vec![map(huge, 2 << 18), map(small, 60)], addresses.collect())
}

/// Two processes on two cores load, store to, protect and unmap pages of both sizes.
pub fn all_events() -> Vec<(usize, Action)> {
    let (mut steps, pages) = fitting_pages();
    let both = |kind| references(kind, pages.clone().into_iter()).collect::<Vec<_>>();
    steps.extend([both(ItemKind::Load), both(ItemKind::Store), both(ItemKind::Load)].concat());
    let range = AddrRange::new(VirtAddr::new(0x40_0000_0000), 5 << 21);
    let change = [
        Event::ThreadSwitch { thread: 2 },
        Event::Unmap { range },
        Event::Protect {
            range: AddrRange::new(VirtAddr::new(0x10_0800_0000), 20 << 12),
            protection: Protection::from_bits(1),
        },
    ];
    let again = || (0, run([both(ItemKind::Load), both(ItemKind::Store)].concat()));
    let change = change.map(|event| (0, Action::Change(event)));
    let mut actions = vec![(0, run(steps))];
    actions.extend(change);
    actions.extend([
        again(),
        (0, Action::Fork),
        (1, again().1),
        again(),
        (1, again().1),
        (1, Action::Exit),
        again(),
    ]);
    actions
}
