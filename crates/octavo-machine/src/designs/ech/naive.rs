//! The slow, obvious twin of elastic cuckoo page tables. The tests compare every counter of both.
//!
//! The twin takes the places of entries from the tables, since ways are chosen at random. The walker's cached sections
//! are lists. Natively the twin computes sections from the operating system's record, and walks by itself: it reads,
//! waits, has faults served and counts. In a guest it is a walker, and the walks that it has planned give the cycles of
//! machines whose reads all take equally long.
//!
//! Where the description of the design leaves a choice, the twin does this:
//!
//! - A walk looks both levels of sections up, once.
//! - A cached section of 2 MiB decides between its sizes, whatever the section of 1 GiB says. Without pages it leaves 1
//!   GiB, unless the section of 1 GiB rules that out.
//! - If cached sections rule all sizes out, they are stale: the walk is complete, and reads walk tables.
//! - Probes go from small sizes to large ones and from the first way to the last. Background reads, from the lower walk
//!   table to the upper one, come after both groups.
//! - What a walk reads of walk tables replaces what is cached; an entry without pages is not cached.
//! - An invalidation drops cached entries that have sections of its pages.

use std::cell::RefCell;
use std::iter::Peekable;
use std::ops::Range;
use std::slice::Iter;
use std::sync::{Arc, Mutex};

use octavo_config::MachineConfig;
use octavo_hw::Asid;
use octavo_oracle::strategies::Step;
use octavo_os::page_table::{MakeTable, PageTable};
use octavo_os::vmas::Pages;
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, Instructions, ItemKind, PageNumber, PageSize, PhysAddr,
    VirtAddr,
};
use proptest::prelude::*;

use super::tables::{Section, Tables};
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::build::{self, HardwareFormat};
use crate::designs::registry::policies;
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, machine, map,
    references, run, setup, tiny,
};
use crate::env::{Env, WalkPlan, WalkRequest, Walker};
use crate::front::LineAccess;
use crate::machine::AnyMachine;
use crate::tlb::{Lookup, Translation};

/// Cached entries by level: sections of 2 MiB, and of 1 GiB.
const CACHED: [usize; 2] = [16, 2];
const START_CYCLES: u32 = 4;
/// Base pages of a section, and sections of an entry.
const SECTION_PAGES: [u64; 2] = [512, 512 * 512];
const SECTIONS: u64 = 64;

/// How a walk began, and whether it was repeated.
const KINDS: [&str; 5] = ["direct", "size", "partial", "complete", "repeated"];

/// The cached sections of a core.
#[derive(Default)]
struct Cached {
    /// By level: address space, number of the entry, and sections; the entry used last is the last one.
    entries: [Vec<(Asid, u64, Vec<Section>)>; 2],
    hits: [u64; 2],
    misses: [u64; 2],
    /// Walks, as in [`KINDS`].
    walks: [u64; 5],
}

/// The reads of a walk.
struct Planned {
    /// Groups of probes.
    groups: Vec<Vec<PhysAddr>>,
    /// Reads that delay nothing.
    background: Vec<PhysAddr>,
    /// The entry of the page, if it is mapped.
    entry: Option<PhysAddr>,
}

/// The number of a page's entry in a walk table.
fn number(page: PageNumber, level: usize) -> u64 {
    page.raw() / SECTION_PAGES[level] / SECTIONS
}

impl Cached {
    fn look_up(&mut self, asid: Asid, page: PageNumber, level: usize) -> Option<Section> {
        let entries = &mut self.entries[level];
        let tag = (asid, number(page, level));
        let Some(place) = entries.iter().position(|(asid, number, _)| (*asid, *number) == tag)
        else {
            self.misses[level] += 1;
            return None;
        };
        self.hits[level] += 1;
        let used = entries.remove(place);
        entries.push(used);
        let section = page.raw() / SECTION_PAGES[level] % SECTIONS;
        Some(entries.last().unwrap().2[section as usize])
    }

    fn replace(&mut self, asid: Asid, page: PageNumber, level: usize, now: Option<Vec<Section>>) {
        let entries = &mut self.entries[level];
        let tag = (asid, number(page, level));
        entries.retain(|(asid, number, _)| (*asid, *number) != tag);
        entries.extend(now.map(|sections| (tag.0, tag.1, sections)));
        if entries.len() > CACHED[level] {
            entries.remove(0);
        }
    }

