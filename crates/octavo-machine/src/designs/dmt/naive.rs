//! The slow, obvious twin: page tables as maps from a level and the number of a node to its frame, registers and their
//! entry areas as lists, all of them looked through for each question. The tests compare the counters of both.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use octavo_config::MachineConfig;
use octavo_oracle::strategies::Step;
use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_os::page_table::{self, DesignCounter, HardwareTable};
use octavo_os::vmas::Vmas;
use octavo_types::{
    AddrRange, Event, FrameNumber, ItemKind, MapSource, PageNumber, PageSize, Protection, VirtAddr,
};
use proptest::prelude::*;

use super::settings::DmtSettings;
use crate::counters::Counters;
use crate::designs::build::{self, HardwareFormat};
use crate::designs::radix_twin::{NodeKey, Tree, entry, key};
use crate::designs::registry::policies;
use crate::designs::twins::{
    self, Action, GUEST, actions, all_events, configs, counted, counted_last, differences,
    guest_configs, machine, map, references, run, setup, tiny, with,
};
use crate::env::{WalkPlan, WalkRequest, Walker};
use crate::machine::AnyMachine;

struct Register {
    pages: Range<u64>,
    /// By level.
    areas: BTreeMap<u8, Area>,
}

#[derive(Clone)]
struct Area {
    nodes: Range<u64>,
    /// The frame of the first node's place; none of an area of one node.
    start: Option<u64>,
}

impl Area {
    fn place(&self, number: u64) -> Option<u64> {
        let has_place = self.start.is_some() && self.nodes.contains(&number);
        has_place.then(|| self.start.unwrap() + number - self.nodes.start)
    }

    fn places(&self) -> Vec<u64> {
        self.nodes.clone().filter_map(|number| self.place(number)).collect()
    }
}

struct Tables {
    settings: DmtSettings,
    tree: Tree,
    registers: Vec<Register>,
    /// The large mappings that are known.
    mappings: Vec<Range<u64>>,
    made: u64,
    grown: u64,
    merged: u64,
    copied: u64,
}

