//! The page table of a process: a radix tree, some of whose nodes of levels 1 and 2 are in translation entry areas.
//!
//! A place in an area serves only the node that maps its addresses. The node's frame shows whether the node is there.

use std::ops::Range;

use octavo_os::frames::{Frames, Order, OutOfMemory, Owner};
use octavo_os::page_table::{DesignCounter, HardwareTable, level_of};
use octavo_os::vmas::{Pages, Vmas};
use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

use super::areas::{LEVELS, LargeMappings, Part, Tea, hull, len, nodes_of, overlap, owner};
use super::nodes::{NodeKey, Nodes, key};
use super::settings::DmtSettings;

/// An entry area takes at most one part in this many of memory.
const SHARE_OF_MEMORY: u64 = 64;
/// Entries of a node.
const ENTRIES: u64 = 512;

/// A page table with entry areas.
pub struct Tables {
    pub rules: DmtSettings,
    nodes: Nodes,
    parts: Vec<Part>,
    mappings: LargeMappings,
    /// Places without a node.
    empty_places: u64,
    counts: Counts,
    exhausted: Option<OutOfMemory>,
}

/// Changes of entry areas.
#[derive(Clone, Copy, Default)]
struct Counts {
    made: u64,
    grown: u64,
    merged: u64,
    entries_copied: u64,
}

/// How a page's entry is found.
pub enum Way {
    /// At one of these addresses, which are read together.
    InArea([Option<PhysAddr>; LEVELS]),
    /// At none of these addresses: the radix tree has it, or it is missing.
    OutsideArea([Option<PhysAddr>; LEVELS]),
    /// No register has the address.
    Uncovered,
}

impl Tables {
    /// An empty table of `levels` levels: a root.
    pub fn new(rules: DmtSettings, levels: u8, frames: &mut Frames) -> Self {
        let mut table = Tables {
            rules,
            nodes: Nodes::new(levels),
            parts: Vec::new(),
            mappings: LargeMappings::default(),
            empty_places: 0,
            counts: Counts::default(),
            exhausted: None,
        };
        table.add_node((levels, 0), frames);
        table
    }

    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// How hardware finds the entry of a base page.
    pub fn way(&self, page: PageNumber) -> Way {
        let Some(part) = self.parts.iter().find(|part| part.pages.contains(&page.raw())) else {
            return Way::Uncovered;
        };
        let mut level = 0;
        let places = part.teas.each_ref().map(|tea| {
            level += 1;
            tea.as_ref()?.entry(level, page, &self.nodes)
        });
        let entry = self.nodes.entry(page);
        match entry.is_some() && places.contains(&entry) {
            true => Way::InArea(places),
            false => Way::OutsideArea(places),
        }
    }

    /// Adds a node: at its place in an entry area, if it has one.
    fn add_node(&mut self, (level, number): NodeKey, frames: &mut Frames) {
        let of_level = usize::from(level) - 1;
        let teas = || self.parts.iter().filter_map(|part| part.teas.get(of_level)?.as_ref());
        if let Some(place) = teas().find_map(|tea| tea.place(number)) {
            self.empty_places -= 1;
            self.nodes.add((level, number), place);
            return;
        }
        let is_area = teas().any(|tea| tea.is_single(number));
        match frames.allocate(Order::BASE, Owner::PageTable) {
            Ok(frame) => {
                if is_area {
                    self.note_run(frame, 1, frames);
                }
                self.nodes.add((level, number), frame);
            }
            Err(error) => self.exhausted = Some(error),
        }
    }

    /// Frees the frame of a removed node, unless it is a place in an area, which stays reserved.
    fn free_node(&mut self, level: u8, frame: FrameNumber, frames: &mut Frames) {
        let is_place = |part: &Part| {
            let tea = part.teas.get(usize::from(level) - 1).and_then(Option::as_ref);
            tea.is_some_and(|tea| tea.frames().contains(&frame.raw()))
        };
        if self.parts.iter().any(is_place) {
            self.empty_places += 1;
        } else {
            frames.free(frame, Order::BASE);
        }
    }

    /// Asks the host of a guest to back frames of an entry area contiguously.
    fn note_run(&self, start: FrameNumber, count: u64, frames: &mut Frames) {
        if self.rules.paravirtual {
            frames.note_contiguous_tables(start, count);
        }
    }

    /// Makes or grows the entry area of a level so that it contains the node of a base page, if the page's mapping is
    /// large and has, or gets, a register.
    fn prepare(&mut self, level: u8, page: PageNumber, frames: &mut Frames) {
        let Some(mapping) = self.mappings.find(page).cloned() else { return };
        let (number, of_level) = (key(level, page).1, usize::from(level) - 1);
        let at = self.part_of(&mapping);
        let pages = match at {
            Some(at) => hull(&self.parts[at].pages, &mapping),
            None if (self.parts.len() as u64) < self.rules.registers => mapping.clone(),
            None => return,
        };
        let is_merge = at.is_some_and(|at| !overlap(&self.parts[at].pages, &mapping));
        let needed = nodes_of(&pages, level);
        let before = at.and_then(|at| self.parts[at].teas[of_level].as_ref());
        let nodes = match before {
            Some(tea) if tea.nodes.contains(&number) => None,
            Some(tea) => Some(tea.grown(&needed, number)),
            None => Some(needed),
        };
        let is_growth = before.is_some();
        let new = match nodes.map(|nodes| self.reserve(nodes, frames)) {
            Some(None) => return,
            reserved => reserved.flatten(),
        };
        self.counts.merged += u64::from(is_merge);
        let at = at.unwrap_or_else(|| {
            self.parts.push(Part { pages: mapping, teas: [None, None] });
            self.parts.len() - 1
        });
        self.parts[at].pages = pages;
        if let Some(tea) = new {
            self.counts.made += u64::from(!is_growth);
            self.counts.grown += u64::from(is_growth);
            self.move_to(at, level, tea, frames);
        }
    }

