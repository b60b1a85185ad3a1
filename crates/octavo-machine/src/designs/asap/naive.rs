//! The slow, obvious twin: page tables as maps from a level and the number of a node to its frame, areas and their regions
//! as lists. The tests compare the counters of both.
//!
//! In a guest the twin has the same tables in both dimensions, so that the levels of guest and host are equal.
//!
//! A node lives from the first operation that needs it to the one that leaves it empty, so that all nodes have the same
//! places in memory, also where pages of other sizes replace a page.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use octavo_config::MachineConfig;
use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_os::page_table::HardwareTable;
use octavo_os::vmas::Vmas;
use octavo_types::{FrameNumber, ItemKind, PageNumber, PageSize, PhysAddr};
use proptest::prelude::*;

use super::AsapSettings;
use crate::counters::Counters;
use crate::designs::radix_twin::{NodeKey, Tree, entry, is_mapped, key};
use crate::designs::twins::{
    Action, GUEST, actions, all_events, configs, counted, counted_last, differences, guest_configs,
    machine, map, references, run, tiny, with,
};
use crate::designs::walk_twin::{self, NaiveTables, roomy};
use crate::env::Prefetches;
use crate::machine::AnyMachine;

const ROOT_LEVEL: u8 = 4;

/// Contiguous frames for nodes of a level.
struct Region {
    level: u8,
    nodes: Range<u64>,
    first_frame: u64,
}

impl Region {
    fn frame(&self, (level, node): NodeKey) -> Option<u64> {
        let has_place = level == self.level && self.nodes.contains(&node);
        has_place.then(|| self.first_frame + node - self.nodes.start)
    }

    fn frames(&self) -> Range<u64> {
        self.first_frame..self.first_frame + self.nodes.end - self.nodes.start
    }
}

struct Tables {
    settings: AsapSettings,
    tree: Tree,
    /// Base pages, and the numbers of the regions of levels 1 and 2.
    areas: Vec<(Range<u64>, [Option<usize>; 2])>,
    /// In the order in which they were made, by number.
    regions: BTreeMap<usize, Region>,
    made: usize,
}

impl Tables {
    fn new(settings: AsapSettings, frames: &mut Frames) -> Tables {
        let mut tables = Tables {
            settings,
            tree: Tree::new(ROOT_LEVEL),
            areas: Vec::new(),
            regions: BTreeMap::new(),
            made: 0,
        };
        tables.add_node((ROOT_LEVEL, 0), frames);
        tables
    }

    fn is_node(&self, frame: u64) -> bool {
        self.tree.nodes.values().any(|node| *node == frame)
    }

    fn add_node(&mut self, key: NodeKey, frames: &mut Frames) {
        let mut places = self.regions.values().filter_map(|region| region.frame(key));
        let place = places.find(|frame| !self.is_node(*frame));
        self.tree.add(key, place, frames);
    }

    fn region_for(&mut self, level: u8, pages: &Range<u64>, frames: &mut Frames) -> Option<usize> {
        let nodes = key(level, pages.start).1..key(level, pages.end - 1).1 + 1;
        let shared = self.regions.iter().find(|(_, region)| {
            let has_place = |node| region.frame((level, node)).is_some();
            has_place(nodes.start) && has_place(nodes.end - 1)
        });
        if let Some((number, _)) = shared {
            return Some(*number);
        }
        let count = nodes.end - nodes.start;
        if count * 64 > frames.shape().frames() {
            return None;
        }
        let only = self.tree.nodes.get(&(level, nodes.start)).filter(|_| count == 1);
        let first_frame = match only {
            Some(frame) => *frame,
            None => frames.allocate_surplus_run(count, Owner::PageTable)?.raw(),
        };
        frames.note_contiguous_tables(FrameNumber::new(first_frame), count);
        self.made += 1;
        self.regions.insert(self.made, Region { level, nodes, first_frame });
        Some(self.made)
    }

