//! The slow, obvious twin of the Clustered TLB: clusters are maps from pages to frames in lists in order of last use,
//! and a walk asks the page tables for each page of a cluster by itself. The tests compare every counter of both, and
//! check laws of the design.
//!
//! Where the description of the design leaves a choice, the twin does this:
//!
//! - The conventional part is looked up first; if it has the page, the clusters are not used.
//! - A new cluster takes its pages from earlier entries of the same cluster.
//! - A page that a store finds clean is removed from both parts before it is filled again.

use std::collections::BTreeMap;

use octavo_config::{Fill, MachineConfig, TlbConfig, Ways};
use octavo_hw::Asid;
use octavo_oracle::strategies::Step;
use octavo_os::page_table::PageTable;
use octavo_os::vmas::Pages;
use octavo_types::{
    AddrRange, Event, FrameNumber, Instructions, ItemKind, PageNumber, PageSize, Protection,
    VirtAddr,
};
use proptest::prelude::*;

use super::ClusteredTlbSettings;
use crate::counters::Counters;
use crate::design::{AddressSpace, Design};
use crate::designs::build;
use crate::designs::registry::policies;
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, differences, machine,
    map, references, run, setup, tiny,
};
use crate::env::Env;
use crate::front::LineAccess;
use crate::machine::AnyMachine;
use crate::tlb::{L1Tlb, Lookup, Tlb, TlbEntry, Translation};

/// A cluster: its pages with their frames, all in one aligned group, and their common permissions.
struct Cluster {
    asid: Asid,
    frames: BTreeMap<u64, FrameNumber>,
    is_writable: bool,
    is_dirty: bool,
}

/// The second level.
struct Second {
    pages: Tlb,
    latency_cycles: u32,
    /// The clusters of each set, the most recently used one at the end.
    sets: Vec<Vec<Cluster>>,
    ways: usize,
}

/// The unit of one core.
struct Naive {
    l1: L1Tlb,
    second: Option<Second>,
    settings: ClusteredTlbSettings,
    hits: u64,
    misses: u64,
    fills: u64,
    filled_pages: u64,
}

impl Naive {
    fn new(config: &TlbConfig, settings: ClusteredTlbSettings) -> Self {
        let instructions = Instructions::PORTABLE;
        let second = config.l2.clone().map(|mut level| {
            level.fill = Fill::All;
            // The level of the tests has one array.
            let array = &mut level.arrays["main"];
            let (all, sets) =
                (array.ways.of(array.entries), array.entries / array.ways.of(array.entries));
            let share = (all as f64 * settings.ways_percent as f64 / 100.0).round() as u64;
            let ways = if settings.ways_percent == 0 { 0 } else { share.clamp(1, all - 1) };
            (array.entries, array.ways) = ((all - ways) * sets, Ways::Of(all - ways));
            Second {
                pages: Tlb::new(&level, (), instructions).unwrap(),
                latency_cycles: level.hit_latency_cycles,
                sets: (0..sets).map(|_| Vec::new()).collect(),
                ways: ways as usize,
            }
        });
        let l1 = L1Tlb::new(&config.first, (), instructions).unwrap();
        Naive { l1, second, settings, hits: 0, misses: 0, fills: 0, filled_pages: 0 }
    }

    fn number(&self, page: u64) -> u64 {
        page / self.settings.cluster_pages
    }

    fn look_up_clusters(&mut self, asid: Asid, page: PageNumber) -> Option<Translation> {
        let number = self.number(page.raw());
        let sets = &mut self.second.as_mut()?.sets;
        let count = sets.len() as u64;
        let set = &mut sets[(number % count) as usize];
        let holds =
            |cluster: &Cluster| cluster.asid == asid && cluster.frames.contains_key(&page.raw());
        let at = set.iter().position(holds)?;
        let cluster = set.remove(at);
        let frame = cluster.frames[&page.raw()];
        let entry = TlbEntry::new(frame, PageSize::BASE, cluster.is_writable, cluster.is_dirty);
        set.push(cluster);
        Some(Translation { size: PageSize::BASE, entry })
    }