    /// Plans a walk. `now` gives the current contents of the walk tables, by level.
    fn plan(
        &mut self,
        asid: Asid,
        page: PageNumber,
        tables: &Tables,
        now: impl Fn(usize) -> Option<Vec<Section>>,
    ) -> Planned {
        let [lower, upper] = [0, 1].map(|level| self.look_up(asid, page, level));
        let is_small = lower.is_some_and(|lower| lower.has_base);
        let direct = match (lower, upper) {
            (Some(lower), _) if lower.way > 0 => Some((1, lower.way)),
            (_, Some(upper)) if upper.way > 0 && !is_small => Some((2, upper.way)),
            _ => None,
        };
        let may_be = [
            is_small || lower.is_none() && upper.is_none_or(|upper| upper.has_base),
            lower.is_none() && upper.is_none_or(|upper| upper.has_huge),
            !is_small && upper.is_none(),
        ];
        let is_unexpected = direct.is_none() && may_be == [false; 3];
        let sizes: Vec<usize> = match direct {
            Some((size, _)) => vec![size],
            None => (0..3).filter(|size| may_be[*size] || is_unexpected).collect(),
        };
        let kind = if direct.is_some() { 0 } else { sizes.len() };
        self.walks[kind] += 1;
        let is_read = |size: usize, way: usize| {
            sizes.contains(&size) && direct.is_none_or(|(_, only)| way + 1 == usize::from(only))
        };
        let probes = |is_read: &dyn Fn(usize, usize) -> bool| -> Vec<PhysAddr> {
            let of_size = |size| {
                let places = tables.places(page, size).enumerate();
                places.filter(move |(way, _)| is_read(size, *way)).map(|(_, at)| at)
            };
            (0..3).flat_map(of_size).collect()
        };
        let mut groups = vec![probes(&is_read)];
        let found = tables.find(page);
        let is_repeated =
            kind < 3 && !found.as_ref().is_some_and(|found| is_read(found.size, found.way));
        if is_repeated {
            self.walks[4] += 1;
            groups.push(probes(&|_, _| true));
        }
        let mut background = Vec::new();
        for (level, cached) in [lower, upper].into_iter().enumerate() {
            if cached.is_none() || is_repeated || is_unexpected {
                background.extend(tables.walk_places(page, level));
                self.replace(asid, page, level, now(level));
            }
        }
        Planned { groups, background, entry: found.map(|found| found.at) }
    }

    fn invalidate(&mut self, asid: Asid, pages: &Range<u64>) {
        for (level, entries) in self.entries.iter_mut().enumerate() {
            let pages_of_entry = SECTION_PAGES[level] * SECTIONS;
            entries.retain(|(process, number, _)| {
                let (first, after) = (number * pages_of_entry, (number + 1) * pages_of_entry);
                *process != asid || after <= pages.start || first >= pages.end
            });
        }
    }

    fn clear(&mut self) {
        self.entries = Default::default();
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        for (level, name) in ["sections_2m", "sections_1g"].into_iter().enumerate() {
            let component = format!("{component}.{name}");
            counters.add(&component, "accesses", self.hits[level] + self.misses[level]);
            counters.add(&component, "hits", self.hits[level]);
            counters.add(&component, "misses", self.misses[level]);
        }
        for (name, walks) in KINDS.into_iter().zip(self.walks) {
            counters.add(&format!("{component}.walks"), name, walks);
        }
    }
}

/// A page's entry of a walk table by the operating system's record; none without pages.
fn recorded(record: &PageTable, page: PageNumber, level: usize) -> Option<Vec<Section>> {
    let pages = SECTION_PAGES[level] * SECTIONS;
    let (first, end) = (number(page, level) * pages, (number(page, level) + 1) * pages);
    let mut sections = vec![Section::default(); SECTIONS as usize];
    let mut from = first;
    while let Some(leaf) = record.next(PageNumber::new(from), PageNumber::new(end)) {
        from = leaf.page.raw() + (1 << leaf.size.base_shift());
        let section = leaf.page.raw().max(first) / SECTION_PAGES[level] % SECTIONS;
        let section = &mut sections[section as usize];
        match (leaf.size, level) {
            (PageSize::BASE, _) => section.has_base = true,
            (PageSize::HUGE, 1) => section.has_huge = true,
            (PageSize::LARGEST, 0) => {}
            _ => {
                let way = record.hardware::<Tables>().find(leaf.page).unwrap().way;
                section.way = way as u8 + 1;
            }
        }
    }
    sections.iter().any(|section| *section != Section::default()).then_some(sections)
}

