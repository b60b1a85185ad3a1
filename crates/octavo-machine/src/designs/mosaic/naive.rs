//! The slow, obvious twin: the 104 candidates of a page as a list of frames, entries that map pages to whole frame numbers,
//! sets as lists in order of last use, and a policy that looks through the list. It compresses nothing. The tests compare
//! every counter of both.
//!
//! Where the description of the design leaves a choice, the twin does this:
//!
//! - A look-up tries the tables of an array first, then its entries of single pages.
//! - A store to a clean page removes the page from the entries of both levels before the walk fills it again; the other
//!   pages of the table stay.
//! - A fill replaces the present table, and makes it the most recently used entry.

use std::collections::BTreeMap;

use octavo_config::{Fill, FirstLevel, MachineConfig, TlbLevel};
use octavo_hw::Asid;
use octavo_oracle::strategies::Step;
use octavo_os::frames::{Frames, OutOfMemory};
use octavo_os::page_table::DesignCounter;
use octavo_os::policy::{Fault, OsConfig, Policy, PolicyConfig, PolicySettings};
use octavo_os::vmas::Pages;
use octavo_os::{Memory, Placement, ProcessId};
use octavo_trace::splitmix;
use octavo_types::{
    AddrRange, Event, FrameNumber, ItemKind, PageNumber, PageSize, Protection, VirtAddr,
};
use proptest::prelude::*;
use serde::{Deserialize, Serialize};