fn meet(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

fn around(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.min(other.start)..one.end.max(other.end)
}

fn count(range: &Range<u64>) -> u64 {
    range.end - range.start
}

impl Tables {
    fn new(settings: DmtSettings, levels: u8, frames: &mut Frames) -> Tables {
        let mut tables = Tables {
            settings,
            tree: Tree::new(levels),
            registers: Vec::new(),
            mappings: Vec::new(),
            made: 0,
            grown: 0,
            merged: 0,
            copied: 0,
        };
        tables.add_node((levels, 0), frames);
        tables
    }

    fn areas(&self, level: u8) -> Vec<&Area> {
        self.registers.iter().filter_map(|register| register.areas.get(&level)).collect()
    }

    fn is_place(&self, level: u8, frame: u64) -> bool {
        self.areas(level).iter().any(|area| area.places().contains(&frame))
    }

    fn is_area_alone(&self, (level, number): NodeKey) -> bool {
        self.areas(level).iter().any(|area| area.start.is_none() && area.nodes.start == number)
    }

    /// Notes a run of frames for entries, which a guest asks its host to back contiguously.
    fn note(&self, first: u64, count: u64, frames: &mut Frames) {
        if self.settings.paravirtual {
            frames.note_contiguous_tables(FrameNumber::new(first), count);
        }
    }

    fn add_node(&mut self, key: NodeKey, frames: &mut Frames) {
        let place = self.areas(key.0).into_iter().find_map(|area| area.place(key.1));
        self.tree.add(key, place, frames);
        if place.is_none()
            && self.is_area_alone(key)
            && let Some(frame) = self.tree.nodes.get(&key)
        {
            self.note(*frame, 1, frames);
        }
    }

    /// The level with the entry of the page that holds a base page.
    fn level_of_page(&self, page: u64) -> Option<u8> {
        let (first, pages) = self.tree.pages.range(..=page).next_back()?;
        let level = [1, 512, 512 * 512].iter().position(|size| size == pages).unwrap() as u8 + 1;
        (page < first + pages).then_some(level)
    }

    /// The register whose part of the address space a large mapping overlaps; else one with which it occupies enough of
    /// the addresses from the first to the last.
    fn register_of(&self, mapping: &Range<u64>) -> Option<usize> {
        let reaches = self.registers.iter().position(|register| meet(&register.pages, mapping));
        reaches.or_else(|| {
            self.registers.iter().position(|register| {
                let percent = self.settings.min_occupancy_percent;
                let filled = count(&register.pages) + count(mapping);
                filled * 100 >= count(&around(&register.pages, mapping)) * percent
            })
        })
    }

    fn prepare(&mut self, level: u8, page: u64, frames: &mut Frames) {
        let Some(mapping) = self.mappings.iter().find(|pages| pages.contains(&page)).cloned()
        else {
            return;
        };
        let register = self.register_of(&mapping);
        if register.is_none() && self.registers.len() as u64 == self.settings.registers {
            return;
        }
        let pages = register.map(|at| around(&self.registers[at].pages, &mapping));
        let pages = pages.unwrap_or(mapping.clone());
        let before = register.and_then(|at| self.registers[at].areas.get(&level).cloned());
        let number = key(level, page).1;
        let mut nodes = key(level, pages.start).1..key(level, pages.end - 1).1 + 1;
        let has_node = before.as_ref().is_some_and(|area| area.nodes.contains(&number));
        if let Some(area) = &before {
            nodes = around(&nodes, &area.nodes);
            if number < area.nodes.start {
                nodes.start = nodes.start.min(area.nodes.start.saturating_sub(count(&area.nodes)));
            } else {
                nodes.end = nodes.end.max(area.nodes.end + count(&area.nodes));
            }
        }
        let mut start = None;
        if !has_node && count(&nodes) > 1 {
            if count(&nodes) * 64 > frames.shape().frames() {
                return;
            }
            let run = frames.allocate_surplus_run(count(&nodes), Owner::PageTable);
            let Some(run) = run else { return };
            self.note(run.raw(), count(&nodes), frames);
            start = Some(run.raw());
        }
        let at = register.unwrap_or(self.registers.len());
        if register.is_none() {
            self.registers.push(Register { pages: mapping.clone(), areas: BTreeMap::new() });
        } else if !meet(&self.registers[at].pages, &mapping) {
            self.merged += 1;
        }
        self.registers[at].pages = pages;
        if has_node {
            return;
        }
        match before {
            Some(_) => self.grown += 1,
            None => self.made += 1,
        }
        self.fill(at, level, Area { nodes, start }, frames);
    }

    /// Gives a register a new area, with the nodes that are not in areas of other registers.
    fn fill(&mut self, at: usize, level: u8, area: Area, frames: &mut Frames) {
        for number in area.nodes.clone() {
            let Some(frame) = self.tree.nodes.get(&(level, number)).copied() else { continue };
            let has_place = |register: &Register| {
                register.areas.get(&level).is_some_and(|area| area.places().contains(&frame))
            };
            let is_alone = |register: &Register| {
                let area = register.areas.get(&level);
                area.is_some_and(|area| area.start.is_none() && area.nodes.start == number)
            };
            let owner = self.registers.iter().position(has_place);
            let owner = owner.or_else(|| self.registers.iter().position(is_alone));
            if owner.is_some_and(|owner| owner != at) {
                continue;
            }
            let place = area.place(number).or_else(|| {
                let alone = frames.allocate_surplus_run(1, Owner::PageTable)?.raw();
                self.note(alone, 1, frames);
                Some(alone)
            });
            let Some(place) = place else { continue };
            self.tree.nodes.insert((level, number), place);
            self.copied += 512;
            if !self.is_place(level, frame) {
                frames.free(FrameNumber::new(frame), Order::BASE);
            }
        }
        if let Some(before) = self.registers[at].areas.insert(level, area) {
            self.free_places(&before, frames);
        }
    }

    /// Frees the places of a removed area that have no node.
    fn free_places(&self, area: &Area, frames: &mut Frames) {
        let nodes: BTreeSet<u64> = self.tree.nodes.values().copied().collect();
        for place in area.places().into_iter().filter(|place| !nodes.contains(place)) {
            frames.free(FrameNumber::new(place), Order::BASE);
        }
    }

    fn all_frames(&self) -> BTreeSet<u64> {
        let areas = self.registers.iter().flat_map(|register| register.areas.values());
        areas.flat_map(Area::places).chain(self.tree.nodes.values().copied()).collect()
    }
}

impl HardwareTable for Tables {
    fn mappings_changed(&mut self, pages: &Range<u64>, vmas: &Vmas, frames: &mut Frames) {
        let mut changed = pages.clone();
        for (mapping, _) in vmas.iter() {
            if meet(mapping, pages) || mapping.end == pages.start || mapping.start == pages.end {
                changed = around(&changed, mapping);
            }
        }
        let (again, kept): (Vec<_>, _) =
            std::mem::take(&mut self.mappings).into_iter().partition(|old| meet(old, &changed));
        self.mappings = kept;
        let changed = again.iter().fold(changed, |all, old| around(&all, old));
        for (mapping, _) in vmas.iter().filter(|(mapping, _)| meet(mapping, &changed)) {
            let part = mapping.start.max(changed.start)..mapping.end.min(changed.end);
            if count(&part) * 4096 >= self.settings.min_bytes {
                self.mappings.push(part);
            }
        }
        let is_mapped =
            |register: &Register| vmas.iter().any(|(mapping, _)| meet(mapping, &register.pages));
        let (kept, unmapped): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.registers).into_iter().partition(is_mapped);
        self.registers = kept;
        for area in unmapped.iter().flat_map(|register| register.areas.values()) {
            self.free_places(area, frames);
        }
    }

    fn map(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames) {
        if self.tree.exhausted.is_some() {
            return;
        }
        let is_base = size == PageSize::BASE;
        let is_new_leaf = is_base && !self.tree.nodes.contains_key(&key(1, page.raw()));
        if is_new_leaf || size == PageSize::HUGE && self.settings.huge {
            self.prepare(if is_base { 1 } else { 2 }, page.raw(), frames);
        }
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
        for ((level, _), frame) in self.tree.take_empty() {
            if !self.is_place(level, frame) {
                frames.free(FrameNumber::new(frame), Order::BASE);
            }
        }
    }

    fn frames(&self) -> u64 {
        self.all_frames().len() as u64
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        self.tree.exhausted
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let areas = self.registers.iter().flat_map(|register| register.areas.values());
        let bytes = 4096 * areas.map(|area| count(&area.nodes)).sum::<u64>();
        let counter = |name, value, is_level| DesignCounter { name, value, is_level };
        vec![
            counter("tea_bytes", bytes, true),
            counter("tea_registers", self.registers.len() as u64, true),
            counter("teas_made", self.made, false),
            counter("teas_grown", self.grown, false),
            counter("mappings_merged", self.merged, false),
            counter("tea_entries_copied", self.copied, false),
        ]
    }

    fn free(self: Box<Self>, frames: &mut Frames) {
        for frame in self.all_frames() {
            frames.free(FrameNumber::new(frame), Order::BASE);
        }
    }
}

