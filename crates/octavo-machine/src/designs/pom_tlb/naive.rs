//! The slow, obvious twin of POM-TLB: its tables are lists in order of last use, its predictor is a map, its
//! counts are plain. The tests compare every counter of both, and check laws of the design.
//!
//! Where the description of the design leaves a choice, the twin does this:
//!
//! - The tables are read after a miss of the second level, and also after a hit there whose entry does not
//!   permit the access: another core may have written a later entry to the table.
//! - An invalidation is applied to the tables when the first core receives it.
//! - Every walked page is written to its table and its size to the predictor, and is compared with the
//!   prediction of its region, whether or not the prediction was used. Regions that have not been walked are
//!   predicted to have small pages.
//! - A hit of a part of a 1 GiB page fills that part.
//! - Predictors belong to no process: neither context switches nor invalidations change them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use octavo_config::{
    Fill, HostConfig, MachineConfig, PageSizes, TlbArray, TlbsHold, Ways, resolve,
};
use octavo_oracle::strategies::{RandomStream, Step, stream};
use octavo_os::ProcessId;
use octavo_os::policy::OsConfig;
use octavo_os::vmas::Pages;
use octavo_trace::{Began, StreamEnd, StreamIdentity, TimeSlicedConsumer, WordConsumer};
use octavo_types::{
    Access, AddrRange, Consumer, Event, FrameNumber, Instructions, Item, ItemKind, MapSource,
    PageNumber, PageSize, PhysAddr, Protection, Segment, VirtAddr,
};
use proptest::prelude::*;

use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::build::{self, Tables};
use crate::designs::registry::{Setup, TranslationHardware};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;
use crate::sim::{Sim, SimConfig};
use crate::tlb::{Lookup, TlbEntry, Translation};

/// Entries of a set, in one line of 64 bytes.
const ENTRIES_OF_SET: usize = 4;
const SET_BYTES: u64 = 64;
/// Regions of 2 MiB with a prediction of their own.
const REGIONS: u64 = 512;

/// The sets of both tables by page size and number: process, page number in units of the size, and contents;
/// the entry used last is the last of its set.
type Sets = BTreeMap<(PageSize, u64), Vec<(ProcessId, u64, TlbEntry)>>;

/// Invalidations, by the core that has received them.
type Received = Vec<Vec<(ProcessId, Pages)>>;

/// The unit of one core.
struct Naive {
    conventional: Conventional,
    core: usize,
    /// Shared by all cores.
    sets: Arc<Mutex<Sets>>,
    /// Invalidations that each core has received since all were applied; shared by all cores.
    received: Arc<Mutex<Received>>,
    table_bytes: u64,
    /// Predicted sizes, by region.
    predicted: BTreeMap<u64, PageSize>,
    hits: u64,
    misses: u64,
    mispredicted: u64,
    fills: u64,
    invalidated: u64,
}

/// The table of a page.
fn table_of(size: PageSize) -> PageSize {
    if size >= PageSize::HUGE { PageSize::HUGE } else { PageSize::BASE }
}

/// Bytes of both tables: 16 MiB, or a 64th of less than 1 GiB as a power of two.
fn reserved_bytes(config: &MachineConfig) -> u64 {
    let memory = config.host.as_ref().map_or(&config.memory, |host| &host.memory);
    if memory.bytes >= 1 << 30 { 16 << 20 } else { 1 << (memory.bytes / 64).ilog2() }
}

impl Naive {
    /// The set of a base page in a table, and its address.
    fn set_of(&self, env: &Env, page: PageNumber, size: PageSize) -> (u64, PhysAddr) {
        let set = (page.raw() >> size.base_shift()) % (self.table_bytes / SET_BYTES);
        let first = if size == PageSize::HUGE { self.table_bytes } else { 0 };
        let at = first + set * SET_BYTES;
        let frame = env.reserved_frames()[(at / 4096) as usize];
        (set, PhysAddr::new(frame.start().raw() + at % 4096))
    }

    fn prediction(&self, page: PageNumber) -> PageSize {
        self.predicted.get(&(page.raw() / 512 % REGIONS)).copied().unwrap_or(PageSize::BASE)
    }