    /// Ends regions that no area uses. Their nodes stay.
    fn drop_regions(&mut self, frames: &mut Frames) {
        let used: BTreeSet<usize> =
            self.areas.iter().flat_map(|(_, regions)| regions).flatten().copied().collect();
        let (kept, unused): (BTreeMap<_, _>, BTreeMap<usize, Region>) =
            std::mem::take(&mut self.regions).into_iter().partition(|(at, _)| used.contains(at));
        self.regions = kept;
        for frame in unused.values().flat_map(Region::frames).filter(|frame| !self.is_node(*frame))
        {
            frames.free(FrameNumber::new(frame), Order::BASE);
        }
    }

    fn all_frames(&self) -> BTreeSet<u64> {
        let places = self.regions.values().flat_map(Region::frames);
        places.chain(self.tree.nodes.values().copied()).collect()
    }
}

impl HardwareTable for Tables {
    fn mappings_changed(&mut self, pages: &Range<u64>, vmas: &Vmas, frames: &mut Frames) {
        self.areas.retain(|(area, _)| {
            vmas.iter().any(|(mapped, _)| mapped.start < area.end && area.start < mapped.end)
        });
        self.drop_regions(frames);
        let touches = |of: &Range<u64>| of.start <= pages.end && pages.start <= of.end;
        let mut new: Vec<_> =
            vmas.iter().map(|(mapping, _)| mapping.clone()).filter(touches).collect();
        for (area, _) in &self.areas {
            let outside = |part: Range<u64>| {
                [part.start..part.end.min(area.start), part.start.max(area.end)..part.end]
            };
            new = new.into_iter().flat_map(outside).filter(|part| part.start < part.end).collect();
        }
        let min_pages = self.settings.min_bytes / 4096;
        new.retain(|part| part.end - part.start >= min_pages);
        for area in new {
            let regions = [(1, self.settings.leaf), (2, self.settings.upper)]
                .map(|(level, is_sorted)| is_sorted.then(|| self.region_for(level, &area, frames)));
            if regions.iter().flatten().all(Option::is_some) {
                self.areas.push((area, regions.map(Option::flatten)));
            }
            self.drop_regions(frames);
        }
    }

    fn map(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames) {
        for missing in self.tree.missing(page, size) {
            self.add_node(missing, frames);
            if self.tree.exhausted.is_some() {
                return;
            }
        }
        self.tree.pages.insert(page.raw(), size.bytes() >> 12);
    }

    fn unmap(&mut self, page: PageNumber, _: PageSize, _: &mut Frames) {
        self.tree.pages.remove(&page.raw());
    }

    fn free_empty(&mut self, frames: &mut Frames) {
        let is_place = |frame| self.regions.values().any(|region| region.frames().contains(frame));
        for frame in self.tree.take_empty().values().filter(|frame| !is_place(*frame)) {
            frames.free(FrameNumber::new(*frame), Order::BASE);
        }
    }

    fn frames(&self) -> u64 {
        self.all_frames().len() as u64
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        self.tree.exhausted
    }

    fn free(self: Box<Self>, frames: &mut Frames) {
        for frame in self.all_frames() {
            frames.free(FrameNumber::new(frame), Order::BASE);
        }
    }
}

impl NaiveTables for Tables {
    fn way(&self, page: u64) -> Vec<(u8, PhysAddr)> {
        let mut way = Vec::new();
        for level in (1..=ROOT_LEVEL).rev() {
            let Some(frame) = self.tree.nodes.get(&key(level, page)) else { break };
            way.push((level, entry(*frame, level, page)));
        }
        way
    }