#[derive(Default)]
struct NaiveWalker {
    walks: BTreeMap<&'static str, u64>,
}

impl Walker for NaiveWalker {
    fn plan(&mut self, request: &WalkRequest<'_>, plan: &mut WalkPlan) {
        let (table, page) = (request.table().hardware::<Tables>(), request.page.raw());
        let level = table.level_of_page(page);
        let node = |level| table.tree.nodes.get(&key(level, page)).copied();
        plan.entry = level.map(|level| entry(node(level).unwrap(), level, page));
        let register = table.registers.iter().find(|register| register.pages.contains(&page));
        let mut is_found = false;
        for (level, area) in register.iter().flat_map(|register| &register.areas) {
            let (_, number) = key(*level, page);
            let is_alone = area.start.is_none() && area.nodes.start == number;
            let Some(frame) = area.place(number).or(node(*level).filter(|_| is_alone)) else {
                continue;
            };
            let at = entry(frame, *level, page);
            if table.settings.paravirtual {
                plan.probe_in_run(at)
            } else {
                plan.probe(at)
            }
            is_found |= plan.entry == Some(at);
        }
        let kind = match (register, is_found) {
            (None, _) => "uncovered",
            (Some(_), false) => "outside_area",
            (Some(_), true) => "in_area",
        };
        *self.walks.entry(kind).or_default() += 1;
        if !is_found {
            let lowest = level.unwrap_or(1);
            let nodes =
                (lowest..=table.tree.levels).rev().map_while(|level| Some((level, node(level)?)));
            let step = |(level, frame)| page_table::Step { at: entry(frame, level, page), level };
            plan.radix(nodes.map(step));
        }
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        for kind in ["in_area", "outside_area", "uncovered"] {
            let walks = self.walks.get(kind).copied().unwrap_or(0);
            counters.add(&format!("{component}.walks"), kind, walks);
        }
    }

    fn uses_walk_caches(&self) -> bool {
        true
    }
}

/// Areas for any mapping, which are shared across gaps as wide as the mappings.
const SMALL_AREAS: DmtSettings = DmtSettings {
    registers: 16,
    min_bytes: 4096,
    min_occupancy_percent: 50,
    huge: true,
    paravirtual: true,
};

const COMPARED: [DmtSettings; 5] = [
    SMALL_AREAS,
    DmtSettings { registers: 1, min_bytes: 64 << 10, ..SMALL_AREAS },
    DmtSettings { registers: 2, min_occupancy_percent: 101, paravirtual: false, ..SMALL_AREAS },
    DmtSettings { registers: 3, min_bytes: 1 << 20, huge: false, ..SMALL_AREAS },
    DmtSettings { registers: 4, min_occupancy_percent: 1, ..SMALL_AREAS },
];