/// The unit of one core, which walks by itself. For machines without guests that begin walks after look-ups.
struct Naive {
    conventional: Conventional,
    cached: Cached,
    /// Latency of reads of page tables that the first cache, the second, the third and memory serve.
    latencies: [u32; 4],
    served: [u64; 4],
    walks: u64,
    walks_dirty: u64,
    faulted: u64,
    marked: u64,
    cycles: u64,
}

impl Naive {
    /// Makes the reads of a walk of the running process' tables. Returns their latency and the page's entry.
    fn read(&mut self, env: &mut Env, page: PageNumber) -> (u32, Option<PhysAddr>) {
        self.walks += 1;
        let record = &env.os().memory().process(env.process()).table;
        let tables = record.hardware::<Tables>();
        let planned =
            self.cached.plan(env.asid(), page, tables, |level| recorded(record, page, level));
        let mut read = |at: &PhysAddr| {
            let latency = env.read_memory(*at);
            let by = self.latencies.iter().position(|level| *level == latency).unwrap();
            self.served[by] += 1;
            latency
        };
        let mut cycles = START_CYCLES;
        for group in &planned.groups {
            let latencies: Vec<_> = group.iter().map(&mut read).collect();
            cycles += latencies.into_iter().max().unwrap_or(0);
        }
        for at in &planned.background {
            read(at);
        }
        (cycles, planned.entry)
    }

    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        held: Lookup,
    ) -> Option<Translation> {
        let is_store = access.kind() == Access::Store;
        self.walks_dirty += u64::from(matches!(held, Lookup::PermissionMiss { is_clean: true }));
        let mut cycles = 0;
        let translation = loop {
            let (latency, entry) = self.read(env, page);
            cycles += latency;
            let record = env.os().memory().process(env.process()).table.walk(page);
            if record.leaf.is_some_and(|leaf| leaf.rights.write || !is_store) {
                let (was_used, was_dirty) = record.used;
                if !was_used || is_store && !was_dirty {
                    self.marked += 1;
                    cycles += env.write_memory(entry.unwrap());
                }
                break self.resolve(env, page, access)?;
            }
            assert_eq!(record.leaf.is_some(), entry.is_some());
            self.faulted += 1;
            let process = env.process();
            env.delivering(
                |env| env.with_os(|os| os.fault(process, page, access.kind())),
                |space, pages| self.invalidate(space, pages),
            )?;
        };
        self.cycles += u64::from(cycles);
        self.conventional.fill_l2(env.asid(), page, translation, held);
        Some(translation)
    }
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.conventional.look_up_l1(env, page, access) {
            Lookup::Hit(translation) => translation,
            held @ Lookup::PermissionMiss { .. } => {
                let walked = self.walk_and_fill(env, page, access, held)?;
                self.conventional.replace_l1(env.asid(), page, walked, access);
                walked
            }
            Lookup::Miss => match self.conventional.look_up_l2(env, page, access) {
                Lookup::Hit(translation) => translation,
                in_second => {
                    let walked = self.walk_and_fill(env, page, access, in_second)?;
                    self.conventional.fill_l1(env.asid(), page, walked, access);
                    walked
                }
            },
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
        self.cached.invalidate(space.asid, pages);
    }

    fn flush(&mut self) {
        self.conventional.flush();
        self.cached.clear();
    }

    fn report(&self, counters: &mut Counters) {
        self.conventional.report(counters);
        self.cached.report("walker.cache", counters);
        counters.add("walker", "walks", self.walks);
        counters.add("walker", "walks_dirty", self.walks_dirty);
        counters.add("walker", "faulted", self.faulted);
        counters.add("walker", "marked", self.marked);
        counters.add("walker", "references", self.served.iter().sum());
        let names = ["references_l1", "references_l2", "references_llc", "references_memory"];
        for (name, served) in names.into_iter().zip(self.served) {
            counters.add("walker", name, served);
        }
        counters.add("core", "cycles_walks", self.cycles);
        // One walker: walks do not overlap.
        counters.add("walker", "cycles_overlapped", self.cycles);
    }
}

