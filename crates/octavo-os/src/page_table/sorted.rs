//! Sorted nodes (Margaritov, Ustiugov, Bugnion and Grot, "Prefetched Address Translation", MICRO 2019): the nodes of levels
//! 1 and 2 of an *area* are contiguous in memory, in the order of the addresses that they map, so that the address of
//! an entry follows from the address of the page without a walk.
//!
//! - An area is a mapping of at least [`SortedFormat::min_pages`] pages, or a new part of a mapping with at least as
//!   many. It begins when the pages are mapped, or when a mapping that is not an area is split, by `mprotect`,
//!   `madvise` or `munmap`, and lasts until nothing is mapped in it.
//! - An area has a *region* of frames for each level whose nodes are sorted, with a place for each node that it may need. A
//!   node is made at its place, and a place without a node takes memory too. Two areas share a region that has the
//!   places of both: each place is for the one node that maps its addresses.
//! - A node that is older than the region stays where it is, and its place stays empty: a hole. But if an area needs a
//!   single node, and this node exists, the region is the node itself.
//! - A region is allocated only if all frames remain that operations have
//!   [ensured and not used](crate::frames::Frames::allocate_surplus), and if it takes at most a 64th of memory. If a
//!   level can have no region, the pages do not become an area, and their nodes are ordinary.
//! - At most 1024 areas exist at a time, so that a program with very many mappings costs no more than any other.
//!   Mappings beyond this limit do not become areas.
//! - Hardware knows the largest areas, one per register. Of equally large areas, it knows the ones at lower addresses.

use std::cmp::Reverse;
use std::ops::Range;

use octavo_types::{FrameNumber, PageNumber, PhysAddr};

use super::merged::{Part, entry_at};
use super::{INDEX_BITS, PageTable, ROOT, index};
use crate::frames::{Frames, Order, Owner};
use crate::vmas::{Pages, Vmas};

/// The levels whose nodes may be sorted: 1 and 2.
pub const SORTED_LEVELS: usize = 2;

/// A region takes at most the frames of memory divided by this number.
const SHARE_OF_MEMORY: u64 = 64;

/// Maximum number of areas at a time.
const MAX_AREAS: usize = 1 << 10;

/// Which nodes of a page table are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SortedFormat {
    /// Whether nodes of level 1 and of level 2 are sorted.
    pub levels: [bool; SORTED_LEVELS],
    /// Minimum number of base pages of an area.
    pub min_pages: u64,
    /// Maximum number of areas that hardware knows.
    pub registers: usize,
}

/// The areas of a page table, and the regions of their nodes.
#[derive(Default)]
pub(super) struct SortedNodes {
    /// Disjoint areas, the largest first, then by address.
    areas: Vec<Area>,
    /// By level, the oldest first.
    regions: [Vec<Region>; SORTED_LEVELS],
    /// Frames of regions without a node.
    unused_frames: u64,
    next_region: u64,
}

struct Area {
    pages: Pages,
    /// By level; `None` for a level that is not sorted.
    bases: [Option<Base>; SORTED_LEVELS],
}

/// The part of a region that hardware knows.
#[derive(Clone, Copy)]
struct Base {
    region: u64,
    /// The number of its first node.
    first_node: u64,
    start: FrameNumber,
}

/// Frames for nodes of a level, in the order of [node numbers](node_number).
struct Region {
    id: u64,
    nodes: Range<u64>,
    start: FrameNumber,
    /// Whether the node at each place exists.
    has_node: Vec<bool>,
    /// Number of areas that use it.
    areas: u32,
}

impl Region {
    fn base(&self) -> Base {
        Base { region: self.id, first_node: self.nodes.start, start: self.start }
    }
}

/// The number of the node of a level that maps a base page.
fn node_number(page: u64, level: u8) -> u64 {
    page >> (level * INDEX_BITS)
}

fn overlap(one: &Pages, other: &Pages) -> bool {
    one.start < other.end && other.start < one.end
}

impl PageTable {
    /// Updates areas after the mappings in a range have changed: areas in which nothing is mapped end, and parts of the
    /// mappings in the range and beside it may become areas.
    pub fn mappings_changed(&mut self, pages: &Pages, vmas: &Vmas, frames: &mut Frames) {
        if let Some(table) = &mut self.hardware {
            table.mappings_changed(pages, vmas, frames);
            return;
        }
        let Some(format) = self.format.sorted else { return };
        let has_ended =
            |area: &mut Area| overlap(&area.pages, pages) && vmas.within(&area.pages).is_empty();
        let ended: Vec<Area> = self.sorted.areas.extract_if(.., has_ended).collect();
        ended.iter().for_each(|area| self.release_regions(&area.bases, frames));
        let with_neighbours = pages.start.saturating_sub(1)..pages.end.saturating_add(1);
        for (found, _) in vmas.within(&with_neighbours) {
            let mapping = vmas.find(PageNumber::new(found.start)).map(|(mapping, _)| mapping);
            let mapping = mapping.filter(|mapping| mapping.end <= self.reach_pages());
            for part in mapping.map_or(Vec::new(), |mapping| self.outside_areas(&mapping)) {
                let is_large = part.end - part.start >= format.min_pages;
                if is_large && self.sorted.areas.len() < MAX_AREAS {
                    self.add_area(part, format.levels, frames);
                }
            }
        }
    }

