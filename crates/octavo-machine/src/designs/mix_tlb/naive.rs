//! The slow, obvious twin: a level is a list of sets, a set a list of entries in order of last use, and an entry a map
//! from superpages to their frames. A walk asks the page tables for each neighbour by itself. The tests compare every
//! counter of both, and check laws of the design.
//!
//! Where the description of the design leaves a choice, the twin does this:
//!
//! - Entries of a set with superpages of one group are not merged if they differ in anything but the superpages or, in
//!   the second level, if there is a gap between them.
//! - A filled entry that merges others replaces them, and is the most recently used one.

use std::collections::{BTreeMap, BTreeSet};

use octavo_config::{FirstLevel, MachineConfig, TlbLevel};
use octavo_hw::Asid;
use octavo_oracle::strategies::Step;
use octavo_os::page_table::PageTable;
use octavo_os::vmas::Pages;
use octavo_types::{AddrRange, Event, FrameNumber, ItemKind, PageNumber, Protection, VirtAddr};
use proptest::prelude::*;

use super::{MixFill, MixTlbSettings};
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::build;
use crate::designs::registry::policies;
use crate::designs::twins::{
    self, Action, GUEST, actions, configs, counted, counted_last, differences, guest_configs,
    machine, map, references, run, setup, tiny,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;

/// Pages of one size: the number of each, counted in pages of that size, with its first frame.
#[derive(Clone, PartialEq, Debug)]
struct Held {
    asid: Asid,
    base_pages: u64,
    frames: BTreeMap<u64, u64>,
    is_writable: bool,
    is_dirty: bool,
}

impl Held {
    fn has(&self, asid: Asid, page: u64) -> bool {
        self.asid == asid && self.frames.contains_key(&(page / self.base_pages))
    }

    fn frame_of(&self, page: u64) -> u64 {
        self.frames[&(page / self.base_pages)] + page % self.base_pages
    }

    /// The frame of page 0, if contiguous pages extended that far.
    fn origin(&self) -> i128 {
        let (number, frame) = self.frames.first_key_value().unwrap();
        i128::from(*frame) - i128::from(number * self.base_pages)
    }

    fn is_run(&self) -> bool {
        let (first, last) = (self.frames.keys().min().unwrap(), self.frames.keys().max().unwrap());
        last - first + 1 == self.frames.len() as u64
    }

    fn is_alike(&self, other: &Held) -> bool {
        let kind = |held: &Held| (held.origin(), held.is_writable, held.is_dirty);
        kind(self) == kind(other)
    }
}

/// A level of a TLB.
struct Level {
    /// The entries of each set, the most recently used one at the end.
    sets: Vec<Vec<Held>>,
    ways: usize,
    /// The most superpages of an entry.
    group: u64,
    has_runs: bool,
    fills_all: bool,
    latency_cycles: u32,
    hits: u64,
    misses: u64,
    fills: u64,
    filled_pages: u64,
    mirrors: u64,
}

impl Level {
    fn new(config: &TlbLevel, settings: MixTlbSettings, has_runs: bool) -> Self {
        // The machines of the tests name the array of base pages first.
        let (_, base_array) = config.arrays.first().unwrap();
        let sets = base_array.entries / base_array.ways.of(base_array.entries);
        let entries: u64 = config.arrays.values().map(|array| array.entries).sum();
        let mut group = 1;
        while 2 * group <= sets && 2 * group <= settings.bundle_pages {
            group *= 2;
        }
        Level {
            sets: vec![Vec::new(); sets as usize],
            ways: (entries / sets) as usize,
            group,
            has_runs,
            fills_all: settings.fill == MixFill::All,
            latency_cycles: config.hit_latency_cycles,
            hits: 0,
            misses: 0,
            fills: 0,
            filled_pages: 0,
            mirrors: 0,
        }
    }

    fn set_of(&self, page: u64) -> usize {
        (page % self.sets.len() as u64) as usize
    }

    /// Looks a page up for a store or another access and its repeats: the entry, and whether it permits the access.
    fn look_up(
        &mut self,
        asid: Asid,
        page: u64,
        (stores, lookups): (bool, u64),
    ) -> Option<(Held, bool)> {
        let set = self.set_of(page);
        let set = &mut self.sets[set];
        let with_page: Vec<_> = (0..set.len()).filter(|at| set[*at].has(asid, page)).collect();
        assert!(with_page.len() < 2, "a set has a page once");
        let Some(at) = with_page.first() else {
            self.misses += lookups.min(1);
            return None;
        };
        let held = set.remove(*at);
        set.push(held.clone());
        let serves = !stores || held.is_writable && held.is_dirty;
        // The repeats hit what a walk fills.
        self.hits += if serves { lookups } else { lookups.min(1) };
        Some((held, serves))
    }

    fn fill(&mut self, page: u64, mut held: Held, lookups: u64) {
        self.hits += lookups.saturating_sub(1);
        if held.base_pages == 1 {
            let set = self.set_of(page);
            self.fill_set(set, held);
            return;
        }
        let own = page / held.base_pages;
        held.frames.retain(|number, _| number / self.group == own / self.group);
        if self.has_runs {
            let has = |frames: &BTreeMap<u64, u64>, number| frames.contains_key(&number);
            let all = held.frames.clone();
            held.frames.retain(|number, _| {
                (own.min(*number)..=own.max(*number)).all(|between| has(&all, between))
            });
        }
        self.fills += 1;
        self.filled_pages += held.frames.len() as u64;
        let sets: BTreeSet<usize> = if self.fills_all {
            let first = held.frames.keys().min().unwrap() * held.base_pages;
            let end = (held.frames.keys().max().unwrap() + 1) * held.base_pages;
            (first..end).take(self.sets.len()).map(|page| self.set_of(page)).collect()
        } else {
            [self.set_of(page)].into()
        };
        for set in sets {
            self.mirrors += 1;
            self.fill_set(set, held.clone());
        }
    }

    fn fill_set(&mut self, set: usize, mut held: Held) {
        let (group, has_runs) = (self.group, self.has_runs);
        let group_of = |held: &Held| held.frames.keys().min().unwrap() / group;
        let set = &mut self.sets[set];
        let is_near = |other: &Held| {
            (other.asid, other.base_pages) == (held.asid, held.base_pages)
                && group_of(other) == group_of(&held)
        };
        // The others keep their order.
        let near: Vec<_> = set.iter().filter(|other| is_near(other)).cloned().collect();
        for other in near {
            let mut both = held.clone();
            both.frames.extend(other.frames.clone());
            if held.base_pages > 1 && other.is_alike(&held) && (!has_runs || both.is_run()) {
                held = both;
            } else if !other.frames.keys().any(|number| held.frames.contains_key(number)) {
                continue;
            }
            set.retain(|kept| *kept != other);
        }
        if set.len() == self.ways {
            set.remove(0);
        }
        set.push(held);
    }

    fn drop_all(&mut self, asid: Asid, pages: &Pages) {
        for set in &mut self.sets {
            set.retain(|held| {
                let overlaps = |number: &u64| {
                    let first = number * held.base_pages;
                    first < pages.end && pages.start < first + held.base_pages
                };
                held.asid != asid || !held.frames.keys().any(overlaps)
            });
        }
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        let array = format!("{component}.mix");
        for component in [component, &array] {
            counters.add(component, "accesses", self.hits + self.misses);
            counters.add(component, "hits", self.hits);
            counters.add(component, "misses", self.misses);
        }
        counters.add(&array, "fills", self.fills);
        counters.add(&array, "filled_pages", self.filled_pages);
        counters.add(&array, "mirrors", self.mirrors);
        let bundles = self.sets.iter().flatten().filter(|held| held.base_pages > 1).count();
        counters.add_level(&array, "bundles", bundles as u64);
    }
}

/// The unit of one core.
struct Naive {
    /// For instructions and for data.
    first: [Level; 2],
    second: Option<Level>,
}

impl Naive {
    fn new(config: &MachineConfig) -> Self {
        let settings = *config.designs.get::<MixTlbSettings>();
        let FirstLevel::Split { l1i, l1d } = &config.tlb.first else {
            panic!("a split first level")
        };
        Naive {
            first: [l1i, l1d].map(|level| Level::new(level, settings, false)),
            second: config.tlb.l2.as_ref().map(|level| Level::new(level, settings, true)),
        }
    }

    /// Walks to a page. Returns the entry that a TLB may hold for it.
    fn walked(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        is_clean: bool,
    ) -> Option<Held> {
        let walked = self.walk(env, page, access, is_clean)?;
        let base_pages = walked.size.bytes() >> 12;
        let own = page.raw() / base_pages;
        let first_frame = walked.frame_of(page).raw() - page.raw() % base_pages;
        let mut frames = BTreeMap::from([(own, first_frame)]);
        for number in own.saturating_sub(7)..own + 8 {
            let other = PageNumber::new(number * base_pages + page.raw() % base_pages);
            let distance = number as i64 - own as i64;
            let own_tables: Vec<_> = env.tables(page).collect();
            let other_tables: Vec<_> = env.tables(other).collect();
            let pairs = own_tables.iter().zip(&other_tables);
            if base_pages > 1 && own_tables.len() == other_tables.len() && { pairs }
                .all(|(own, other)| continues(*own, *other, distance, base_pages))
            {
                frames
                    .insert(number, first_frame.wrapping_add_signed(distance * base_pages as i64));
            }
        }
        let (is_writable, is_dirty) = (walked.entry.is_writable(), walked.entry.is_dirty());
        Some(Held { asid: env.asid(), base_pages, frames, is_writable, is_dirty })
    }

    fn walk_and_fill_second(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        before: Option<Held>,
    ) -> Option<Held> {
        let is_clean = before.as_ref().is_some_and(|held| held.is_writable);
        let held = self.walked(env, page, access, is_clean)?;
        if let Some(second) = &mut self.second {
            if before.is_some() {
                second.drop_all(env.asid(), &(page.raw()..page.raw() + 1));
            }
            second.fill(page.raw(), held.clone(), 1);
        }
        Some(held)
    }
}

/// Whether `other` continues `own` in a table: it is `distance` pages of `base_pages` base pages away, in virtual
/// addresses and in memory, and has an equal entry in the same line, or is a part of the same larger page.
fn continues(
    (table, own): (&PageTable, PageNumber),
    (_, other): (&PageTable, PageNumber),
    distance: i64,
    base_pages: u64,
) -> bool {
    let by = distance * base_pages as i64;
    let (Some(own_leaf), Some(other_leaf)) = (table.leaf(own), table.leaf(other)) else {
        return false;
    };
    let pages = own_leaf.size.bytes() >> 12;
    let is_seen = if pages > base_pages {
        own.raw() / pages == other.raw() / pages
    } else {
        own.raw() / pages / 8 == other.raw() / pages / 8
    };
    pages >= base_pages
        && is_seen
        && other.raw() == own.raw().wrapping_add_signed(by)
        && other_leaf.frame_of(other).raw() == own_leaf.frame_of(own).raw().wrapping_add_signed(by)
        && (other_leaf.size, other_leaf.rights) == (own_leaf.size, own_leaf.rights)
        && table.used(other) == table.used(own)
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page) = (env.asid(), env.page(access));
        let (side, lookups) = (access.side(), u64::from(access.lookups()));
        let stores = access.is_store();
        let held = match self.first[side].look_up(asid, page.raw(), (stores, lookups)) {
            Some((held, true)) => held,
            Some((before, false)) => {
                let held = self.walk_and_fill_second(env, page, access, Some(before))?;
                self.first[side].drop_all(asid, &(page.raw()..page.raw() + 1));
                self.first[side].fill(page.raw(), held.clone(), lookups);
                held
            }
            None => {
                let found = self.second.as_mut().and_then(|second| {
                    let found = second.look_up(asid, page.raw(), (stores, 1));
                    env.charge_l2_lookup(second.latency_cycles, found.is_some());
                    found
                });
                let held = match found {
                    Some((held, true)) => held,
                    other => {
                        let before = other.map(|(held, _)| held);
                        self.walk_and_fill_second(env, page, access, before)?
                    }
                };
                self.first[side].fill(page.raw(), held.clone(), lookups);
                held
            }
        };
        Some(FrameNumber::new(held.frame_of(page.raw())))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.first
            .iter_mut()
            .chain(&mut self.second)
            .for_each(|level| level.drop_all(space.asid, pages));
    }

    fn flush(&mut self) {
        let levels = self.first.iter_mut().chain(&mut self.second);
        levels.flat_map(|level| &mut level.sets).for_each(Vec::clear);
    }

    fn report(&self, counters: &mut Counters) {
        for (level, name) in self.first.iter().zip(["tlb.l1i", "tlb.l1d"]) {
            level.report(name, counters);
        }
        self.second.iter().for_each(|level| level.report("tlb.l2", counters));
    }
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let os = policies().parse(policy).unwrap();
    build::machine(config, &setup(config), &os, || Ok(Naive::new(config))).unwrap()
}