/// Walks that machines have planned, in order, by twins' walkers of guests and hosts.
type Log = Arc<Mutex<Vec<Walked>>>;

/// A walk of a page.
type Walked = (Side, PageNumber, Planned);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Guest,
    Host,
}

thread_local! {
    /// The number of guests' walkers to be made before those of hosts, and the log of both.
    static NEXT: RefCell<(u32, Log)> = RefCell::default();
}

/// A walker that plans walks as the twin does, and logs them. Natively it is idle, as [`Naive`] walks by itself.
struct Planner {
    side: Side,
    log: Log,
    cached: Cached,
    is_idle: bool,
}

impl Walker for Planner {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        let WalkRequest { asid, page, .. } = *request;
        let tables = request.table().hardware::<Tables>();
        let now = |level| tables.sections(page, level).map(|sections| sections.to_vec());
        let planned = self.cached.plan(asid, page, tables, now);
        for group in &planned.groups {
            group.iter().for_each(|at| plan.probe(*at));
            plan.wait();
        }
        plan.background.clone_from(&planned.background);
        plan.entry = planned.entry;
        plan.start_cycles = START_CYCLES;
        self.log.lock().unwrap().push((self.side, page, planned));
    }

    fn invalidate(&mut self, asid: Asid, range: AddrRange) {
        let pages = range.start().raw() >> 12..range.end().raw().div_ceil(4096);
        self.cached.invalidate(asid, &pages);
    }

    fn clear(&mut self) {
        self.cached.clear();
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        if !self.is_idle {
            self.cached.report(component, counters);
        }
    }
}

fn planner(is_idle: bool) -> Box<dyn Walker> {
    let (side, log) = NEXT.with_borrow_mut(|(guests, log)| {
        let side = if *guests > 0 { Side::Guest } else { Side::Host };
        *guests = guests.saturating_sub(1);
        (side, Arc::clone(log))
    });
    Box::new(Planner { side, log, cached: Cached::default(), is_idle })
}

fn build_tables(walker: fn(&MachineConfig) -> Box<dyn Walker>) -> build::Tables {
    let table: MakeTable = Arc::new(|_, frames| Box::new(Tables::new(frames)));
    let hardware = HardwareFormat { table: Some(table), walker };
    build::Tables { hardware: Some(hardware), ..build::Tables::default() }
}

/// The twin of a machine.
fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    if config.host.is_some() {
        return planning(config, policy).0;
    }
    let os = policies().parse(policy).unwrap();
    let cache = &config.cache;
    let levels = [cache.l1d, cache.l2, cache.llc].map(|level| level.latency_cycles);
    let latencies = [levels[0], levels[1], levels[2], cache.memory_latency_cycles];
    let tables = build_tables(|_| planner(true));
    let made = build::machine_with_tables(config, &setup(config), tables, &os, |_| {
        Ok(Naive {
            conventional: Conventional::new(&config.tlb, Instructions::PORTABLE)?,
            cached: Cached::default(),
            latencies,
            served: [0; 4],
            walks: 0,
            walks_dirty: 0,
            faulted: 0,
            marked: 0,
            cycles: 0,
        })
    });
    made.unwrap()
}

/// The twin of a machine with a guest, and the walks that it will plan.
fn planning(config: &MachineConfig, policy: &str) -> (Box<dyn AnyMachine>, Log) {
    let os = policies().parse(policy).unwrap();
    let log = Log::default();
    NEXT.set((config.core.count, Arc::clone(&log)));
    let tables = build_tables(|_| planner(false));
    let made = build::conventional(config, &setup(config), tables, &os);
    (made.unwrap(), log)
}

/// Plays actions on the design and its twin, and compares every counter. Returns those of the design.
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let mut config = config.clone();
    config.walker.walkers = 1;
    twins::compare(&config, [machine("ech", &config, policy), naive(&config, policy)], actions)
}