    /// The addresses of the entries of levels 1 and 2 that hardware computes for a base page: none outside the areas
    /// that it knows. A node may lie elsewhere, or not exist.
    #[inline]
    pub fn sorted_entries(&self, page: PageNumber) -> [Option<PhysAddr>; SORTED_LEVELS] {
        match self.format.sorted {
            Some(format) => self.sorted_entries_of(page, format.registers),
            None => [None; SORTED_LEVELS],
        }
    }

    fn sorted_entries_of(
        &self,
        page: PageNumber,
        registers: usize,
    ) -> [Option<PhysAddr>; SORTED_LEVELS] {
        let mut known = self.sorted.areas.iter().take(registers);
        let Some(area) = known.find(|area| area.pages.contains(&page.raw())) else {
            return [None; SORTED_LEVELS];
        };
        let mut level = 0;
        area.bases.map(|base| {
            level += 1;
            let base = base?;
            let node = node_number(page.raw(), level) - base.first_node;
            Some(entry_at(base.start.plus(node), index(page, level)))
        })
    }

    /// The number of areas that hardware knows, if nodes are sorted.
    pub fn sorted_areas(&self) -> Option<u64> {
        let format = self.format.sorted?;
        Some(self.sorted.areas.len().min(format.registers) as u64)
    }

    /// Frames of regions that have no node.
    pub(super) fn unused_places(&self) -> u64 {
        self.sorted.unused_frames
    }

    /// Whether a new node of a level has a place in a region.
    pub(super) fn has_place(&self, page: PageNumber, level: u8) -> bool {
        self.place(page, level).is_some()
    }

    /// Claims the place of a new node of a level, if it has one.
    pub(super) fn claim_place(&mut self, page: PageNumber, level: u8) -> Option<FrameNumber> {
        let (region, place) = self.place(page, level)?;
        let region = &mut self.sorted.regions[usize::from(level) - 1][region];
        region.has_node[place] = true;
        self.sorted.unused_frames -= 1;
        Some(region.start.plus(place as u64))
    }

    /// Marks the place of a freed node as empty.
    pub(super) fn release_place(&mut self, frame: FrameNumber, level: u8) {
        let mut regions = self.sorted.regions[usize::from(level) - 1].iter_mut();
        let place = regions.find_map(|region| {
            let place = frame.raw().checked_sub(region.start.raw())?;
            region.has_node.get_mut(place as usize)
        });
        *place.expect("a sorted node lies in a region") = false;
        self.sorted.unused_frames += 1;
    }

    /// Frees all regions, which have no nodes any more.
    pub(super) fn free_regions(&mut self, frames: &mut Frames) {
        let sorted = std::mem::take(&mut self.sorted);
        for region in sorted.regions.into_iter().flatten() {
            frames.free_range(region.start, region.nodes.end - region.nodes.start);
        }
    }

    /// The region and place of a new node of a level: the oldest region in which its place is empty.
    fn place(&self, page: PageNumber, level: u8) -> Option<(usize, usize)> {
        let regions = self.sorted.regions.get(usize::from(level).checked_sub(1)?)?;
        let node = node_number(page.raw(), level);
        regions.iter().enumerate().find_map(|(number, region)| {
            let place = node.checked_sub(region.nodes.start)? as usize;
            (region.has_node.get(place) == Some(&false)).then_some((number, place))
        })
    }

    /// The parts of a mapping outside all areas.
    fn outside_areas(&self, mapping: &Pages) -> Vec<Pages> {
        let areas = self.sorted.areas.iter().map(|area| area.pages.clone());
        let mut inside: Vec<_> = areas.filter(|area| overlap(area, mapping)).collect();
        inside.sort_unstable_by_key(|area| area.start);
        inside.push(mapping.end..mapping.end);
        let (mut parts, mut from) = (Vec::new(), mapping.start);
        for area in inside {
            if from < area.start {
                parts.push(from..area.start);
            }
            from = from.max(area.end);
        }
        parts
    }