    /// Reads the set of the predicted size. Returns the page if an entry covers it and permits the access.
    fn read(&mut self, env: &mut Env, page: PageNumber, access: LineAccess) -> Option<Translation> {
        let size = self.prediction(page);
        let (set, at) = self.set_of(env, page, size);
        let latency_cycles = env.read_memory(at);
        env.charge_lookup(latency_cycles);
        let mut sets = self.sets.lock().unwrap();
        let set = sets.entry((size, set)).or_default();
        let tag = (env.process(), page.raw() >> size.base_shift());
        let Some(place) = set.iter().position(|(process, number, _)| (*process, *number) == tag)
        else {
            self.misses += 1;
            return None;
        };
        self.hits += 1;
        let used = set.remove(place);
        set.push(used);
        let is_store = access.kind() == Access::Store;
        used.2.permits(is_store).then_some(Translation { size, entry: used.2 })
    }

    /// Walks the page table, and writes the page to the second level, its table and the predictor.
    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        in_second: Lookup,
    ) -> Option<Translation> {
        let translation = self.walk(env, page, access)?;
        let size = table_of(translation.size);
        self.mispredicted += u64::from(self.prediction(page) != size);
        self.predicted.insert(page.raw() / 512 % REGIONS, size);
        let (set, at) = self.set_of(env, page, size);
        env.write_memory(at);
        self.fills += 1;
        let mut sets = self.sets.lock().unwrap();
        let set = sets.entry((size, set)).or_default();
        let tag = (env.process(), page.raw() >> size.base_shift());
        set.retain(|(process, number, _)| (*process, *number) != tag);
        if set.len() == ENTRIES_OF_SET {
            set.remove(0);
        }
        set.push((tag.0, tag.1, translation.part(page, size).entry));
        self.conventional.fill_l2(env.asid(), page, translation, in_second);
        Some(translation)
    }
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.conventional.look_up_l1(env, page, access) {
            Lookup::Hit(translation) => translation,
            Lookup::PermissionMiss => {
                let walked = self.walk_and_fill(env, page, access, Lookup::PermissionMiss)?;
                self.conventional.replace_l1(env.asid(), page, walked, access);
                walked
            }
            Lookup::Miss => match self.conventional.look_up_l2(env, page, access) {
                Lookup::Hit(translation) => translation,
                in_second => {
                    let translation = match self.read(env, page, access) {
                        Some(translation) => {
                            let asid = env.asid();
                            self.conventional.fill_l2(asid, page, translation, in_second);
                            translation
                        }
                        None => self.walk_and_fill(env, page, access, in_second)?,
                    };
                    self.conventional.fill_l1(env.asid(), page, translation, access);
                    translation
                }
            },
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, of: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(of, pages);
        let mut received = self.received.lock().unwrap();
        let times = |core: &[(ProcessId, Pages)]| {
            core.iter().filter(|one| **one == (of.process, pages.clone())).count()
        };
        received[self.core].push((of.process, pages.clone()));
        let own = times(&received[self.core]);
        let others = received.iter().enumerate().filter(|(core, _)| *core != self.core);
        if others.map(|(_, core)| times(core)).any(|others| others >= own) {
            return;
        }
        for ((size, _), set) in self.sets.lock().unwrap().iter_mut() {
            let before = set.len();
            set.retain(|(process, number, _)| {
                let (first, after) =
                    (number << size.base_shift(), (number + 1) << size.base_shift());
                *process != of.process || after <= pages.start || first >= pages.end
            });
            self.invalidated += (before - set.len()) as u64;
        }
    }

    fn apply_invalidations(&mut self, _: &Env) {
        self.received.lock().unwrap().iter_mut().for_each(Vec::clear);
    }

    fn flush(&mut self) {
        self.conventional.flush();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        counters.add("tlb.pom", "accesses", self.hits + self.misses);
        counters.add("tlb.pom", "hits", self.hits);
        counters.add("tlb.pom", "misses", self.misses);
        counters.add("tlb.pom", "mispredicted", self.mispredicted);
        counters.add("tlb.pom", "fills", self.fills);
        counters.add("tlb.pom", "invalidated", self.invalidated);
    }
}

fn setup(config: &MachineConfig) -> Setup {
    let host = config.host.as_ref().map(|host| host.memory.start().unwrap().into());
    let start = config.memory.start().unwrap().into();
    Setup { instructions: Instructions::PORTABLE, is_checked: true, start, host_start: host }
}