twins::equals_twin!(compare);

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// A walk in a guest takes the slowest probe of each group with the walk of the host's table before it.
    #[test]
    fn groups_take_their_slowest_probe_in_a_guest(
        cores in 1u32..3,
        host_policy in prop::sample::select(&["base", "thp"]),
        policy in prop::sample::select(&["base", "thp"]),
        actions in actions(),
    ) {
        let mut config = uniform(&GUEST);
        config.core.count = cores;
        config.host.as_mut().unwrap().policy = host_policy.to_owned();
        let (counters, walks) = planned(&config, policy, &actions);
        let cost = Cost::of(&walks);
        let get = |component, counter| value(&counters, component, counter);
        prop_assert_eq!(get("walker.guest", "references"), cost.guest_references);
        prop_assert_eq!(get("walker.host", "references"), cost.host_references);
        // Writes of bits in the host's table may delay a probe that is not the slowest.
        let [guest, host] = ["walker.guest", "walker.host"].map(|component| {
            get(component, "marked") * u64::from(READ_CYCLES)
        });
        let cycles = get("core", "cycles_walks");
        let least = cost.cycles + guest;
        prop_assert!((least..=least + host).contains(&cycles), "{} of {}", cycles, least);
    }

    /// With small pages alone, only walks differ from those of a radix tree.
    #[test]
    fn base_pages_miss_and_fault_as_in_a_radix_tree(
        config in configs(&[]),
        in_guest in any::<bool>(),
        actions in actions(),
    ) {
        let roomy = tiny(if in_guest { &GUEST } else { &[] });
        let config = MachineConfig { memory: roomy.memory, host: roomy.host, ..config };
        let machines = ["conventional", "ech"].map(|hardware| machine(hardware, &config, "base"));
        let counters = counted(&config, machines.into(), &actions);
        let compared = |counters: &Counters| -> Vec<_> {
            let is_compared = |component: &str, counter| match component {
                "os" => !["page_table_bytes", "peak_page_table_bytes", "free_bytes", "entries_written"]
                    .contains(&counter),
                "walker" => ["walks", "faulted"].contains(&counter),
                _ => component.starts_with("tlb.l") || component.starts_with("os."),
            };
            let all = counters.iter().filter(|(component, counter, _)| is_compared(component, *counter));
            all.map(|(component, counter, value)| (component.to_owned(), counter, value)).collect()
        };
        prop_assert_eq!(compared(&counters[0]), compared(&counters[1]));
    }
}

const READ_CYCLES: u32 = 10;

/// [`tiny`] without a nested TLB, whose caches and memory all take [`READ_CYCLES`].
fn uniform(settings: &[&str]) -> MachineConfig {
    let mut config = tiny(settings);
    let cache = &mut config.cache;
    cache.memory_latency_cycles = READ_CYCLES;
    for level in [&mut cache.l1i, &mut cache.l1d, &mut cache.l2, &mut cache.llc] {
        level.latency_cycles = READ_CYCLES;
    }
    config.host.iter_mut().for_each(|host| host.tlb = None);
    config
}

/// The cost of walks in a guest, without writes of accessed and dirty bits.
#[derive(Default)]
struct Cost {
    cycles: u64,
    guest_references: u64,
    host_references: u64,
}

impl Cost {
    /// The cost of these walks where all reads take [`READ_CYCLES`] and there is no nested TLB: the host's
    /// table is walked for each read of the guest's, and at the end for the page.
    fn of(walks: &[Walked]) -> Cost {
        let mut cost = Cost::default();
        let mut walks = walks.iter().peekable();
        while let Some((side, _, walk)) = walks.next() {
            assert!(*side == Side::Guest);
            cost.guest_references += walk.references();
            cost.cycles += u64::from(START_CYCLES);
            for group in &walk.groups {
                let latencies = group.iter().map(|at| cost.read(&mut walks, *at));
                cost.cycles += latencies.collect::<Vec<_>>().into_iter().max().unwrap_or(0);
            }
            for at in &walk.background {
                cost.read(&mut walks, *at);
            }
            // If this walk ended in a fault, another one of the guest follows.
            if let Some((Side::Host, page, _)) = walks.peek() {
                cost.cycles += cost.host_walks(&mut walks, *page);
            }
        }
        cost
    }