    /// Makes pages an area, if each level can have a region.
    fn add_area(&mut self, pages: Pages, levels: [bool; SORTED_LEVELS], frames: &mut Frames) {
        let mut bases = [None; SORTED_LEVELS];
        for (at, base) in bases.iter_mut().enumerate().filter(|(at, _)| levels[*at]) {
            *base = self.region_for(&pages, at as u8 + 1, frames);
        }
        if bases.iter().zip(levels).any(|(base, is_sorted)| is_sorted && base.is_none()) {
            self.release_regions(&bases, frames);
            return;
        }
        let rank = |pages: &Pages| (Reverse(pages.end - pages.start), pages.start);
        let areas = &mut self.sorted.areas;
        let at = areas.partition_point(|area| rank(&area.pages) < rank(&pages));
        areas.insert(at, Area { pages, bases });
    }

    /// A region for the nodes of a level of an area: one that has their places, or a new one.
    fn region_for(&mut self, pages: &Pages, level: u8, frames: &mut Frames) -> Option<Base> {
        let nodes = node_number(pages.start, level)..node_number(pages.end - 1, level) + 1;
        let mut regions = self.sorted.regions[usize::from(level) - 1].iter_mut();
        let covers = |region: &&mut Region| {
            region.nodes.start <= nodes.start && nodes.end <= region.nodes.end
        };
        if let Some(region) = regions.find(covers) {
            region.areas += 1;
            return Some(region.base());
        }
        let count = nodes.end - nodes.start;
        if count > frames.shape().frames() / SHARE_OF_MEMORY {
            return None;
        }
        let existing = if count == 1 { self.node_of(nodes.start, level) } else { None };
        let start = match existing {
            Some(node) => {
                self.nodes[node as usize].part = Part::Sorted;
                self.nodes[node as usize].frame
            }
            None => {
                let start = frames.allocate_surplus_run(count, Owner::PageTable)?;
                self.sorted.unused_frames += count;
                start
            }
        };
        frames.note_contiguous_tables(start, count);
        let id = self.sorted.next_region;
        self.sorted.next_region += 1;
        let has_node = vec![existing.is_some(); count as usize];
        let region = Region { id, nodes, start, has_node, areas: 1 };
        let base = region.base();
        self.sorted.regions[usize::from(level) - 1].push(region);
        Some(base)
    }

    /// Ends an area's use of its regions. A region without areas is freed, and its nodes become ordinary.
    fn release_regions(&mut self, bases: &[Option<Base>; SORTED_LEVELS], frames: &mut Frames) {
        for (at, base) in bases.iter().enumerate() {
            let Some(base) = base else { continue };
            let regions = &mut self.sorted.regions[at];
            let number = regions.iter().position(|region| region.id == base.region);
            let number = number.expect("an area's region lasts as long as the area");
            regions[number].areas -= 1;
            if regions[number].areas > 0 {
                continue;
            }
            let region = regions.remove(number);
            for (place, has_node) in region.has_node.iter().enumerate() {
                let (frame, node) = (region.start.plus(place as u64), region.nodes.start);
                if *has_node {
                    let node = self.node_of(node + place as u64, at as u8 + 1);
                    let node = node.expect("the place has a node") as usize;
                    debug_assert_eq!(self.nodes[node].frame, frame);
                    self.nodes[node].part = Part::Ordinary;
                } else {
                    frames.free(frame, Order::BASE);
                    self.sorted.unused_frames -= 1;
                }
            }
        }
    }

    /// The node of a level with a number, if it exists.
    fn node_of(&self, number: u64, level: u8) -> Option<u32> {
        let page = PageNumber::new(number << (level * INDEX_BITS));
        let mut node = ROOT;
        for above in (level + 1..=self.format.levels).rev() {
            node = *self.nodes[node as usize].children.get(index(page, above))?;
            if node == ROOT {
                return None;
            }
        }
        Some(node)
    }

    /// Checks that regions record the places of all sorted nodes correctly, and that areas and their regions agree.
    pub fn check_sorted(&self) -> Result<(), String> {
        let mut empty = 0;
        for (at, regions) in self.sorted.regions.iter().enumerate() {
            let level = at as u8 + 1;
            for region in regions {
                for (place, has_node) in region.has_node.iter().enumerate() {
                    empty += u64::from(!has_node);
                    let node = self.node_of(region.nodes.start + place as u64, level);
                    let node = node.map(|node| &self.nodes[node as usize]);
                    let frame = region.start.plus(place as u64);
                    let is_here = node.is_some_and(|node| node.frame == frame);
                    let is_sorted = is_here && node.is_some_and(|node| node.part == Part::Sorted);
                    if is_here != *has_node || is_sorted != *has_node {
                        return Err(format!("a place of level {level} is not as noted: {place}"));
                    }
                }
                let users = self.sorted.areas.iter().flat_map(|area| area.bases[at]);
                let users = users.filter(|base| base.region == region.id).count();
                if users != region.areas as usize || users == 0 {
                    return Err(format!("a region of level {level} has {users} areas"));
                }
            }
        }
        if empty != self.sorted.unused_frames {
            let counted = self.sorted.unused_frames;
            return Err(format!("{empty} places have no node, not {counted}"));
        }
        Ok(())
    }
}
