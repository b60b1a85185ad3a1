//! Pages with holes: 2 MiB pages with holes of 4 KiB, which are mapped elsewhere, have other permissions, or are
//! unmapped.
//!
//! A node of level 2 has a *shadow node* in the frame behind its own. The level-2 entry of a page with holes
//! holds the frame of the region and a filter of eight bits for the parts with holes; the entry in the shadow
//! node points to a node of level 1 with the entries of the holes. There, a base page that is not a hole has an
//! empty entry, and a hole without a page has a non-present entry marked as a hole.
//!
//! Queries see its parts as base pages: a part is a 4 KiB page at its place in the region, a hole a page
//! wherever it is mapped. Mapping or unmapping a part punches a hole. A page mapped at its place by an entry
//! of its own stays a hole until it is [patched](PageTable::patch).
//!
//! A node allocated without a pair of frames has no shadow node, and none of its entries can become a
//! page with holes.

mod change;

use octavo_types::{FrameNumber, PageNumber, PageSize, PhysAddr};

use super::entry::Entry;
use super::{INDEX_BITS, Leaf, PageTable, ROOT, Step, Used, Walk, index, leaf};
use crate::frames::{Frames, Order};

/// The page-table level of pages with holes.
pub(super) const LEVEL: u8 = 2;

/// The node and index of an entry of level 2.
pub(super) type EntryIndex = (u32, usize);

/// State of pages with holes outside their entries.
#[derive(Default)]
pub(super) struct HoleState {
    /// Number of pages with holes.
    pub pages: u64,
    /// Number of nodes of their level, with or without shadow node.
    nodes: u64,
    shadows: u64,
    /// Base pages whose hole bit has changed, and whether the hole was punched (else patched).
    changed: Vec<(PageNumber, bool)>,
}

/// The holes among the 512 base pages of a page with holes, one bit each, the first in the lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Holes(pub [u64; 8]);

impl Holes {
    /// Whether the base page at a place (from 0) is a hole.
    pub fn contains(&self, place: u64) -> bool {
        self.0[(place / 64) as usize] >> (place % 64) & 1 != 0
    }

    /// Makes the base page at a place (from 0) a hole.
    pub fn insert(&mut self, place: u64) {
        self.0[(place / 64) as usize] |= 1 << (place % 64);
    }

    /// The number of holes.
    pub fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }
}

/// The result of a walk to a page with holes, besides the requested base page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageWithHoles {
    /// The region as a 2 MiB page, which holds all base pages but the holes.
    pub region: Leaf,
    /// The accessed and dirty bits of the region's entry.
    pub used: Used,
    /// The [filter](super::HoleFilter) of its entry.
    pub filter: u8,
    /// The entries in the shadow node and in the node of holes, which a walk to a hole reads.
    pub hole_steps: [Step; 2],
    /// Whether the base page is a hole of this address space.
    pub is_hole: bool,
}

impl PageTable {
    /// The number of pages with holes.
    pub fn pages_with_holes(&self) -> u64 {
        self.holes.pages
    }

    /// The number of shadow nodes, one frame each.
    pub fn shadows(&self) -> u64 {
        self.holes.shadows
    }

    /// Maximum number of frames that a copy of this page table needs.
    pub fn frames_of_copy(&self) -> u64 {
        let of_shadows = if self.format.holes.is_some() { self.holes.nodes } else { 0 };
        self.hardware.as_ref().map_or(self.count_nodes(), |table| table.frames()) + of_shadows
    }

    /// Whether the 2 MiB around a base page may become a page with holes: its node has a shadow node, or can
    /// get one.
    pub fn may_have_holes(&self, page: PageNumber, frames: &Frames) -> bool {
        let mut node = &self.nodes[ROOT as usize];
        for level in (LEVEL + 1..=self.format.levels).rev() {
            match node.children[index(page, level)] {
                ROOT => {
                    let largest = frames.buddy().largest_free_order();
                    return self.format.holes.is_some() && largest > Some(Order::BASE);
                }
                child => node = &self.nodes[child as usize],
            }
        }
        node.has_shadow
    }

    /// The page with holes that holds a base page: its region as a 2 MiB page, and its holes.
    pub fn holes_of(&self, page: PageNumber) -> Option<(Leaf, Holes)> {
        let slot = self.with_holes_at(page)?;
        Some((region(page, self.entry_of(slot)), self.holes_in(self.child_of(slot))))
    }

    /// The holes of the page with this node of holes.
    fn holes_in(&self, child: usize) -> Holes {
        let mut holes = Holes::default();
        let entries = &self.nodes[child].entries;
        let is_hole = |(_, entry): &(usize, &Entry)| **entry != Entry::NONE;
        entries.iter().enumerate().filter(is_hole).for_each(|(at, _)| holes.insert(at as u64));
        holes
    }

    /// Whether a base page is a part of a gapped page, or a part (not a hole) of a page with holes.
    pub fn is_part(&self, page: PageNumber) -> bool {
        let slot = self.with_holes_at(page);
        self.gapped_at(page).is_some()
            || slot.is_some_and(|slot| {
                self.nodes[self.child_of(slot)].entries[index(page, 1)] == Entry::NONE
            })
    }

    /// Base pages whose hole bits have changed since the last call, and whether the hole was punched (else
    /// patched).
    pub fn take_hole_changes(&mut self) -> Vec<(PageNumber, bool)> {
        std::mem::take(&mut self.holes.changed)
    }

    /// Whether hole bits have changed since the last [query](Self::take_hole_changes).
    pub fn has_hole_changes(&self) -> bool {
        !self.holes.changed.is_empty()
    }