    /// Takes pages of an address space out of all clusters.
    fn remove_from_clusters(&mut self, asid: Asid, gone: impl Fn(u64) -> bool) {
        for set in self.second.iter_mut().flat_map(|second| &mut second.sets) {
            for cluster in set.iter_mut().filter(|cluster| cluster.asid == asid) {
                cluster.frames.retain(|page, _| !gone(*page));
            }
            set.retain(|cluster| !cluster.frames.is_empty());
        }
    }

    /// The pages of the cluster of a walked base page that the walk sees, with their frames.
    fn seen(&self, env: &Env, page: PageNumber) -> BTreeMap<u64, FrameNumber> {
        let pages = self.settings.cluster_pages;
        let first = self.number(page.raw()) * pages;
        let own: Vec<_> = env.tables(page).collect();
        let frame = |other: u64| {
            let mut frame = None;
            let tables: Vec<_> = env.tables(PageNumber::new(other)).collect();
            if tables.len() < own.len() {
                return None;
            }
            for (own, other) in own.iter().zip(tables) {
                frame = Some(alike(*own, other, pages)?);
            }
            frame
        };
        (first..first + pages).filter_map(|other| Some((other, frame(other)?))).collect()
    }

    fn walk_and_fill(
        &mut self,
        env: &mut Env,
        page: PageNumber,
        access: LineAccess,
        held: Lookup,
    ) -> Option<Translation> {
        let is_clean = matches!(held, Lookup::PermissionMiss { is_clean: true });
        let translation = self.walk(env, page, access, is_clean)?;
        let asid = env.asid();
        if !matches!(held, Lookup::Miss) {
            if let Some(second) = &mut self.second {
                second.pages.remove(asid, page);
            }
            self.remove_from_clusters(asid, |other| other == page.raw());
        }
        let seen = match translation.size == PageSize::BASE {
            true => self.seen(env, page),
            false => BTreeMap::new(),
        };
        let has_clusters = self.second.as_ref().is_some_and(|second| second.ways > 0);
        if has_clusters && !seen.is_empty() && seen.len() as u64 >= self.settings.min_pages {
            assert_eq!(seen[&page.raw()], translation.entry.frame());
            self.remove_from_clusters(asid, |other| seen.contains_key(&other));
            self.fills += 1;
            self.filled_pages += seen.len() as u64;
            let number = self.number(page.raw());
            let second = self.second.as_mut().unwrap();
            let count = second.sets.len() as u64;
            let set = &mut second.sets[(number % count) as usize];
            if set.len() == second.ways {
                set.remove(0);
            }
            let (is_writable, is_dirty) =
                (translation.entry.is_writable(), translation.entry.is_dirty());
            set.push(Cluster { asid, frames: seen, is_writable, is_dirty });
        } else if let Some(second) = &mut self.second {
            second.pages.fill(asid, page, translation, 1);
        }
        Some(translation)
    }
}

/// The frame of a page by a table, if its entry is in the line of the entry of `own` and alike, and the frame is in the
/// same group.
fn alike(
    (table, own): (&PageTable, PageNumber),
    (_, other): (&PageTable, PageNumber),
    pages: u64,
) -> Option<FrameNumber> {
    let (own_leaf, other_leaf) = (table.leaf(own)?, table.leaf(other)?);
    let (frame, expected) = (other_leaf.frame_of(other), own_leaf.frame_of(own));
    let is_in_line = other.raw() / pages == own.raw() / pages;
    let is_in_group = frame.raw() / pages == expected.raw() / pages;
    let is_alike = own_leaf.size == other_leaf.size
        && own_leaf.rights == other_leaf.rights
        && table.used(own) == table.used(other);
    (is_in_line && is_in_group && is_alike).then_some(frame)
}