/// Settings of the design, each with the numbers of sets of the first level's data TLB and of the second level.
const SETTINGS: [(MixFill, u64, [u64; 2]); 4] = [
    (MixFill::All, 128, [8, 4]),
    (MixFill::Probed, 128, [3, 16]),
    (MixFill::All, 4, [4, 6]),
    (MixFill::Probed, 1, [2, 2]),
];

/// Plays actions on the design and its twin, and compares every counter. Returns the design's counters with the first
/// of [`SETTINGS`].
fn compare_all(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let mut first_counters = None;
    for (fill, bundle_pages, sets) in SETTINGS {
        let mut config = twins::with(config, MixTlbSettings { fill, bundle_pages });
        let FirstLevel::Split { l1d, .. } = &mut config.tlb.first else { unreachable!() };
        let arrays = [Some((l1d, "4k")), config.tlb.l2.as_mut().map(|level| (level, "main"))];
        for (named, sets) in arrays.into_iter().zip(sets) {
            let Some((level, name)) = named else { continue };
            let array = &mut level.arrays[name];
            array.entries = sets * array.ways.of(array.entries);
        }
        let machines = [machine("mix_tlb", &config, policy), naive(&config, policy)];
        let counters = twins::compare(&config, machines, actions)?;
        first_counters.get_or_insert(counters);
    }
    Ok(first_counters.unwrap())
}

fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    compare_all(config, policy, actions).map(|_| ())
}

twins::equals_twin!(compare);

/// The start of the superpages of the tests below, and their number.
const FIRST: u64 = 0x40_0000_0000;
const SUPERPAGES: u64 = 20;

fn range(superpage: u64, superpages: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(FIRST + (superpage << 21)), superpages << 21)
}

fn protect(superpage: u64, superpages: u64, bits: u64) -> Step {
    let (range, protection) = (range(superpage, superpages), Protection::from_bits(bits));
    Step::Event(Event::Protect { range, protection })
}

/// Maps the superpages, and loads from each, so that their frames are contiguous.
fn mapped() -> Vec<Step> {
    let first = (0..SUPERPAGES).map(|superpage| FIRST + (superpage << 21));
    [vec![map(FIRST, SUPERPAGES << 9)], references(ItemKind::Load, first).collect()].concat()
}

/// Random references to these superpages, and changes of them.
fn steps() -> impl Strategy<Value = Vec<Step>> {
    let superpage = 0..SUPERPAGES;
    let reference = (prop::bool::weighted(0.3), superpage.clone(), 0u64..512).prop_map(
        |(stores, superpage, page)| {
            let kind = if stores { ItemKind::Store } else { ItemKind::Load };
            let address = FIRST + (superpage << 21) + (page << 12);
            references(kind, [address].into_iter()).next().unwrap()
        },
    );
    let change = (superpage, 1u64..4, 0usize..4).prop_map(|(superpage, count, kind)| match kind {
        0 => Step::Event(Event::Unmap { range: range(superpage, 1) }),
        1 => protect(superpage, count, 1),
        _ => protect(superpage, count, 3),
    });
    prop::collection::vec(prop_oneof![12 => reference, 1 => change], 1..80)
}

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    /// Bundles of two processes, which share their superpages until they store to them.
    #[test]
    fn bundles_equal_those_of_twin(
        config in configs(&[]),
        guests in guest_configs(),
        runs in [steps(), steps(), steps()],
    ) {
        let [before, parent, child] = runs;
        let actions = [
            (0, run([mapped(), before].concat())),
            (0, Action::Fork),
            (1, run(child)),
            (0, run(parent)),
        ];
        for config in [&config, &guests[0], &guests[1]] {
            compare(config, "thp", &actions)?;
        }
    }

    /// With 4 KiB pages alone, where a level has one array, the design is the conventional one.
    #[test]
    fn base_pages_are_held_as_in_a_plain_tlb(
        config in configs(&["tlb.l1i.2m=none", "tlb.l1d.2m=none"]),
        actions in actions(),
    ) {
        let mut config = config;
        config.tlb.l2.iter_mut().for_each(|level| level.fill = octavo_config::Fill::All);
        let machines = ["conventional", "mix_tlb"].map(|hardware| machine(hardware, &config, "base"));
        let counters = counted(&config, machines.into(), &actions);
        let differ = differences(&counters[0], &counters[1]).into_iter();
        let others = differ.filter(|(component, ..)| !["tlb.l1i.4k", "tlb.l1d.4k", "tlb.l2.main"].contains(component));
        prop_assert_eq!(others.collect::<Vec<_>>(), Vec::new());
        prop_assert_eq!(counters[1].get("tlb.l2.mix", "fills").unwrap_or(0), 0);
    }
}