/// A machine of the registry.
fn machine(hardware: &str, config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let os = OsConfig::parse(policy).unwrap();
    TranslationHardware::by_name(hardware).unwrap().make(config, &setup(config), &os).unwrap()
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let reserved_bytes = reserved_bytes(config);
    let tables = Tables { reserved_bytes, ..Tables::default() };
    let sets = Arc::new(Mutex::new(Sets::new()));
    let os = OsConfig::parse(policy).unwrap();
    let received = Arc::new(Mutex::new(vec![Vec::new(); config.core.count as usize]));
    let mut cores = 0..;
    let made = build::machine_with_tables(config, &setup(config), tables, &os, |_| {
        Ok(Naive {
            core: cores.next().unwrap(),
            received: Arc::clone(&received),
            conventional: Conventional::new(&config.tlb, Instructions::PORTABLE)?,
            sets: Arc::clone(&sets),
            table_bytes: reserved_bytes / 2,
            predicted: BTreeMap::new(),
            hits: 0,
            misses: 0,
            mispredicted: 0,
            fills: 0,
            invalidated: 0,
        })
    });
    made.unwrap()
}

/// Skylake with TLBs and caches so small that they overflow, and these settings.
fn tiny(settings: &[&str]) -> MachineConfig {
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
    resolve("skylake", &[&small[..], settings].concat()).unwrap().into_config()
}

/// The settings of a guest of a host with 4 GiB, whose nested TLB overflows.
const GUEST: [&str; 4] = [
    "host.policy=base",
    "host.memory.bytes=4GiB",
    "host.tlb.main.entries=6",
    "host.tlb.main.ways=3",
];

/// An action of a process.
#[derive(Clone, Debug)]
enum Action {
    Run(RandomStream),
    Fork,
    Exit,
    /// An event of memory, which random streams lack.
    Change(Event),
}

