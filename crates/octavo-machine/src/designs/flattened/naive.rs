//! The slow, obvious twin: page tables as maps, from a level and the number of a region to the block of its node. The tests
//! compare the counters of both.
//!
//! A node exists from the first operation that needs it to the one that leaves it empty. All nodes then have the same
//! places in memory as the design's, also where pages of another size replace a page.

use std::collections::BTreeMap;
use std::sync::Arc;

use octavo_config::MachineConfig;
use octavo_oracle::strategies::Step;
use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_os::page_table::HardwareTable;
use octavo_types::{
    AddrRange, Event, FrameNumber, ItemKind, PageNumber, PageSize, PhysAddr, VirtAddr,
};
use proptest::prelude::*;

use super::FlattenedSettings;
use crate::counters::Counters;
use crate::designs::radix_twin::{MappedPages, has_entries, is_mapped, key, pages_of_node};
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, differences,
    guest_configs, machine, map, references, run, tiny,
};
use crate::designs::walk_twin::{self, NaiveTables, roomy};
use crate::machine::AnyMachine;

const ROOT_LEVEL: u8 = 4;

struct Node {
    frame: FrameNumber,
    is_merged: bool,
}

impl Node {
    fn order(&self) -> Order {
        Order::of(if self.is_merged { PageSize::HUGE } else { PageSize::BASE })
    }
}

struct Tables {
    settings: FlattenedSettings,
    /// Sizes in base pages, by first base page.
    pages: MappedPages,
    /// By level and number of the region. A merged node has the upper of its levels.
    nodes: BTreeMap<(u8, u64), Node>,
    exhausted: Option<OutOfMemory>,
}

impl Tables {
    fn new(settings: FlattenedSettings, frames: &mut Frames) -> Tables {
        let mut tables =
            Tables { settings, pages: BTreeMap::new(), nodes: BTreeMap::new(), exhausted: None };
        tables.add_node(ROOT_LEVEL, 0, frames);
        tables
    }

    fn add_node(&mut self, level: u8, region: u64, frames: &mut Frames) {
        let block = match level == 4 && self.settings.upper || level == 2 && self.settings.lower {
            true => frames.allocate_free(Order::of(PageSize::HUGE), Owner::PageTable).ok(),
            false => None,
        };
        let is_merged = block.is_some();
        match block.map_or_else(|| frames.allocate(Order::BASE, Owner::PageTable), Ok) {
            Ok(frame) => drop(self.nodes.insert((level, region), Node { frame, is_merged })),
            Err(error) => self.exhausted = Some(error),
        }
    }

    /// Whether a node has entries: pages in its region that are smaller.
    fn is_needed(&self, level: u8, region: u64) -> bool {
        level == ROOT_LEVEL || has_entries(&self.pages, (level, region))
    }
}

impl HardwareTable for Tables {
    fn map(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames) {
        let (page, pages) = (page.raw(), size.bytes() >> 12);
        let mut level = ROOT_LEVEL;
        while pages_of_node(level) > pages {
            let key = key(level, page);
            if !self.nodes.contains_key(&key) {
                self.add_node(key.0, key.1, frames);
            }
            let Some(node) = self.nodes.get(&key) else { return };
            level -= if node.is_merged { 2 } else { 1 };
            if level == 0 {
                break;
            }
        }
        self.pages.insert(page, pages);
    }

    fn unmap(&mut self, page: PageNumber, _: PageSize, _: &mut Frames) {
        self.pages.remove(&page.raw());
    }

    fn free_empty(&mut self, frames: &mut Frames) {
        let nodes = std::mem::take(&mut self.nodes);
        let is_empty = |(level, region): &(u8, u64)| !self.is_needed(*level, *region);
        let (empty, kept): (BTreeMap<_, _>, _) =
            nodes.into_iter().partition(|(key, _)| is_empty(key));
        empty.values().for_each(|node| frames.free(node.frame, node.order()));
        self.nodes = kept;
    }

    fn frames(&self) -> u64 {
        self.nodes.values().map(|node| node.order().frames()).sum()
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        self.exhausted
    }

    fn free(self: Box<Self>, frames: &mut Frames) {
        self.nodes.values().for_each(|node| frames.free(node.frame, node.order()));
    }
}

impl NaiveTables for Tables {
    fn way(&self, page: u64) -> Vec<(u8, PhysAddr)> {
        let mut way = Vec::new();
        let mut level = ROOT_LEVEL;
        while let Some(node) = self.nodes.get(&key(level, page)) {
            let entries = if node.is_merged { 512 * 512 } else { 512 };
            let lowest = if node.is_merged { level - 1 } else { level };
            let entry = page / pages_of_node(lowest - 1) % entries;
            way.push((lowest, PhysAddr::new(node.frame.start().raw() + entry * 8)));
            level = lowest - 1;
        }
        way
    }

    fn maps(&self, page: u64) -> bool {
        is_mapped(&self.pages, page)
    }
}

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let merged = *config.designs.get::<FlattenedSettings>();
    let make = move |_, frames: &mut Frames| -> Box<dyn HardwareTable> {
        Box::new(Tables::new(merged, frames))
    };
    walk_twin::naive::<Tables>(config, policy, Arc::new(make))
}

/// Some free blocks of 2 MiB in memory that is fragmented.
const FEW_BLOCKS: &str =
    "{kind='order-mix',free_blocks={4KiB=60000,64KiB=3000,2MiB=5},movable_share=0.5}";
/// No free block of 2 MiB.
const NO_BLOCKS: &str =
    "{kind='holes',portion=1.0,fraction=0.02,layout='dispersed',holes='immovable'}";