    /// Whether nodes of a level get shadow nodes, memory permitting.
    pub(super) fn has_shadows(&self, level: u8) -> bool {
        self.format.holes.is_some() && level == LEVEL
    }

    /// The number of frames of a new node, including its shadow node; none in a record that hardware does not
    /// walk.
    pub(super) fn frames_of_node(&self, level: u8) -> u64 {
        if self.hardware.is_some() {
            return 0;
        }
        1 + u64::from(self.has_shadows(level))
    }

    /// Counts a new node of a level.
    pub(super) fn count_node(&mut self, level: u8, has_shadow: bool) {
        self.holes.nodes += u64::from(level == LEVEL);
        self.holes.shadows += u64::from(has_shadow);
    }

    /// Counts a freed node of a level.
    pub(super) fn uncount_node(&mut self, level: u8, has_shadow: bool) {
        self.holes.nodes -= u64::from(level == LEVEL);
        self.holes.shadows -= u64::from(has_shadow);
    }

    /// The entry of the page with holes that holds a base page.
    pub(super) fn with_holes_at(&self, page: PageNumber) -> Option<EntryIndex> {
        if self.holes.pages == 0 {
            return None;
        }
        self.level_2_entry(page).filter(|slot| self.entry_of(*slot).has_holes())
    }

    /// The level-2 entry of a base page, if its node exists.
    pub(super) fn level_2_entry(&self, page: PageNumber) -> Option<EntryIndex> {
        if page.raw() >= self.reach_pages() {
            return None;
        }
        let mut number = ROOT;
        for level in (LEVEL + 1..=self.format.levels).rev() {
            number = self.nodes[number as usize].children[index(page, level)];
            if number == ROOT {
                return None;
            }
        }
        Some((number, index(page, LEVEL)))
    }

    /// The result of a descent that ends at a page with holes.
    pub(super) fn reach_with_holes(
        &self,
        page: PageNumber,
        slot: EntryIndex,
    ) -> Result<(u32, usize, u8), u64> {
        let (child, at) = (self.child_of(slot), index(page, 1));
        match self.nodes[child].entries[at] {
            Entry::NONE => Ok((slot.0, slot.1, LEVEL)),
            Entry::HOLE => Err(page.raw() + 1),
            _ => Ok((child as u32, at, 1)),
        }
    }

    /// The page with holes that holds a base page, as a walk finds it, if any.
    pub fn page_with_holes(&self, page: PageNumber) -> Option<PageWithHoles> {
        let slot = self.with_holes_at(page)?;
        let (whole, at) = (self.entry_of(slot), index(page, 1));
        let holes = &self.nodes[self.child_of(slot)];
        let shadow_entry =
            self.nodes[slot.0 as usize].entry_addr(slot.1).raw() + PageSize::BASE.bytes();
        let shadow = Step { at: PhysAddr::new(shadow_entry), level: LEVEL };
        Some(PageWithHoles {
            region: region(page, whole),
            used: whole.used(),
            filter: whole.filter(),
            hole_steps: [shadow, Step { at: holes.entry_addr(at), level: 1 }],
            is_hole: holes.entries[at] != Entry::NONE,
        })
    }

    /// Adds the base page to a walk that has ended at the entry of a page with holes.
    #[inline(never)]
    pub(super) fn walk_with_holes(&self, page: PageNumber, slot: EntryIndex, walk: &mut Walk) {
        walk.is_composite = true;
        let hole = self.nodes[self.child_of(slot)].entries[index(page, 1)];
        let is_part = hole == Entry::NONE;
        let (entry, level) = if is_part { (self.entry_of(slot), LEVEL) } else { (hole, 1) };
        if entry.is_present() {
            (walk.leaf, walk.used) = (Some(leaf(page, entry, level)), entry.used());
        }
    }

    /// The accessed and dirty bits of a part of a page with holes that lies in `frame`; `None` for a hole.
    pub(super) fn part_used(
        &self,
        slot: EntryIndex,
        place: usize,
        frame: FrameNumber,
    ) -> Option<Used> {
        let whole = self.entry_of(slot);
        let is_part = self.nodes[self.child_of(slot)].entries[place] == Entry::NONE;
        let is_in_place = whole.frame(LEVEL).plus(place as u64) == frame;
        is_part.then(|| if is_in_place { whole.used() } else { (false, false) })
    }

    /// Adds the accessed and dirty bits of holes that lie in their places in the region from `frame` on.
    pub(super) fn used_of_holes(&self, child: u32, frame: FrameNumber, used: &mut Used) {
        for (at, entry) in self.nodes[child as usize].entries.iter().enumerate() {
            if entry.is_present() && entry.frame(1) == frame.plus(at as u64) {
                let (accessed, dirty) = entry.used();
                *used = (used.0 | accessed, used.1 | dirty);
            }
        }
    }

    pub(super) fn entry_of(&self, slot: EntryIndex) -> Entry {
        self.nodes[slot.0 as usize].entries[slot.1]
    }

    pub(super) fn set_entry(&mut self, slot: EntryIndex, entry: Entry) {
        self.nodes[slot.0 as usize].set(slot.1, entry);
    }

    /// The node of the holes of a page with holes, or of the parts of a gapped page.
    pub(super) fn child_of(&self, slot: EntryIndex) -> usize {
        self.nodes[slot.0 as usize].children[slot.1] as usize
    }
}

/// The region of a page with holes as a 2 MiB page.
fn region(page: PageNumber, entry: Entry) -> Leaf {
    let first = PageNumber::new(page.raw() >> INDEX_BITS << INDEX_BITS);
    let (frame, rights) = (entry.frame(LEVEL), entry.rights());
    Leaf { page: first, frame, size: PageSize::HUGE, rights }
}