    /// The cycles of a read of the guest's table.
    fn read(&mut self, walks: &mut Peekable<Iter<'_, Walked>>, at: PhysAddr) -> u64 {
        self.host_walks(walks, PageNumber::new(at.frame().raw())) + u64::from(READ_CYCLES)
    }

    /// The cycles of the next walk of the host's table, and of those that follow it because it ended in a
    /// fault.
    fn host_walks(&mut self, walks: &mut Peekable<Iter<'_, Walked>>, page: PageNumber) -> u64 {
        let mut cycles = 0;
        while let Some((.., walk)) = walks.next_if(|walk| (walk.0, walk.1) == (Side::Host, page)) {
            self.host_references += walk.references();
            cycles += u64::from(START_CYCLES + READ_CYCLES * walk.groups.len() as u32);
        }
        assert!(cycles > 0);
        cycles
    }
}

impl Planned {
    fn references(&self) -> u64 {
        (self.groups.iter().map(Vec::len).sum::<usize>() + self.background.len()) as u64
    }
}

/// The counters of a machine with a guest, and the walks that its twin plans.
fn planned(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> (Counters, Vec<Walked>) {
    let (twin, log) = planning(config, policy);
    let counters = counted(config, vec![machine("ech", config, policy), twin], actions);
    let log = std::mem::take(&mut *log.lock().unwrap());
    (counters.into_iter().next().unwrap(), log)
}

fn value(counters: &Counters, component: &str, counter: &'static str) -> u64 {
    counters.get(component, counter).unwrap()
}

/// 20 sections of 128 MiB, each with a page of 2 MiB and a small one; and the addresses of all.
fn mixed_pages() -> (Vec<Step>, Vec<u64>) {
    let first = (0..20).map(|section| 0x40_0000_0000 + (section << 27));
    let maps = first.clone().flat_map(|at| [map(at, 512), map(at + (8 << 20), 1)]);
    (maps.collect(), first.flat_map(|at| [at, at + (8 << 20)]).collect())
}

/// Two processes load and store mixed pages; a mapping is removed; a third process begins.
fn mixed_events() -> Vec<(usize, Action)> {
    let (maps, pages) = mixed_pages();
    let pass = |kind| run(references(kind, pages.clone().into_iter()).collect());
    let unmap = Event::Unmap { range: AddrRange::new(VirtAddr::new(0x40_0000_0000), 3 << 27) };
    let mut actions = vec![(0, run(maps))];
    for kind in [ItemKind::Load, ItemKind::Store, ItemKind::Load] {
        actions.extend([(0, pass(kind)), (0, Action::Change(Event::ThreadSwitch { thread: 2 }))]);
    }
    actions.extend([
        (0, Action::Fork),
        (1, pass(ItemKind::Load)),
        (0, pass(ItemKind::Store)),
        (1, Action::Change(unmap)),
        (1, pass(ItemKind::Load)),
        (0, pass(ItemKind::Load)),
        (1, Action::Fork),
        (2, pass(ItemKind::Store)),
    ]);
    actions
}

#[test]
fn compared_kinds_of_walks_occur() {
    let gigantic = "hugetlb:all_anonymous=1GiB:nr_gigantic_pages=3";
    for (settings, policy) in [(&[][..], "thp"), (&[], "base"), (&GUEST, "thp"), (&[], gigantic)] {
        for spaces in ["core.address_spaces=tagged", "core.address_spaces=flushed"] {
            let mut config = tiny(&[settings, &[spaces, "core.count=2"]].concat());
            config.host.iter_mut().for_each(|host| host.policy = "thp".to_owned());
            if policy == gigantic {
                config.memory.bytes = 8 << 30;
                config.memory.largest_block = PageSize::LARGEST;
                config.tlb.l2 = None;
            }
            let mut kinds = [0; KINDS.len()];
            for actions in [mixed_events(), all_events()] {
                let counters = compare(&config, policy, &actions).unwrap();
                assert!(value(&counters, "os", "copy_on_write_faults") > 0);
                let now = KINDS.map(|kind| value(&counters, "walker.cache.walks", kind));
                assert_eq!(now[..4].iter().sum::<u64>(), value(&counters, "walker", "walks"));
                (0..KINDS.len()).for_each(|kind| kinds[kind] += now[kind]);
            }
            let [direct, size, partial, complete, repeated] = kinds.map(|count| count > 0);
            assert!(size && complete && repeated, "{policy}, {spaces}");
            assert_eq!(direct, policy != "base", "{policy}, {spaces}");
            assert!(partial == (policy == "thp") || policy == gigantic, "{policy}, {spaces}");
        }
    }
}

#[test]
fn sections_of_two_sizes_are_probed_partially() {
    let (maps, pages) = mixed_pages();
    let pass = || references(ItemKind::Load, pages.clone().into_iter());
    let runs = [run(maps.into_iter().chain(pass()).collect()), run(pass().collect())];
    let config = tiny(&[]);
    let counters = counted_last(&config, || machine("ech", &config, "thp"), &runs);
    let get = |counter| value(&counters, "walker.cache.walks", counter);
    // The lower sections of 20 entries do not fit; the second of two pages finds what the first has read.
    assert_eq!((get("partial"), get("size"), get("repeated")), (20, 20, 0));
    let actions: Vec<_> = runs.into_iter().map(|run| (0, run)).collect();
    compare(&config, "thp", &actions).unwrap();
}

/// One page in each entry of the table, more than 60% of it.
#[test]
fn walks_find_pages_while_tables_grow() {
    let config = tiny(&["memory.bytes=64MiB"]);
    let pages = || (0..1500).map(|page| 0x4000_0000 + (page << 15));
    let pass = |kind| run(references(kind, pages()).collect());
    let maps = run(pages().map(|at| map(at, 1)).collect());
    let actions = [maps, pass(ItemKind::Load), pass(ItemKind::Store), pass(ItemKind::Load)];
    let counters = compare(&config, "base", &actions.map(|action| (0, action))).unwrap();
    let ways = |entries: u64| 3 * entries * 64;
    let walk_tables = 2 * 2 * 64 * 64;
    assert_eq!(
        value(&counters, "os", "peak_page_table_bytes"),
        ways(512) + ways(2048) + walk_tables
    );
}

#[test]
fn second_pass_in_a_guest_costs_its_groups() {
    for host_policy in ["base", "thp"] {
        for policy in ["base", "thp"] {
            let mut config = uniform(&GUEST);
            config.host.as_mut().unwrap().policy = host_policy.to_owned();
            let (maps, pages) = mixed_pages();
            let pass = run(references(ItemKind::Store, pages.into_iter()).collect());
            let actions = [run(maps), pass.clone(), pass].map(|action| (0, action));
            let (before, walks_before) = planned(&config, policy, &actions[..2]);
            let (after, walks) = planned(&config, policy, &actions);
            let counters = after.since(&before);
            let get = |component, counter| value(&counters, component, counter);
            assert_eq!((get("walker.guest", "marked"), get("walker.host", "marked")), (0, 0));
            let cost = Cost::of(&walks[walks_before.len()..]);
            assert!(get("walker", "walks") >= 40);
            assert_eq!(get("core", "cycles_walks"), cost.cycles);
        }
    }
}

/// If only sections are cached, a radix tree is read four times, one after another, and these tables once.
#[test]
fn one_group_takes_the_place_of_four_reads() {
    let mut config = uniform(&[]);
    config.walker.caches.clear();
    let pages = || (0..60).map(|page| 0x4000_0000 + (page << 12));
    let pass = || references(ItemKind::Load, pages());
    let runs =
        [run([map(0x4000_0000, 60)].into_iter().chain(pass()).collect()), run(pass().collect())];
    for (hardware, references, cycles) in
        [("conventional", 4, 4 * READ_CYCLES), ("ech", 3, START_CYCLES + READ_CYCLES)]
    {
        let counters = counted_last(&config, || machine(hardware, &config, "base"), &runs);
        let get = |component, counter| value(&counters, component, counter);
        let walks = get("walker", "walks");
        assert!(walks >= 48);
        assert_eq!(get("walker", "references"), walks * references, "{hardware}");
        assert_eq!(get("core", "cycles_walks"), walks * u64::from(cycles), "{hardware}");
    }
}