    /// The part that a mapping overlaps, else one that the mapping may join.
    fn part_of(&self, mapping: &Pages) -> Option<usize> {
        let reaches = self.parts.iter().position(|part| overlap(&part.pages, mapping));
        let merges = || self.parts.iter().position(|part| part.may_merge(mapping, &self.rules));
        reaches.or_else(merges)
    }

    /// An entry area for nodes, with a run of frames if they are several. `None` if memory has no such run.
    fn reserve(&mut self, nodes: Range<u64>, frames: &mut Frames) -> Option<Tea> {
        let count = len(&nodes);
        if count == 1 {
            return Some(Tea { nodes, start: None });
        }
        if count > frames.shape().frames() / SHARE_OF_MEMORY {
            return None;
        }
        let start = frames.allocate_surplus_run(count, Owner::PageTable)?;
        self.empty_places += count;
        self.note_run(start, count, frames);
        Some(Tea { nodes, start: Some(start) })
    }

    /// Replaces the entry area of a part, and moves the existing nodes into it, except nodes of other areas.
    fn move_to(&mut self, at: usize, level: u8, tea: Tea, frames: &mut Frames) {
        let of_level = usize::from(level) - 1;
        for number in tea.nodes.clone() {
            let Some(frame) = self.nodes.frame((level, number)) else { continue };
            let owner = owner(&self.parts, (level, number), frame);
            if owner.is_some_and(|owner| owner != at) {
                continue;
            }
            // A node that is an area alone moves to a frame that the host can back for it.
            let place = match tea.place(number) {
                Some(place) => Some(place),
                None => frames.allocate_surplus_run(1, Owner::PageTable),
            };
            let Some(place) = place else { continue };
            match tea.start {
                Some(_) => self.empty_places -= 1,
                None => self.note_run(place, 1, frames),
            }
            self.nodes.move_to((level, number), place);
            self.counts.entries_copied += ENTRIES;
            self.free_node(level, frame, frames);
        }
        let before = self.parts[at].teas[of_level].replace(tea);
        if let Some(before) = before {
            self.release(level, &before, frames);
        }
    }

    fn release_all(&mut self, parts: &[Part], frames: &mut Frames) {
        for (level, tea) in parts.iter().flat_map(|part| (1..).zip(&part.teas)) {
            tea.iter().for_each(|tea| self.release(level, tea, frames));
        }
    }

    /// Frees the places of a removed entry area. A node in a place keeps its frame.
    fn release(&mut self, level: u8, tea: &Tea, frames: &mut Frames) {
        for number in tea.nodes.clone() {
            let Some(place) = tea.place(number) else { continue };
            if self.nodes.frame((level, number)) != Some(place) {
                self.empty_places -= 1;
                frames.free(place, Order::BASE);
            }
        }
    }
}

impl HardwareTable for Tables {
    fn map(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames) {
        if self.exhausted.is_some() {
            return;
        }
        let level = level_of(size);
        let has_area = level == 1 || level == 2 && self.rules.huge;
        // Nodes of level 1 are in the area of their pages from the first page on; nodes of level 2 have other entries, too.
        if has_area && (level == 2 || self.nodes.frame(key(level, page)).is_none()) {
            self.prepare(level, page, frames);
        }
        for missing in self.nodes.missing(level, page) {
            self.add_node(missing, frames);
            if self.exhausted.is_some() {
                self.nodes.note_unfinished(missing);
                return;
            }
        }
        self.nodes.map(level, page);
    }

    fn unmap(&mut self, page: PageNumber, size: PageSize, _: &mut Frames) {
        self.nodes.unmap(level_of(size), page);
    }

    fn free_empty(&mut self, frames: &mut Frames) {
        for ((level, _), frame) in self.nodes.take_empty() {
            self.free_node(level, frame, frames);
        }
    }

    fn mappings_changed(&mut self, pages: &Pages, vmas: &Vmas, frames: &mut Frames) {
        let min_pages = self.rules.min_bytes / PageSize::BASE.bytes();
        self.mappings.update(pages, vmas, min_pages);
        let is_gone =
            |part: &mut Part| overlap(&part.pages, pages) && vmas.within(&part.pages).is_empty();
        let gone: Vec<Part> = self.parts.extract_if(.., is_gone).collect();
        self.release_all(&gone, frames);
    }

    fn frames(&self) -> u64 {
        self.nodes.len() + self.empty_places
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        self.exhausted
    }

    fn counters(&self) -> Vec<DesignCounter> {
        let teas = || self.parts.iter().flat_map(|part| part.teas.iter().flatten());
        let bytes = |frames: u64| frames * PageSize::BASE.bytes();
        let Counts { made, grown, merged, entries_copied } = self.counts;
        let counter = |name, value, is_level| DesignCounter { name, value, is_level };
        vec![
            counter("tea_registers", self.parts.len() as u64, true),
            counter("tea_bytes", bytes(teas().map(|tea| len(&tea.nodes)).sum()), true),
            counter("teas_made", made, false),
            counter("teas_grown", grown, false),
            counter("mappings_merged", merged, false),
            counter("tea_entries_copied", entries_copied, false),
        ]
    }

    fn free(mut self: Box<Self>, frames: &mut Frames) {
        let parts = std::mem::take(&mut self.parts);
        self.release_all(&parts, frames);
        self.nodes.frames().for_each(|frame| frames.free(frame, Order::BASE));
    }
}