use super::MosaicSettings;
use crate::counters::{Counters, Lookups};
use crate::design::{AddressSpace, Design};
use crate::designs::build;
use crate::designs::twins::{
    self, Action, actions, all_events, configs, counted, counted_last, machine, map, references,
    run, setup, tiny,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;

/// All candidate frames of a page in a memory of `frames` frames: those of its front yard, then those of each back yard.
fn candidates(process: ProcessId, page: u64, frames: u64) -> Vec<u64> {
    let buckets = frames / 64;
    if buckets == 0 {
        return Vec::new();
    }
    let hash = |function: u64| splitmix(page ^ u64::from(process.0) << 45 ^ function << 61);
    let front = hash(0) % buckets * 64;
    let mut all: Vec<u64> = (front..front + 56).collect();
    for part in 0..6 {
        let (start, end) = (part * buckets / 6, (part + 1) * buckets / 6);
        let bucket = if start == end { start } else { start + hash(part + 1) % (end - start) };
        all.extend(bucket * 64 + 56..bucket * 64 + 64);
    }
    all
}

/// A page that an entry holds.
#[derive(Clone, Copy)]
struct Held {
    frame: u64,
    is_writable: bool,
    is_dirty: bool,
}

/// An entry: pages, all of one table or a single one that is in none of its candidates.
#[derive(Clone)]
struct Entry {
    asid: Asid,
    is_table: bool,
    pages: BTreeMap<u64, Held>,
}

/// A TLB, of whose arrays the one for base pages alone has entries.
struct Level {
    component: &'static str,
    /// All arrays, and which of them is for base pages.
    names: Vec<String>,
    base: usize,
    /// Pages of a table; `None` where there are no tables.
    arity: Option<u64>,
    /// The entry that was used last at the end.
    sets: Vec<Vec<Entry>>,
    ways: usize,
    hits: u64,
    misses: u64,
    fills: u64,
    filled_pages: u64,
    pages_alone: u64,
}

impl Level {
    fn new(component: &'static str, level: &TlbLevel, arity: Option<u64>) -> Self {
        let is_base = |name: &String| level.arrays[name].page_sizes.hold(PageSize::BASE);
        let names: Vec<String> = level.arrays.keys().cloned().collect();
        let base = names.iter().position(is_base).unwrap();
        let array = &level.arrays[&names[base]];
        let ways = array.ways.of(array.entries);
        let sets = (0..array.entries / ways).map(|_| Vec::new()).collect();
        let (hits, misses, fills, filled_pages, pages_alone) = (0, 0, 0, 0, 0);
        Level {
            component,
            names,
            base,
            arity,
            sets,
            ways: ways as usize,
            hits,
            misses,
            fills,
            filled_pages,
            pages_alone,
        }
    }

    /// The set of a table, or of a page alone.
    fn set(&mut self, page: u64, is_table: bool) -> &mut Vec<Entry> {
        let number = if is_table { page / self.arity.unwrap() } else { page };
        let count = self.sets.len() as u64;
        &mut self.sets[(number % count) as usize]
    }

    /// Looks a page up for so many references, and gives the entry that has it.
    fn look_up(&mut self, asid: Asid, page: u64, references: u32) -> Option<Entry> {
        let kinds = if self.arity.is_some() { &[true, false][..] } else { &[false] };
        for is_table in kinds {
            let set = self.set(page, *is_table);
            let has = |entry: &Entry| {
                entry.asid == asid && entry.is_table == *is_table && entry.pages.contains_key(&page)
            };
            if let Some(at) = set.iter().position(has) {
                let entry = set.remove(at);
                set.push(entry.clone());
                self.hits += u64::from(references);
                return Some(entry);
            }
        }
        self.misses += u64::from(references.min(1));
        None
    }

    fn fill(&mut self, page: u64, mut entry: Entry, references: u32) {
        if self.arity.is_none() {
            entry.is_table = false;
            entry.pages.retain(|other, _| *other == page);
        }
        match entry.is_table {
            true => {
                self.fills += 1;
                self.filled_pages += entry.pages.len() as u64;
            }
            false => self.pages_alone += 1,
        }
        self.hits += u64::from(references.saturating_sub(1));
        let (arity, ways) = (self.arity.unwrap_or(1), self.ways);
        let number = |pages: &BTreeMap<u64, Held>| pages.keys().next().unwrap() / arity;
        let is_same = |other: &Entry| {
            let is_same_place = match entry.is_table {
                true => number(&other.pages) == number(&entry.pages),
                false => other.pages.contains_key(&page),
            };
            other.asid == entry.asid && other.is_table == entry.is_table && is_same_place
        };
        let set = self.set(page, entry.is_table);
        match set.iter().position(is_same) {
            Some(at) => drop(set.remove(at)),
            None if set.len() == ways => drop(set.remove(0)),
            None => {}
        }
        set.push(entry);
    }

    fn remove(&mut self, asid: Asid, is_gone: impl Fn(u64) -> bool) {
        for set in &mut self.sets {
            for entry in set.iter_mut().filter(|entry| entry.asid == asid) {
                entry.pages.retain(|page, _| !is_gone(*page));
            }
            set.retain(|entry| !entry.pages.is_empty());
        }
    }

    fn report(&self, counters: &mut Counters) {
        let Level { hits, misses, .. } = *self;
        Lookups { hits, misses }.report(self.component, counters);
        for (at, name) in self.names.iter().enumerate() {
            let component = format!("{}.{name}", self.component);
            let of = if at == self.base { hits } else { 0 };
            Lookups { hits: of, misses: hits + misses - of }.report(&component, counters);
            if at == self.base && self.arity.is_some() {
                counters.add(&component, "fills", self.fills);
                counters.add(&component, "filled_pages", self.filled_pages);
                counters.add(&component, "pages_alone", self.pages_alone);
            }
        }
    }
}

/// The unit of one core.
struct Naive {
    first: [Level; 2],
    second: Option<Level>,
    latency_cycles: u32,
    arity: u64,
    frames: u64,
}

impl Naive {
    fn new(config: &MachineConfig) -> Self {
        let settings = config.designs.get::<MosaicSettings>();
        let in_first = settings.first_level.then_some(settings.arity);
        let FirstLevel::Split { l1i, l1d } = &config.tlb.first else { unreachable!() };
        let l2 = config.tlb.l2.as_ref();
        Naive {
            first: [Level::new("tlb.l1i", l1i, in_first), Level::new("tlb.l1d", l1d, in_first)],
            second: l2.map(|level| Level::new("tlb.l2", level, Some(settings.arity))),
            latency_cycles: l2.map_or(0, |level| level.hit_latency_cycles),
            arity: settings.arity,
            frames: config.memory.bytes >> 12,
        }
    }

    /// A page as the page table has it, and whether it is in one of its candidates; `None` if no walk may fill it.
    fn page(&self, env: &Env, page: u64) -> Option<(Held, bool)> {
        let number = PageNumber::new(page);
        let (leaf, (is_accessed, is_dirty)) =
            (env.table().leaf(number)?, env.table().used(number)?);
        let frame = leaf.frame_of(number).raw();
        let is_candidate = candidates(env.process(), page, self.frames).contains(&frame);
        let held = Held { frame, is_writable: leaf.rights.write, is_dirty };
        is_accessed.then_some((held, is_candidate))
    }

    /// The entry that a walk to a page fills.
    fn walked(&self, env: &Env, page: u64) -> Entry {
        let (own, is_table) = self.page(env, page).expect("it has been walked to");
        let table = page / self.arity * self.arity..(page / self.arity + 1) * self.arity;
        let pages = match is_table {
            false => [(page, own)].into(),
            true => table
                .filter_map(|other| match self.page(env, other)? {
                    (held, true) => Some((other, held)),
                    _ => None,
                })
                .collect(),
        };
        Entry { asid: env.asid(), is_table, pages }
    }
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page, references) = (env.asid(), env.page(access).raw(), access.lookups());
        let side = usize::from(!access.kind().is_fetch());
        let permits = |of: Held| !access.is_store() || of.is_writable && of.is_dirty;
        let in_first = self.first[side].look_up(asid, page, references).map(|of| of.pages[&page]);
        if let Some(held) = in_first {
            if permits(held) {
                return Some(FrameNumber::new(held.frame));
            }
            self.first[side].hits -= u64::from(references.max(1) - 1);
        }
        let mut held = in_first;
        if let Some(second) = &mut self.second
            && in_first.is_none()
        {
            let found = second.look_up(asid, page, 1);
            env.charge_l2_lookup(self.latency_cycles, found.is_some());
            if let Some(entry) = found {
                let of_page = entry.pages[&page];
                if permits(of_page) {
                    self.first[side].fill(page, entry, references);
                    return Some(FrameNumber::new(of_page.frame));
                }
                held = Some(of_page);
            }
        }
        self.walk(env, PageNumber::new(page), access, held.is_some_and(|of| of.is_writable))?;
        let entry = self.walked(env, page);
        let frame = entry.pages[&page].frame;
        if let Some(second) = &mut self.second {
            if held.is_some() {
                second.remove(asid, |other| other == page);
            }
            second.fill(page, entry.clone(), 1);
        }
        if in_first.is_some() {
            self.first[side].remove(asid, |other| other == page);
        }
        self.first[side].fill(page, entry, references);
        Some(FrameNumber::new(frame))
    }

    fn invalidate(&mut self, of: AddressSpace, pages: &Pages) {
        for level in self.first.iter_mut().chain(&mut self.second) {
            level.remove(of.asid, |page| pages.contains(&page));
        }
    }

    fn flush(&mut self) {
        for level in self.first.iter_mut().chain(&mut self.second) {
            level.sets.iter_mut().for_each(Vec::clear);
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.first.iter().chain(&self.second).for_each(|level| level.report(counters));
    }
}