fn merging(config: &MachineConfig, upper: bool, lower: bool) -> MachineConfig {
    twins::with(config, FlattenedSettings { upper, lower })
}

/// Plays actions on the design and its twin, and compares all counters; with large pages, all but the number of entries
/// written, since every page of the twin has one entry.
fn compare(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let machines = [machine("flattened", config, policy), naive(config, policy)];
    let has_large =
        policy != "base" || config.host.as_ref().is_some_and(|host| host.policy != "base");
    if !has_large {
        return twins::compare(config, machines, actions);
    }
    let [design, twin] = counted(config, machines.into(), actions).try_into().unwrap();
    for (one, other) in [(&design, &twin), (&twin, &design)] {
        let mut found = differences(one, other);
        found.retain(|(_, counter, ..)| *counter != "entries_written");
        prop_assert_eq!(found, Vec::new());
    }
    Ok(design)
}

/// Plays actions on the design and on ordinary radix trees, and compares all counters.
fn compare_to_radix(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    let machines = ["flattened", "conventional"].map(|hardware| machine(hardware, config, policy));
    twins::compare(config, machines, actions).map(|_| ())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(16))]

    #[test]
    fn design_equals_twin(
        config in configs(&[]),
        actions in actions(),
        upper in any::<bool>(),
        lower in any::<bool>(),
    ) {
        compare(&roomy(&config, None), "base", &actions)?;
        compare(&roomy(&config, None), "thp", &actions)?;
        compare(&merging(&roomy(&config, Some(FEW_BLOCKS)), upper, lower), "base", &actions)?;
    }

    #[test]
    fn design_equals_twin_in_a_guest(configs in guest_configs(), actions in actions()) {
        for config in &configs {
            compare(&roomy(config, None), "base", &actions)?;
            compare(&roomy(config, None), "thp", &actions)?;
        }
        compare(&roomy(&configs[0], Some(FEW_BLOCKS)), "base", &actions)?;
    }

    #[test]
    fn without_free_blocks_it_is_the_radix_tree(
        config in configs(&[]),
        guests in guest_configs(),
        actions in actions(),
    ) {
        for config in [&config, &guests[0], &guests[1]] {
            for policy in ["base", "thp"] {
                compare_to_radix(&roomy(config, Some(NO_BLOCKS)), policy, &actions)?;
            }
        }
    }

    #[test]
    fn without_merged_levels_it_is_the_radix_tree(
        config in configs(&[]),
        guests in guest_configs(),
        actions in actions(),
    ) {
        for config in [&config, &guests[0], &guests[1]] {
            for policy in ["base", "thp"] {
                compare_to_radix(&merging(config, false, false), policy, &actions)?;
            }
        }
    }
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        let config = roomy(&tiny(&[settings, &["core.count=2"]].concat()), Some(FEW_BLOCKS));
        let counters = compare(&config, "base", &all_events()).unwrap();
        let get = |component, counter| counters.get(component, counter).unwrap();
        // Merged nodes, and ordinary ones.
        let bytes = get("os", "peak_page_table_bytes");
        assert!(bytes > 4 << 20 && !bytes.is_multiple_of(2 << 20), "{bytes}");
        assert!(get("os", "copy_on_write_faults") > 0 && get("walker", "faulted") > 0);
        for level in ["walker.cache.l2", "walker.cache.l3"] {
            assert!(get(level, "hits") > 0 && get(level, "misses") > 0, "{level}");
        }
    }
}

/// The start of the pages of the tests below: a whole number of GiB.
const FIRST: u64 = 0x40_0000_0000;

/// References and walks of the second pass over one page in each of 200 parts of 2 MiB.
fn second_pass(hardware: &str, settings: &[&str], policy: &str) -> (u64, u64) {
    let config = tiny(&[&["memory.bytes=16GiB"], settings].concat());
    let pass = || references(ItemKind::Load, (0..200).map(|part| FIRST + (part << 21)));
    let first = run([map(FIRST, 200 << 9)].into_iter().chain(pass()).collect());
    let counters = counted_last(
        &config,
        || machine(hardware, &config, policy),
        &[first, run(pass().collect())],
    );
    ["references", "walks"].map(|counter| counters.get("walker", counter).unwrap()).into()
}

/// The cache of level 2 has entries for 64 MiB, that of level 3 for 4 GiB.
#[test]
fn walks_read_one_entry_where_a_radix_tree_takes_two() {
    assert_eq!(second_pass("conventional", &[], "base"), (400, 200));
    assert_eq!(second_pass("flattened", &[], "base"), (200, 200));
    // With pages of 2 MiB, a radix tree reads as few entries.
    for hardware in ["conventional", "flattened"] {
        assert_eq!(second_pass(hardware, &[], "thp"), (200, 200), "{hardware}");
    }
}

#[test]
fn unmapping_frees_nodes() {
    let config = tiny(&[]);
    let unmap = Event::Unmap { range: AddrRange::new(VirtAddr::new(FIRST), 4 << 30) };
    let loads = references(ItemKind::Load, (0..4).map(|part| FIRST + (part << 30)));
    let steps: Vec<Step> = [map(FIRST, 4 << 18)].into_iter().chain(loads).collect();
    let bytes = |steps: Vec<Step>| {
        let counters =
            counted(&config, vec![machine("flattened", &config, "base")], &[(0, run(steps))]);
        counters[0].get("os", "page_table_bytes").unwrap() >> 20
    };
    // The root, the node of the code, and those of four GiB.
    assert_eq!(bytes(steps.clone()), 2 * 6);
    assert_eq!(bytes([steps, vec![Step::Event(unmap)]].concat()), 2 * 2);
}