impl Design for Naive {
    fn translate(&mut self, env: &mut Env, access: LineAccess) -> Option<FrameNumber> {
        let (asid, page) = (env.asid(), env.page(access));
        let translation = match self.l1.look_up(asid, page, access) {
            Lookup::Hit(translation) => translation,
            held @ Lookup::PermissionMiss { .. } => {
                let walked = self.walk_and_fill(env, page, access, held)?;
                self.l1.replace(asid, page, walked, access);
                walked
            }
            Lookup::Miss => {
                let mut found = None;
                if let Some(second) = &mut self.second {
                    let latency_cycles = second.latency_cycles;
                    found = second.pages.look_up_rarely(asid, page, 1);
                    if found.is_none() {
                        found = self.look_up_clusters(asid, page);
                        self.hits += u64::from(found.is_some());
                        self.misses += u64::from(found.is_none());
                    }
                    env.charge_l2_lookup(latency_cycles, found.is_some());
                }
                let translation = match Lookup::of(found, access.is_store()) {
                    Lookup::Hit(translation) => translation,
                    held => self.walk_and_fill(env, page, access, held)?,
                };
                self.l1.fill(asid, page, translation, access);
                translation
            }
        };
        Some(translation.frame_of(page))
    }

    fn invalidate(&mut self, space: AddressSpace, pages: &Pages) {
        self.l1.invalidate(space.asid, pages);
        if let Some(second) = &mut self.second {
            second.pages.invalidate(space.asid, pages);
        }
        self.remove_from_clusters(space.asid, |page| pages.contains(&page));
    }

    fn flush(&mut self) {
        self.l1.clear();
        if let Some(second) = &mut self.second {
            second.pages.clear();
            second.sets.iter_mut().for_each(Vec::clear);
        }
    }

    fn report(&self, counters: &mut Counters) {
        self.l1.report(counters);
        let Some(second) = &self.second else { return };
        let mut page_counters = Counters::default();
        second.pages.report("tlb.l2", &mut page_counters);
        for (component, counter, value) in page_counters.iter() {
            let value = match (component, counter) {
                ("tlb.l2", "hits") => value + self.hits,
                ("tlb.l2", "misses") => value - self.hits,
                _ => value,
            };
            counters.add(component, counter, value);
        }
        if second.ways > 0 {
            let accesses = page_counters.get("tlb.l2", "accesses").unwrap();
            counters.add("tlb.l2.clusters", "accesses", accesses);
            counters.add("tlb.l2.clusters", "hits", self.hits);
            counters.add("tlb.l2.clusters", "misses", accesses - self.hits);
            counters.add("tlb.l2.clusters", "fills", self.fills);
            counters.add("tlb.l2.clusters", "filled_pages", self.filled_pages);
        }
    }
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let os = policies().parse(policy).unwrap();
    let settings = *config.designs.get::<ClusteredTlbSettings>();
    let made =
        build::machine(config, &setup(config), &os, || Ok(Naive::new(&config.tlb, settings)));
    made.unwrap()
}

/// Settings of the design: percent of the ways, pages of a cluster, and the fewest pages of an entry.
const SETTINGS: [(u64, u64, u64); 4] = [(25, 8, 2), (67, 8, 1), (50, 4, 3), (25, 2, 2)];

fn with_settings(
    config: &MachineConfig,
    (ways_percent, cluster_pages, min_pages): (u64, u64, u64),
) -> MachineConfig {
    twins::with(config, ClusteredTlbSettings { ways_percent, cluster_pages, min_pages })
}

/// Plays actions on the design and its twin, and compares every counter. Returns those of the design.
fn compare_one(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let machines = [machine("clustered_tlb", config, policy), naive(config, policy)];
    twins::compare(config, machines, actions)
}

/// As [`compare_one`], with each of [`SETTINGS`].
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    for settings in SETTINGS {
        compare_one(&with_settings(config, settings), policy, actions)?;
    }
    Ok(())
}

twins::equals_twin!(compare);