fn naive(config: &MachineConfig, policy: &str) -> Box<dyn AnyMachine> {
    let settings = *config.designs.get::<DmtSettings>();
    let hardware = HardwareFormat {
        table: Some(Arc::new(move |levels, frames| {
            Box::new(Tables::new(settings, levels, frames))
        })),
        walker: |_| Box::new(NaiveWalker::default()),
    };
    let tables = build::Tables { hardware: Some(hardware), ..build::Tables::default() };
    let os = policies().parse(policy).unwrap();
    build::conventional(config, &setup(config), tables, &os).unwrap()
}

/// Plays actions on the design and its twin, and compares every counter.
fn compare(
    config: &MachineConfig,
    (settings, policy): (DmtSettings, &str),
    actions: &[(usize, Action)],
) -> Result<Counters, TestCaseError> {
    let config = &with(config, settings);
    twins::compare(config, [machine("dmt", config, policy), naive(config, policy)], actions)
}

/// The machine with memory that does not run out.
fn roomy(config: &MachineConfig) -> MachineConfig {
    let mut config = config.clone();
    config.memory.bytes = 16 << 30;
    if let Some(host) = &mut config.host {
        host.memory.bytes = 32 << 30;
    }
    config
}

proptest! {
    #![proptest_config(octavo_oracle::cases(16))]

    #[test]
    fn design_equals_twin(config in configs(&[]), actions in actions(), number in 0usize..5) {
        for policy in ["base", "thp"] {
            compare(&config, (COMPARED[number], policy), &actions)?;
            compare(&roomy(&config), (COMPARED[number], policy), &actions)?;
        }
    }

    #[test]
    fn design_equals_twin_in_a_guest(
        configs in guest_configs(),
        actions in actions(),
        number in 0usize..5,
    ) {
        for config in &configs {
            for policy in ["base", "thp"] {
                compare(config, (COMPARED[number], policy), &actions)?;
                compare(&roomy(config), (COMPARED[number], policy), &actions)?;
            }
        }
    }

    /// Without registers in any memory, and without areas where memory does not run out.
    #[test]
    fn without_areas_it_is_the_radix_tree(
        config in configs(&[]),
        guests in guest_configs(),
        actions in actions(),
    ) {
        let none = DmtSettings { registers: 0, ..SMALL_AREAS };
        let too_small = DmtSettings { min_bytes: 1 << 40, ..SMALL_AREAS };
        for config in [&config, &guests[0], &guests[1]] {
            for (config, settings) in [(config.clone(), none), (roomy(config), too_small)] {
                for policy in ["base", "thp"] {
                    compare_to_radix(&with(&config, settings), policy, &actions)?;
                }
            }
        }
    }
}

/// Plays actions on the design and on ordinary radix trees. Only counters of the design alone may differ.
fn compare_to_radix(
    config: &MachineConfig,
    policy: &str,
    actions: &[(usize, Action)],
) -> Result<(), TestCaseError> {
    let machines = ["dmt", "conventional"].map(|hardware| machine(hardware, config, policy));
    let [dmt, radix] = counted(config, machines.into(), actions).try_into().unwrap();
    prop_assert_eq!(differences(&radix, &dmt), Vec::new());
    let mut own = differences(&dmt, &radix);
    own.retain(|(component, _, value, _)| !(component.ends_with(".walks") || *value == 0));
    prop_assert_eq!(own, Vec::new());
    Ok(())
}