#[test]
fn compared_events_occur() {
    let each =
        |kind| references(kind, (0..SUPERPAGES << 9).step_by(97).map(|page| FIRST + (page << 12)));
    let clean = [ItemKind::Load, ItemKind::Store];
    let clean =
        clean.into_iter().flat_map(|kind| references(kind, [FIRST + (3 << 21)].into_iter()));
    let mut steps = [mapped(), vec![protect(0, SUPERPAGES, 1), protect(0, SUPERPAGES, 3)]].concat();
    steps.extend(each(ItemKind::Load).chain(clean).chain(each(ItemKind::Load)));
    let actions = [(0, run(steps)), (0, Action::Fork), (1, run(each(ItemKind::Store).collect()))];
    for settings in [&[][..], &GUEST] {
        for spaces in ["core.address_spaces=tagged", "core.address_spaces=flushed"] {
            let mut config = tiny(&[settings, &[spaces, "core.count=2"]].concat());
            config.host.iter_mut().for_each(|host| host.policy = "thp".to_owned());
            let counters = compare_all(&config, "thp", &actions).unwrap();
            for level in ["tlb.l1d.mix", "tlb.l2.mix"] {
                let get = |counter| counters.get(level, counter).unwrap();
                assert!(get("filled_pages") > get("fills"), "{level} {spaces}");
                assert!(get("mirrors") > get("fills"), "{level} {spaces}");
            }
            assert!(counters.get("os", "copy_on_write_faults") > Some(0));
            assert!(counters.get("walker", "walks_dirty") > Some(0));
        }
    }
}