proptest! {
    #![proptest_config(octavo_oracle::cases(24))]

    #[test]
    fn design_without_clusters_is_the_conventional_one(
        config in configs(&["clustered_tlb.ways_percent=0"]),
        actions in actions(),
    ) {
        let mut config = config;
        config.tlb.l2.iter_mut().for_each(|level| level.fill = Fill::All);
        for policy in ["base", "thp"] {
            let hardware = ["conventional", "clustered_tlb"];
            let machines = hardware.map(|hardware| machine(hardware, &config, policy));
            let counters = counted(&config, machines.into(), &actions);
            prop_assert_eq!(differences(&counters[0], &counters[1]), Vec::new());
            prop_assert_eq!(differences(&counters[1], &counters[0]), Vec::new());
        }
    }
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        for spaces in ["core.address_spaces=tagged", "core.address_spaces=flushed"] {
            let mut config = tiny(&[settings, &[spaces, "core.count=2"]].concat());
            config.host.iter_mut().for_each(|host| host.policy = "thp".to_owned());
            let counters = compare_one(&config, "base", &all_events()).unwrap();
            let get = |counter| counters.get("tlb.l2.clusters", counter).unwrap();
            assert!(get("hits") > 0 && get("fills") > 0, "{spaces}");
            assert!(get("filled_pages") > 2 * get("fills"), "{spaces}");
            assert!(counters.get("os", "copy_on_write_faults") > Some(0));
            assert!(counters.get("walker", "walks_dirty") > Some(0));
        }
    }
}

/// The start of the pages of [`walks_of_a_pass`], and of others whose page-table entries are in the same node.
const FIRST: u64 = 0x1000_0000;
const OTHERS: u64 = 0x1010_0000;
const PAGES: u64 = 64;

/// The walks of loads of [`PAGES`] pages, one after the other. Before, the pages of each group of eight got their
/// frames in this order. Pages elsewhere that got frames before these shift the groups of frames; the result is the
/// number of walks at the best shift.
fn walks_of_a_pass(hardware: &str, order: [u64; 8]) -> u64 {
    let config = tiny(&["tlb.l2.main.entries=96", "tlb.l2.main.ways=12"]);
    let page = |number: u64| FIRST + (number << 12);
    let range = AddrRange::new(VirtAddr::new(FIRST), PAGES << 12);
    let pass: Vec<_> = references(ItemKind::Load, (0..PAGES).map(page)).collect();
    let walks = |elsewhere: u64| {
        let elsewhere = (0..elsewhere).map(|number| OTHERS + (number << 12));
        let groups = (0..PAGES / 8).flat_map(|group| order.map(|at| page(8 * group + at)));
        let mut steps = vec![map(FIRST, PAGES), map(OTHERS, 8)];
        steps.extend(references(ItemKind::Load, elsewhere.chain(groups)));
        // The TLBs drop the pages.
        for bits in [1, 3] {
            let protection = Protection::from_bits(bits);
            steps.push(Step::Event(Event::Protect { range, protection }));
        }
        let runs = [run(steps), run(pass.clone())];
        let counters = counted_last(&config, || machine(hardware, &config, "base"), &runs);
        counters.get("walker", "walks").unwrap()
    };
    (1..=8).map(walks).min().expect("a number of walks")
}

#[test]
fn one_walk_fills_a_cluster_in_any_order() {
    let ascending = [0, 1, 2, 3, 4, 5, 6, 7];
    let descending = [7, 6, 5, 4, 3, 2, 1, 0];
    let mixed = [3, 0, 6, 1, 7, 4, 2, 5];
    let walks =
        |hardware| [ascending, descending, mixed].map(|order| walks_of_a_pass(hardware, order));
    assert_eq!(walks("conventional"), [PAGES; 3]);
    assert_eq!(walks("clustered_tlb"), [PAGES / 8; 3]);
    // CoLT needs the pages in the order of their frames.
    assert_eq!(walks("colt_sa"), [PAGES / 4, PAGES, PAGES]);
}
