//! The slow, obvious twin of POM-TLB: its tables are lists in order of last use, its predictor is a map, and its
//! counters are plain numbers. The tests compare every counter of both, and check laws of the design.
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

use octavo_config::{MachineConfig, PageSizes, TlbArray, Ways};
use octavo_oracle::strategies::Step;
use octavo_os::ProcessId;
use octavo_os::vmas::Pages;
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, Instructions, ItemKind, MapSource, PageNumber, PageSize,
    PhysAddr, Protection, VirtAddr,
};
use proptest::prelude::*;

use super::PomTlbSettings;
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::Conventional;
use crate::designs::build::{self, Tables};
use crate::designs::registry::policies;
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, differences,
    fitting_pages, machine, map, references, run, setup, tiny,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;
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

/// Bytes of both tables: those of the setting, or a 64th of smaller memory as a power of two.
fn reserved_bytes(config: &MachineConfig) -> u64 {
    let memory = config.host.as_ref().map_or(&config.memory, |host| &host.memory);
    let wanted = config.designs.get::<PomTlbSettings>().bytes;
    if memory.bytes / 64 >= wanted { wanted } else { 1 << (memory.bytes / 64).ilog2() }
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

    /// Reads the set of the predicted size. Returns the page if an entry covers it.
    fn read(&mut self, env: &mut Env, page: PageNumber) -> Option<Translation> {
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
        Some(Translation { size, entry: used.2 })
    }

    /// Walks the page table, and writes the page to the second level, its table and the predictor.
    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        (held, is_clean): (Lookup, bool),
    ) -> Option<Translation> {
        let translation = self.walk(env, page, access, is_clean)?;
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
        self.conventional.fill_l2(env.asid(), page, translation, held);
        Some(translation)
    }
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let page = env.page(access);
        let translation = match self.conventional.look_up_l1(env, page, access) {
            Lookup::Hit(translation) => translation,
            held @ Lookup::PermissionMiss { is_clean } => {
                let walked = self.walk_and_fill(env, page, access, (held, is_clean))?;
                self.conventional.replace_l1(env.asid(), page, walked, access);
                walked
            }
            Lookup::Miss => match self.conventional.look_up_l2(env, page, access) {
                Lookup::Hit(translation) => translation,
                in_second => {
                    let is_store = access.kind() == Access::Store;
                    let read = self.read(env, page);
                    let translation = match read {
                        Some(translation) if translation.entry.permits(is_store) => {
                            let asid = env.asid();
                            self.conventional.fill_l2(asid, page, translation, in_second);
                            translation
                        }
                        _ => {
                            // An entry that denies a store to a writable page is clean.
                            let in_table = read.is_some_and(|read| read.entry.is_writable());
                            let in_second_too =
                                matches!(in_second, Lookup::PermissionMiss { is_clean: true });
                            let held = (in_second, in_table || in_second_too);
                            self.walk_and_fill(env, page, access, held)?
                        }
                    };
                    self.conventional.fill_l1(env.asid(), page, translation, access);
                    translation
                }
            },
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.conventional.invalidate(space, pages);
        let mut received = self.received.lock().unwrap();
        let times = |core: &[(ProcessId, Pages)]| {
            core.iter().filter(|one| **one == (space.process, pages.clone())).count()
        };
        received[self.core].push((space.process, pages.clone()));
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
                *process != space.process || after <= pages.start || first >= pages.end
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

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let reserved_bytes = reserved_bytes(config);
    let tables = Tables { reserved_bytes, ..Tables::default() };
    let sets = Arc::new(Mutex::new(Sets::new()));
    let os = policies().parse(policy).unwrap();
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

/// Plays actions on the design and its twin, and compares every counter. Returns those of the design.
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    twins::compare(config, [machine("pom_tlb", config, policy), naive(config, policy)], actions)
}

twins::equals_twin!(compare);

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// The TLBs hit and miss as without tables; each miss of the second level reads one set, and only a hit
    /// takes the place of a walk.
    #[test]
    fn tables_replace_only_walks(config in configs(&[]), actions in actions()) {
        let config = MachineConfig { memory: tiny(&[]).memory, ..config };
        for policy in ["base", "thp"] {
            let hardware = ["conventional", "pom_tlb"];
            let machines = hardware.map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            let tlb_counters = |counters: &Counters| -> Vec<_> {
                let all = counters.iter().filter(|(component, ..)| component.starts_with("tlb.l"));
                all.map(|(component, counter, value)| (component.to_owned(), counter, value)).collect()
            };
            prop_assert_eq!(tlb_counters(&counters[0]), tlb_counters(&counters[1]));
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
                let counters = counted_last(
                    &config,
                    || machine("pom_tlb", &config, policy),
                    &[run(maps), run(pass)],
                );
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
    let (usual, small) = (tiny(&[]), tiny(&["pom_tlb.bytes=8KiB"]));
    assert_eq!(reserved_bytes(&small), 8 << 10);
    assert!(reserved_bytes(&usual) > 8 << 10);
    for config in [usual, small] {
        four_pages_of_a_set_stay(&config);
    }
}

fn four_pages_of_a_set_stay(config: &MachineConfig) {
    let sets = reserved_bytes(config) / 2 / SET_BYTES;
    for (policy, size) in [("base", PageSize::BASE), ("thp", PageSize::HUGE)] {
        for (pages, hits) in [(4, 44), (5, 40)] {
            let first = 0x4000_0000;
            let in_set = (0..pages).map(|page| first + page * sets * size.bytes());
            // Other sets' pages, which the TLBs hold afterwards.
            let others = (1..=40).map(|page| first + page * size.bytes());
            let addresses: Vec<_> = in_set.chain(others).collect();
            let maps = addresses.iter().map(|addr| map(*addr, size.bytes() >> 12));
            let pass = || references(ItemKind::Load, addresses.clone().into_iter());
            let runs = [run(maps.chain(pass()).collect()), run(pass().collect())];
            let counters = counted_last(config, || machine("pom_tlb", config, policy), &runs);
            assert_eq!(counters.get("tlb.pom", "hits"), Some(hits), "{policy}, {pages} pages");
            assert_eq!(counters.get("tlb.pom", "misses"), Some(40 + pages - hits));
        }
    }
}

#[test]
fn compared_events_occur() {
    let gigantic = "hugetlb:all_anonymous=1GiB:nr_gigantic_pages=2";
    let small = &["pom_tlb.bytes=4KiB"];
    for (settings, policy) in
        [(&[][..], "thp"), (&[], "base"), (small, "thp"), (&GUEST, "thp"), (&[], gigantic)]
    {
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