    /// The entries of levels 1 and 2 at the places that the areas in registers give.
    fn prefetches(&self, page: u64) -> Prefetches {
        let mut areas: Vec<_> = self.areas.iter().collect();
        areas.sort_by_key(|(pages, _)| (u64::MAX - (pages.end - pages.start), pages.start));
        areas.truncate(self.settings.registers as usize);
        let Some((_, regions)) = areas.into_iter().find(|(pages, _)| pages.contains(&page)) else {
            return [None, None];
        };
        [(1, regions[0]), (2, regions[1])].map(|(level, region)| {
            let frame = self.regions[&region?].frame(key(level, page)).unwrap();
            Some(entry(frame, level, page))
        })
    }

    fn maps(&self, page: u64) -> bool {
        is_mapped(&self.tree.pages, page)
    }
}

const SMALL_AREAS: AsapSettings = AsapSettings {
    registers: 16,
    min_bytes: 4096,
    leaf: true,
    upper: true,
    host_leaf: true,
    host_upper: true,
};

/// The settings that are compared. The host has the settings of the guest.
const COMPARED: [AsapSettings; 4] = [
    SMALL_AREAS,
    AsapSettings { registers: 1, min_bytes: 64 << 10, ..SMALL_AREAS },
    AsapSettings { registers: 2, upper: false, host_upper: false, ..SMALL_AREAS },
    AsapSettings { registers: 2, leaf: false, host_leaf: false, ..SMALL_AREAS },
];

fn naive(config: &MachineConfig, number: usize, policy: &str) -> Box<dyn AnyMachine> {
    let make = move |_, frames: &mut Frames| -> Box<dyn HardwareTable> {
        Box::new(Tables::new(COMPARED[number], frames))
    };
    walk_twin::naive::<Tables>(config, policy, Arc::new(make))
}

/// Free blocks of 4 KiB and 8 KiB, and a few larger ones.
const FEW_BLOCKS: &str =
    "{kind='order-mix',free_blocks={4KiB=60000,8KiB=2000,16KiB=2,64KiB=1},movable_share=0.5}";

type Difference<'a> = (&'a str, &'static str, u64, Option<u64>);

/// Whether both machines have this counter. The naive design's operating system has no areas, and a machine without areas
/// has no counters of prefetches.
fn is_common((_, counter, value, other): &Difference<'_>) -> bool {
    *counter != "sorted_areas" && (*value, *other) != (0, None)
}

/// Counters of two machines that differ, and both machines' counters.
fn compared(
    config: &MachineConfig,
    machines: [Box<dyn AnyMachine>; 2],
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let [design, other] = counted(config, machines.into(), actions).try_into().unwrap();
    for (one, other) in [(&design, &other), (&other, &design)] {
        let mut found = differences(one, other);
        found.retain(is_common);
        prop_assert_eq!(found, Vec::new());
    }
    Ok(design)
}

/// Plays actions on the design and its twin, and compares all counters.
fn compare(
    config: &MachineConfig,
    (number, policy): (usize, &str),
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let config = &with(config, COMPARED[number]);
    let machines = [machine("asap", config, policy), naive(config, number, policy)];
    compared(config, machines, actions)
}

/// Plays actions on the design and on one without it, and compares all counters.
fn compare_to_conventional(
    config: &MachineConfig,
    settings: AsapSettings,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    let config = &with(config, settings);
    let machines = ["asap", "conventional"].map(|hardware| machine(hardware, config, policy));
    compared(config, machines, actions).map(|_| ())
}