/// Iceberg hashing by lists: the policy, and its placement, which counts pages in front yards and in back yards, and
/// conflicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct NaiveIcebergConfig {}

impl PolicySettings for NaiveIcebergConfig {
    fn build(&self) -> Box<dyn Policy> {
        Box::new(NaiveIceberg::default())
    }
}

#[derive(Default)]
struct NaiveIceberg([u64; 3]);

impl Policy for NaiveIceberg {
    fn start(&mut self, memory: &mut Memory) {
        memory.place_by(Box::new(NaiveIceberg::default()));
    }

    fn fault(&mut self, memory: &mut Memory, fault: &Fault) -> Result<(), OutOfMemory> {
        memory.place_new(fault.process, fault.page, PageSize::BASE, fault.vma.rights)
    }
}

impl Placement for NaiveIceberg {
    fn choose(
        &mut self,
        frames: &Frames,
        process: ProcessId,
        page: PageNumber,
    ) -> Option<FrameNumber> {
        let mut all = candidates(process, page.raw(), frames.shape().frames());
        let is_free = |frame: &u64| frames.owner(FrameNumber::new(*frame)).is_none();
        let start = splitmix(page.raw() ^ u64::from(process.0) << 45 ^ 7 << 61);
        let (front, back) = all.split_at_mut_checked(56)?;
        front.rotate_left((start % 56) as usize);
        let mut best: Vec<u64> = Vec::new();
        for yard in back.chunks_mut(8) {
            yard.rotate_left((start % 8) as usize);
            let free: Vec<u64> = yard.iter().copied().filter(is_free).collect();
            if free.len() > best.len() {
                best = free;
            }
        }
        if let Some(frame) = front.iter().copied().find(is_free) {
            self.0[0] += 1;
            return Some(FrameNumber::new(frame));
        }
        match best.first() {
            Some(frame) => {
                self.0[1] += 1;
                Some(FrameNumber::new(*frame))
            }
            None => {
                self.0[2] += u64::from(frames.free_frames() > 0);
                None
            }
        }
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let names = ["front_yard_pages", "back_yard_pages", "conflicts"];
        let counter = |(name, value)| DesignCounter { name, value, is_level: false };
        names.into_iter().zip(self.0).map(counter).collect()
    }
}