/// Walks of loads from all base pages of `superpages` superpages that the first level does not hold, without a second
/// level; and the number of entries with superpages afterwards.
fn walks_and_entries(settings: MixTlbSettings, sets: u64, superpages: u64) -> (u64, u64) {
    let mut config = tiny(&["tlb.l2=none", "tlb.l1d.2m=none", "memory.bytes=4GiB"]);
    config.designs.set(settings);
    let FirstLevel::Split { l1d, .. } = &mut config.tlb.first else { unreachable!() };
    l1d.arrays["4k"].entries = 2 * sets;
    let dropped = vec![protect(0, SUPERPAGES, 1), protect(0, SUPERPAGES, 3)];
    let pages = (0..superpages << 9).map(|page| FIRST + (page << 12));
    let runs =
        [run([mapped(), dropped].concat()), run(references(ItemKind::Load, pages).collect())];
    let counters = counted_last(&config, || machine("mix_tlb", &config, "thp"), &runs);
    (counters.get("walker", "walks").unwrap(), counters.get("tlb.l1d.mix", "bundles").unwrap())
}

#[test]
fn superpage_is_in_every_set_that_it_needs() {
    let entries = |fill, sets| walks_and_entries(MixTlbSettings { fill, bundle_pages: 1 }, sets, 1);
    for sets in [1, 2, 4, 16, 512, 1024] {
        assert_eq!(entries(MixFill::All, sets), (1, sets.min(512)));
        assert_eq!(entries(MixFill::Probed, sets), (sets.min(512), sets.min(512)));
    }
}

#[test]
fn contiguous_superpages_take_as_many_entries_as_without_mirrors() {
    let entries = |sets, superpages| walks_and_entries(MixTlbSettings::default(), sets, superpages);
    // A walk sees eight superpages.
    for (sets, walks) in [(2, 1), (4, 1), (8, 1), (16, 2)] {
        assert_eq!(entries(sets, sets), (walks, sets));
    }
    // A bundle has no more superpages than there are sets.
    assert_eq!(entries(8, 16), (2, 16));
    assert_eq!(entries(16, 20), (3, 32));
}