proptest! {
    #![proptest_config(octavo_oracle::cases(12))]

    #[test]
    fn design_equals_twin(config in configs(&[]), actions in actions(), number in 0usize..4) {
        let config = roomy(&config, None);
        for policy in ["base", "thp"] {
            compare(&config, (number, policy), &actions)?;
        }
        compare(&roomy(&config, Some(FEW_BLOCKS)), (number, "base"), &actions)?;
    }

    #[test]
    fn design_equals_twin_in_a_guest(
        configs in guest_configs(),
        actions in actions(),
        number in 0usize..4,
    ) {
        for config in &configs {
            compare(&roomy(config, None), (number, "base"), &actions)?;
            compare(&roomy(config, None), (number, "thp"), &actions)?;
        }
        compare(&roomy(&configs[0], Some(FEW_BLOCKS)), (number, "base"), &actions)?;
    }

    /// Without registers, without levels and without areas, in any memory.
    #[test]
    fn without_areas_it_is_the_radix_tree(
        config in configs(&[]),
        guests in guest_configs(),
        actions in actions(),
        which in 0usize..3,
    ) {
        let settings = [
            AsapSettings { registers: 0, ..SMALL_AREAS },
            AsapSettings {
                leaf: false, upper: false, host_leaf: false, host_upper: false, ..SMALL_AREAS
            },
            AsapSettings { min_bytes: 1 << 50, ..SMALL_AREAS },
        ];
        for config in [&config, &guests[0], &guests[1]] {
            for policy in ["base", "thp"] {
                compare_to_conventional(config, settings[which], policy, &actions)?;
            }
        }
    }
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        let config = roomy(&tiny(&[settings, &["core.count=2"]].concat()), None);
        let counters = compare(&config, (0, "base"), &all_events()).unwrap();
        let get = |component, counter| counters.get(component, counter).unwrap();
        assert!(get("os", "copy_on_write_faults") > 0 && get("walker", "faulted") > 0);
        let tables =
            if settings.is_empty() { &["walker"][..] } else { &["walker.guest", "walker.host"] };
        for component in tables {
            let [sent, used] = ["prefetches", "prefetches_used"].map(|name| get(component, name));
            assert!(0 < used && used < sent, "{component}: {used} of {sent}");
        }
    }
}

/// The start of the pages of the tests below: a whole number of GiB.
const FIRST: u64 = 0x40_0000_0000;

/// Counters of the second pass over one page in each of 200 parts of 2 MiB, with walk caches of two levels.
fn second_pass(hardware: &str, settings: &[&str]) -> Counters {
    let config = tiny(&[&["memory.bytes=16GiB"], settings].concat());
    let pass =
        || references(ItemKind::Load, (0..200).map(|part| FIRST + (part << 21) + part * 320));
    let first = run([map(FIRST, 200 << 9)].into_iter().chain(pass()).collect());
    let runs = [first, run(pass().collect())];
    counted_last(&config, || machine(hardware, &config, "base"), &runs)
}

#[test]
fn walks_read_as_many_entries_and_take_less_time() {
    for guest in [false, true] {
        let settings = if guest { &GUEST[..] } else { &[] };
        let [plain, asap] = ["conventional", "asap"].map(|design| second_pass(design, settings));
        for counter in ["walks", "references"] {
            assert_eq!(plain.get("walker", counter), asap.get("walker", counter));
        }
        let cycles = [&plain, &asap].map(|counters| counters.get("core", "cycles_walks").unwrap());
        assert!(cycles[1] * 20 < cycles[0] * 19, "{cycles:?}");
    }
}

/// Each of the variants of the paper adds entries that are prefetched: of the guest, of both levels, of the host, of all.
#[test]
fn more_levels_prefetch_more() {
    let off = ["asap.upper=false", "asap.host_leaf=false", "asap.host_upper=false"];
    let prefetches = |settings: &[&str]| {
        let counters = second_pass("asap", &[&GUEST, settings].concat());
        ["walker.guest", "walker.host"]
            .map(|component| counters.get(component, "prefetches").unwrap_or(0))
    };
    let leaf_of_guest = prefetches(&off);
    assert!(leaf_of_guest[0] == 200 && leaf_of_guest[1] == 0, "{leaf_of_guest:?}");
    assert_eq!(prefetches(&off[1..]), [400, 0]);
    let leaves = prefetches(&[off[0], off[2]]);
    assert!(leaves[0] == 200 && leaves[1] > 200, "{leaves:?}");
    assert_eq!(prefetches(&[]), [400, 2 * leaves[1]]);
}