fn naive(config: &MachineConfig) -> Box<dyn AnyMachine> {
    let os = OsConfig::new(PolicyConfig::from(NaiveIcebergConfig {}));
    build::machine(config, &setup(config), &os, || Ok(Naive::new(config))).unwrap()
}

/// Arities, and whether the first level has tables.
const SETTINGS: [(u64, bool); 5] = [(4, true), (64, true), (8, false), (2, true), (1, true)];

/// Plays actions on the design and its twin, with these settings, and compares every counter. Returns those of the design.
fn compare_one(
    config: &MachineConfig,
    (arity, first_level): (u64, bool),
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let config = twins::with(config, MosaicSettings { arity, first_level });
    twins::compare(&config, [machine("mosaic", &config, "iceberg"), naive(&config)], actions)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn design_equals_twin(config in configs(&[]), actions in actions()) {
        for settings in SETTINGS {
            compare_one(&config, settings, &actions)?;
        }
    }

    /// Tables of one page miss where pages do, under any placement of frames.
    #[test]
    fn arity_of_one_is_the_conventional_design(
        config in configs(&["mosaic.arity=1"]),
        actions in actions(),
    ) {
        let mut config = config;
        config.tlb.l2.iter_mut().for_each(|level| level.fill = Fill::All);
        let machines = [("mosaic", "iceberg"), ("conventional", "iceberg"), ("conventional", "base")];
        let machines = machines.map(|(hardware, policy)| machine(hardware, &config, policy));
        let [own, same_frames, other_frames]: [Counters; 3] = counted(&config, machines.into(), &actions)
            .try_into()
            .expect("three machines");
        let is_own = |counter: &str| ["fills", "filled_pages", "pages_alone"].contains(&counter);
        let of = |counters: &Counters, is_it: &dyn Fn(&str, &str) -> bool| {
            let all = counters.iter().filter(|(component, counter, _)| is_it(component, counter));
            all.map(|(component, counter, value)| (component.to_owned(), counter, value)).collect::<Vec<_>>()
        };
        let all = |component: &str, counter: &str| !(component.starts_with("tlb.") && is_own(counter));
        prop_assert_eq!(of(&own, &all), of(&same_frames, &all));
        // Other frames are in other lines of the caches, and memory that has run out stops machines anywhere.
        if config.memory.bytes == 2 << 30 {
            let of_pages = |component: &str, counter: &str| {
                component.starts_with("tlb.") && !is_own(counter)
                    || component == "walker" && ["walks", "walks_dirty", "faulted", "references"].contains(&counter)
                    || component == "os" && counter == "faults"
            };
            prop_assert_eq!(of(&own, &of_pages), of(&other_frames, &of_pages));
        }
    }
}