/// Random actions, each with the place of its process among those that live.
fn actions() -> impl Strategy<Value = Vec<(usize, Action)>> {
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

/// Cores, whether context switches flush, and the size of guest or native memory; how the second level is
/// filled, if there is one.
fn configs(settings: &'static [&'static str]) -> impl Strategy<Value = MachineConfig> {
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

fn sim(config: &MachineConfig, machines: Vec<Box<dyn AnyMachine>>) -> Sim {
    let Setup { instructions, is_checked, start, host_start } = setup(config);
    let config = SimConfig {
        machine: config.clone(),
        start,
        host_start,
        designs: Vec::new(),
        native_layout: false,
        warm_up_instructions: 0,
        interval_instructions: None,
        is_checked,
        instructions,
    };
    Sim::new(&config).unwrap().with_machines(machines)
}

fn identity(stream: u32, parent: Option<u32>) -> StreamIdentity {
    let began = if parent.is_some() { Began::Fork } else { Began::Start };
    StreamIdentity { stream, parent, pid: stream, began, program: String::new() }
}

/// Plays actions of several processes on machines.
fn play(sim: &mut Sim, actions: &[(usize, Action)]) {
    // Live processes, each with the number of its next segment.
    let (mut live, mut begun) = (vec![(0, 0)], 1);
    sim.begun(&identity(0, None));
    for (whose, action) in actions {
        let at = whose % live.len();
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
                            words.extend_from_slice(VirtAddr::slice_to_raw(addresses));
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
fn counted(
    config: &MachineConfig,
    machines: Vec<Box<dyn AnyMachine>>,
    actions: &[(usize, Action)],
) -> Vec<Counters> {
    let mut sim = sim(config, machines);
    play(&mut sim, actions);
    sim.machines().iter().map(|machine| machine.counters()).collect()
}

/// Counters that differ: component, counter, and both values.
fn differences<'a>(
    one: &'a Counters,
    other: &Counters,
) -> Vec<(&'a str, &'static str, u64, Option<u64>)> {
    let values =
        |(component, counter, value)| (component, counter, value, other.get(component, counter));
    one.iter().map(values).filter(|(.., value, other)| Some(*value) != *other).collect()
}

/// Plays actions on the design and its twin, and compares every counter. Returns those of the design.
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let mut sim = sim(config, vec![machine("pom_tlb", config, policy), naive(config, policy)]);
    play(&mut sim, actions);
    let [design, twin] = [0, 1].map(|at| sim.machines()[at].counters());
    prop_assert_eq!(differences(&design, &twin), Vec::new());
    prop_assert_eq!(differences(&twin, &design), Vec::new());
    prop_assert_eq!(sim.machines()[0].stopped(), sim.machines()[1].stopped());
    Ok(design)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn design_equals_twin(config in configs(&[]), actions in actions()) {
        for policy in ["base", "thp"] {
            compare(&config, policy, &actions)?;
        }
    }

    #[test]
    fn design_equals_twin_in_a_guest(
        config in configs(&GUEST),
        host_log2 in prop_oneof![18u8..25, 25u8..31, Just(32)],
        halves in prop::bool::weighted(0.3),
        actions in actions(),
    ) {
        for of_host in ["base", "thp"] {
            let host = config.host.clone().unwrap();
            let mut config = config.clone();
            let mut host = HostConfig { policy: of_host.to_owned(), ..host };
            host.memory.bytes = 1 << host_log2;
            host.tlbs_hold = if halves { TlbsHold::Halves } else { TlbsHold::Final };
            config.host = Some(host);
            for policy in ["base", "thp"] {
                compare(&config, policy, &actions)?;
            }
        }
    }

    /// The TLBs hit and miss as without tables; each miss of the second level reads one set, and only a hit
    /// takes the place of a walk.
    #[test]
    fn tables_replace_only_walks(config in configs(&[]), actions in actions()) {
        let config = MachineConfig { memory: tiny(&[]).memory, ..config };
        for policy in ["base", "thp"] {
            let hardware = ["conventional", "pom_tlb"];
            let machines = hardware.map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            let of_tlbs = |counters: &Counters| -> Vec<_> {
                let all = counters.iter().filter(|(component, ..)| component.starts_with("tlb.l"));
                all.map(|(component, counter, value)| (component.to_owned(), counter, value)).collect()
            };
            prop_assert_eq!(of_tlbs(&counters[0]), of_tlbs(&counters[1]));
            let get = |at: usize, component, counter| counters[at].get(component, counter).unwrap();
            let [before, after] = [0, 1].map(|at| get(at, "walker", "walks"));
            let reads = get(1, "tlb.pom", "accesses");
            prop_assert!(after <= before && before - after <= get(1, "tlb.pom", "hits"));
            if config.tlb.l2.is_some() {
                // Hits of the second level that do not permit the access read a set, too.
                let [misses, hits] = ["misses", "hits"].map(|counter| get(1, "tlb.l2", counter));
                prop_assert!(misses <= reads && reads <= misses + hits);
            }
        }
    }
}

/// The segment of one instruction with one load or store.
fn segment(kind: ItemKind) -> Segment {
    let item = |kind, addr| Item {
        kind,
        guarded: false,
        atomic: false,
        size_bytes: 8,
        addr: VirtAddr::new(addr),
    };
    Segment::new(vec![item(ItemKind::Fetch, 0x40_0000), item(kind, 0)], Vec::new()).unwrap()
}

/// Maps this many base pages.
fn map(first: u64, pages: u64) -> Step {
    Step::Event(Event::Map {
        range: AddrRange::new(VirtAddr::new(first), pages << 12),
        protection: Protection::from_bits(3),
        source: MapSource::Anonymous,
        flags: 0x22,
    })
}

/// Loads or stores at these addresses.
fn references(kind: ItemKind, addresses: impl Iterator<Item = u64>) -> impl Iterator<Item = Step> {
    let number = usize::from(kind == ItemKind::Store);
    addresses.map(move |addr| Step::Segment(number, vec![VirtAddr::new(addr)]))
}

/// Steps over the segments of a load and of a store.
fn run(steps: Vec<Step>) -> Action {
    Action::Run(RandomStream {
        segments: [ItemKind::Load, ItemKind::Store].map(segment).into(),
        steps,
    })
}

/// The counters of the design in the last of these runs of one process.
fn counted_last(config: &MachineConfig, policy: &str, runs: &[Action]) -> Counters {
    let actions: Vec<_> = runs.iter().map(|action| (0, action.clone())).collect();
    let after = |actions: &[(usize, Action)]| {
        counted(config, vec![machine("pom_tlb", config, policy)], actions).remove(0)
    };
    after(&actions).since(&after(&actions[..actions.len() - 1]))
}

/// Mappings and addresses of pages that fit the tables but not the TLBs: 40 of 2 MiB, alternately in two
/// mappings of 1 GiB; and 60 of 4 KiB in another region.
fn fitting_pages() -> (Vec<Step>, Vec<u64>) {
    let (huge, small) = (0x40_0000_0000, 0x10_0800_0000);
    let of_huge = (0..40).map(|page| huge + ((page % 2) << 30) + ((page / 2) << 21));
    let addresses = of_huge.chain((0..60).map(|page| small + (page << 12)));
    (vec![map(huge, 2 << 18), map(small, 60)], addresses.collect())
}

#[test]
fn second_pass_over_fitting_pages_never_walks() {
    let guest = |host: &str| {
        let mut config = tiny(&GUEST);
        config.host.as_mut().unwrap().policy = host.to_owned();
        config
    };
    for config in [tiny(&[]), guest("base"), guest("thp")] {
        for policy in ["base", "thp"] {
            for kind in [ItemKind::Load, ItemKind::Store] {
                let (mut maps, pages) = fitting_pages();
                let pass: Vec<_> = references(kind, pages.into_iter()).collect();
                maps.extend(pass.clone());
                let counters = counted_last(&config, policy, &[run(maps), run(pass)]);
                let get = |component, counter| counters.get(component, counter);
                let misses = get("tlb.l2", "misses");
                assert!(misses > Some(80));
                assert_eq!(get("walker", "walks"), Some(0));
                assert!(get("walker.host", "walks").unwrap_or(0) == 0);
                assert_eq!((get("tlb.pom", "hits"), get("tlb.pom", "misses")), (misses, Some(0)));
            }
        }
    }
}

/// Four pages of a set stay, a fifth evicts the one that was used least recently.
#[test]
fn sets_hold_four_pages() {
    let config = tiny(&[]);
    let sets = reserved_bytes(&config) / 2 / SET_BYTES;
    for (policy, size) in [("base", PageSize::BASE), ("thp", PageSize::HUGE)] {
        for (pages, hits) in [(4, 44), (5, 40)] {
            let first = 0x4000_0000;
            let of_set = (0..pages).map(|page| first + page * sets * size.bytes());
            // Other sets' pages, which the TLBs hold afterwards.
            let others = (1..=40).map(|page| first + page * size.bytes());
            let addresses: Vec<_> = of_set.chain(others).collect();
            let maps = addresses.iter().map(|addr| map(*addr, size.bytes() >> 12));
            let pass = || references(ItemKind::Load, addresses.clone().into_iter());
            let runs = [run(maps.chain(pass()).collect()), run(pass().collect())];
            let counters = counted_last(&config, policy, &runs);
            assert_eq!(counters.get("tlb.pom", "hits"), Some(hits), "{policy}, {pages} pages");
            assert_eq!(counters.get("tlb.pom", "misses"), Some(40 + pages - hits));
        }
    }
}

/// Two processes on two cores load, store to, protect and unmap pages of both sizes.
fn all_events() -> Vec<(usize, Action)> {
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

#[test]
fn compared_events_occur() {
    let gigantic = "hugetlb:all_anonymous=1GiB:nr_gigantic_pages=2";
    for (settings, policy) in [(&[][..], "thp"), (&[], "base"), (&GUEST, "thp"), (&[], gigantic)] {
        for spaces in ["core.address_spaces=tagged", "core.address_spaces=flushed"] {
            let mut config = tiny(&[settings, &[spaces, "core.count=2"]].concat());
            config.host.iter_mut().for_each(|host| host.policy = "thp".to_owned());
            if policy == gigantic {
                config.memory.bytes = 4 << 30;
                config.memory.largest_block = PageSize::LARGEST;
                let arrays = &mut config.tlb.l2.as_mut().unwrap().arrays;
                let page_sizes = PageSizes::List(vec![PageSize::LARGEST]);
                let one =
                    TlbArray { entries: 1, ways: Ways::Full, page_sizes, ..arrays["main"].clone() };
                arrays.insert("1g".to_owned(), one);
            }
            let counters = compare(&config, policy, &all_events()).unwrap();
            for counter in ["hits", "misses", "fills", "invalidated", "mispredicted"] {
                let occurs = policy != "base" || counter != "mispredicted";
                let value = counters.get("tlb.pom", counter).unwrap();
                assert_eq!(value > 0, occurs, "{policy}, {spaces}: {counter}");
            }
            assert!(counters.get("os", "copy_on_write_faults") > Some(0));
        }
    }
}

/// Loads of a private file's pages, then stores: each copies its page, which causes an invalidation.
#[test]
fn idle_cores_change_nothing() {
    let pages = || (0..60u64).map(|page| 0x1000_0000 + (page << 12));
    let mut steps = vec![Step::Event(Event::Map {
        range: AddrRange::new(VirtAddr::new(0x1000_0000), 60 << 12),
        protection: Protection::from_bits(3),
        source: MapSource::File { path: "/file".to_owned(), offset_bytes: 0 },
        flags: 2,
    })];
    for kind in [ItemKind::Load, ItemKind::Store, ItemKind::Load] {
        steps.extend(references(kind, pages()));
    }
    for hardware in ["conventional", "pom_tlb"] {
        let [alone, beside_idle] = ["core.count=1", "core.count=2"].map(|cores| {
            let config = tiny(&[cores]);
            let machines = vec![machine(hardware, &config, "base")];
            counted(&config, machines, &[(0, run(steps.clone()))]).remove(0)
        });
        assert_eq!(differences(&alone, &beside_idle), Vec::new(), "{hardware}");
    }
}