#[test]
fn compared_events_occur() {
    for settings in [&[][..], &GUEST] {
        let config = roomy(&tiny(&[settings, &["core.count=2"]].concat()));
        for policy in ["base", "thp"] {
            let counters = compare(&config, (SMALL_AREAS, policy), &all_events()).unwrap();
            let get = |component, counter| counters.get(component, counter).unwrap();
            assert!(get("os", "copy_on_write_faults") > 0 && get("walker", "faulted") > 0);
            assert!(get("os", "teas_made") > 1 && get("os", "tea_bytes") > 0, "{policy}");
            for walks in ["in_area", "outside_area", "uncovered"] {
                assert!(get("walker.cache.walks", walks) > 0, "{walks}");
            }
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
fn walks_read_one_entry_of_each_table() {
    let get = |counters: &Counters| {
        ["walks", "references"].map(|counter| counters.get("walker", counter).unwrap())
    };
    assert_eq!(get(&second_pass("dmt", &[])), [200, 200]);
    let no_nested_tlb = [&GUEST[..2], &["host.tlb=none"]].concat();
    assert_eq!(get(&second_pass("dmt", &no_nested_tlb)), [200, 400]);
    let plain = [&no_nested_tlb[..], &["dmt.paravirtual=false"]].concat();
    assert_eq!(get(&second_pass("dmt", &plain)), [200, 600]);
}

/// Parts of a mapping that is too large for an area are made accessible one after another, as allocators do it.
#[test]
fn parts_of_large_mappings_have_areas() {
    let range = |part: u64| AddrRange::new(VirtAddr::new(FIRST + part * (40 << 21)), 40 << 21);
    let reserved = Event::Map {
        range: AddrRange::new(VirtAddr::new(FIRST), 200 << 30),
        protection: Protection::from_bits(0),
        source: MapSource::Anonymous,
        flags: 0x22,
    };
    let mut steps = vec![Step::Event(reserved)];
    for part in 0..2 {
        let protection = Protection::from_bits(3);
        steps.push(Step::Event(Event::Protect { range: range(part), protection }));
        let pages = (0..40).map(|at| range(part).start().raw() + (at << 21));
        steps.extend(references(ItemKind::Store, pages));
    }
    let config = roomy(&tiny(&[]));
    let counters = compare(&config, (DmtSettings::default(), "base"), &[(0, run(steps))]).unwrap();
    let get = |counter| counters.get("os", counter).unwrap();
    assert_eq!(["tea_registers", "teas_made", "teas_grown"].map(get), [1, 1, 1]);
    assert_eq!(get("tea_bytes"), 80 << 12);
}

/// Pages are mapped again, and moved to a longer mapping, whose nodes are in its area. Each translation is checked
/// against the page table.
#[test]
fn areas_follow_changes_of_mappings() {
    let range = |first: u64, pages: u64| AddrRange::new(VirtAddr::new(first), pages << 12);
    let pages = 40 << 9;
    let pass = |first: u64| {
        [ItemKind::Load, ItemKind::Store]
            .into_iter()
            .flat_map(move |kind| references(kind, (0..40).map(move |part| first + (part << 21))))
    };
    let event = |event| std::iter::once(Step::Event(event));
    let moved = Event::Remap { from: range(FIRST, pages), to: range(FIRST + (1 << 32), 2 * pages) };
    let steps: Vec<Step> = [map(FIRST, pages)]
        .into_iter()
        .chain(pass(FIRST))
        .chain(event(Event::Unmap { range: range(FIRST, pages / 2) }))
        .chain([map(FIRST, pages / 2)])
        .chain(pass(FIRST))
        .chain(event(moved))
        .chain(pass(FIRST + (1 << 32)))
        .collect();
    let config = roomy(&tiny(&[]));
    // The moved mapping needs no second register.
    let settings = DmtSettings { registers: 1, ..DmtSettings::default() };
    let counters = compare(&config, (settings, "base"), &[(0, run(steps))]).unwrap();
    assert_eq!(counters.get("os", "tea_registers"), Some(1));
    // A node for each 2 MiB of the mapping at its new place, made there.
    assert_eq!(counters.get("os", "tea_bytes"), Some(80 << 12));
    assert_eq!(counters.get("os", "tea_entries_copied"), Some(0));
    // All pages were found in an area, but the code's.
    let get = |component, counter| counters.get(component, counter).unwrap();
    assert_eq!(
        get("walker.cache.walks", "in_area") + 1 + get("walker", "faulted"),
        get("walker", "walks")
    );
}

/// A mapping that moves next to its old place does not share an area with what is no longer there.
#[test]
fn mapping_moved_beside_its_old_place_has_an_area_of_its_own() {
    let pages = 40 << 9;
    let range = |first: u64| AddrRange::new(VirtAddr::new(first), pages << 12);
    let to = FIRST + (pages << 12);
    let stores =
        |first: u64| references(ItemKind::Store, (0..40).map(move |part| first + (part << 21)));
    let moved = Step::Event(Event::Remap { from: range(FIRST), to: range(to) });
    let steps: Vec<Step> = [map(FIRST, pages)]
        .into_iter()
        .chain(stores(FIRST))
        .chain([moved])
        .chain(stores(to))
        .collect();
    let config = roomy(&tiny(&[]));
    let counters = compare(&config, (DmtSettings::default(), "base"), &[(0, run(steps))]).unwrap();
    let get = |counter| counters.get("os", counter).unwrap();
    assert_eq!(["teas_made", "mappings_merged"].map(get), [2, 0]);
    assert_eq!(get("tea_bytes"), 40 << 12);
}