#[test]
fn compared_events_occur() {
    for spaces in ["core.address_spaces=tagged", "core.address_spaces=flushed"] {
        let config = tiny(&[spaces, "core.count=2"]);
        let counters = compare_one(&config, (4, true), &all_events()).unwrap();
        let get = |component: &str, counter| counters.get(component, counter).unwrap();
        let of_l2 = |counter| get("tlb.l2.main", counter);
        assert!(of_l2("hits") > 0 && of_l2("filled_pages") > of_l2("fills"), "{spaces}");
        // Pages of the child, which its parent has placed.
        assert!(of_l2("pages_alone") > 0, "{spaces}");
        assert!(get("os", "copy_on_write_faults") > 0 && get("walker", "walks_dirty") > 0);
        assert!(get("os", "front_yard_pages") > 0);
    }
}

#[test]
fn compared_pages_are_in_back_yards_and_conflict_in_little_memory() {
    let (mut in_back, mut conflicts) = (0, 0);
    for frames in (160..480).step_by(32) {
        let mut config = tiny(&["core.count=2"]);
        config.memory.bytes = frames << 12;
        let counters = compare_one(&config, (4, true), &all_events()).unwrap();
        in_back += counters.get("os", "back_yard_pages").unwrap();
        conflicts += counters.get("os", "conflicts").unwrap();
    }
    assert!(in_back > 0 && conflicts > 0, "{in_back} {conflicts}");
}

const FIRST: u64 = 0x1000_0000;
const PAGES: u64 = 192;

/// The counters of loads of [`PAGES`] pages that are mapped, one after the other, with empty TLBs.
fn counters_of_a_pass(arity: u64) -> Counters {
    let config = twins::with(&tiny(&[]), MosaicSettings { arity, first_level: true });
    let page = |number: u64| FIRST + (number << 12);
    let pass = || references(ItemKind::Load, (0..PAGES).map(page));
    let range = AddrRange::new(VirtAddr::new(FIRST), PAGES << 12);
    let mut steps = vec![map(FIRST, PAGES)];
    steps.extend(pass());
    // The TLBs drop the pages.
    for bits in [1, 3] {
        let protection = Protection::from_bits(bits);
        steps.push(Step::Event(Event::Protect { range, protection }));
    }
    let runs = [run(steps), run(pass().collect())];
    counted_last(&config, || machine("mosaic", &config, "iceberg"), &runs)
}

#[test]
fn pass_over_mapped_pages_misses_once_for_each_table() {
    for arity in [1, 2, 4, 8, 16, 32, 64] {
        let counters = counters_of_a_pass(arity);
        let get = |component: &str, counter| counters.get(component, counter).unwrap();
        for level in ["tlb.l1d", "tlb.l2"] {
            assert_eq!(get(level, "misses"), PAGES / arity, "{level} {arity}");
        }
        assert_eq!(get("walker", "walks"), PAGES / arity, "{arity}");
        assert_eq!(get("tlb.l2.main", "filled_pages"), PAGES);
        assert_eq!(get("tlb.l2.main", "pages_alone"), 0);
    }
}
