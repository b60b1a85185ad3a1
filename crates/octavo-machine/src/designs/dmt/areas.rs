//! Parts of an address space with translation entry areas, and the mappings from which they come.

use std::ops::Range;

use octavo_os::vmas::{Pages, Vmas};
use octavo_types::{FrameNumber, PageNumber, PhysAddr};

use super::nodes::{NodeKey, Nodes, entry_at, key};
use super::settings::DmtSettings;

/// The levels whose nodes may be in entry areas: 1 for pages of 4 KiB, and 2 for those of 2 MiB.
pub const LEVELS: usize = 2;

/// The content of a register: a part of the address space, and where the entries of its pages lie.
pub struct Part {
    pub pages: Pages,
    /// By level. Each is made with the first page of its size in the part.
    pub teas: [Option<Tea>; LEVELS],
}

/// A translation entry area (TEA): contiguous nodes of a level, by number.
#[derive(Clone)]
pub struct Tea {
    pub nodes: Range<u64>,
    /// The frame reserved for the first of several nodes; `None` if the area is a single node, wherever it is.
    pub start: Option<FrameNumber>,
}

/// The mappings of a process that may have entry areas.
#[derive(Default)]
pub struct LargeMappings(Vec<Pages>);

pub fn overlap(one: &Pages, other: &Pages) -> bool {
    one.start < other.end && other.start < one.end
}

/// The smallest range that contains both.
pub fn hull(one: &Range<u64>, other: &Range<u64>) -> Range<u64> {
    one.start.min(other.start)..one.end.max(other.end)
}

/// The number of a range's elements.
pub fn len(range: &Range<u64>) -> u64 {
    range.end - range.start
}

/// The numbers of the nodes of a level that map these pages.
pub fn nodes_of(pages: &Pages, level: u8) -> Range<u64> {
    let number = |page| key(level, PageNumber::new(page)).1;
    number(pages.start)..number(pages.end - 1) + 1
}

impl Tea {
    /// The frame reserved for a node, if the area has several nodes.
    pub fn place(&self, number: u64) -> Option<FrameNumber> {
        let start = self.start.filter(|_| self.nodes.contains(&number))?;
        Some(start.plus(number - self.nodes.start))
    }

    /// The reserved frames; none if the area is a single node.
    pub fn frames(&self) -> Range<u64> {
        self.start.map_or(0..0, |start| start.raw()..start.raw() + len(&self.nodes))
    }

    /// The entry that hardware reads for a base page; `None` outside the area, or if a single node does not exist yet.
    pub fn entry(&self, level: u8, page: PageNumber, nodes: &Nodes) -> Option<PhysAddr> {
        let (_, number) = key(level, page);
        let of_single = || nodes.frame((level, number)).filter(|_| self.is_single(number));
        let frame = self.place(number).or_else(of_single)?;
        Some(entry_at(frame, level, page))
    }

    /// Whether the area is this node alone.
    pub fn is_single(&self, number: u64) -> bool {
        self.start.is_none() && self.nodes.contains(&number)
    }

    /// The nodes of the area after it has grown to contain `needed` and the node `number` outside it: at least twice as
    /// many as before, extended in the direction of that node.
    pub fn grown(&self, needed: &Range<u64>, number: u64) -> Range<u64> {
        let most = hull(&self.nodes, needed);
        let more = len(&self.nodes);
        match number < self.nodes.start {
            true => most.start.min(self.nodes.start.saturating_sub(more))..most.end,
            false => most.start..most.end.max(self.nodes.end + more),
        }
    }
}

impl Part {
    /// Whether the part and a mapping outside it occupy enough of the addresses around both to be one part. The part
    /// occupies all of its addresses, also those between the mappings of which it was merged.
    pub fn may_merge(&self, mapping: &Pages, rules: &DmtSettings) -> bool {
        let both = u128::from(len(&self.pages) + len(mapping));
        let all = u128::from(len(&hull(&self.pages, mapping)));
        both * 100 >= all * u128::from(rules.min_occupancy_percent)
    }
}

/// The part whose entry area a node is in, if any: the part that has reserved the node's frame, else the first part
/// with the node alone as its area.
pub fn owner(parts: &[Part], (level, number): NodeKey, frame: FrameNumber) -> Option<usize> {
    let teas = || {
        let of_level = |part: &Part| part.teas[usize::from(level) - 1].clone();
        parts.iter().map(of_level).enumerate()
    };
    let by = |is_owner: &dyn Fn(&Tea) -> bool| {
        teas().find(|(_, tea)| tea.as_ref().is_some_and(is_owner)).map(|(at, _)| at)
    };
    by(&|tea| tea.frames().contains(&frame.raw())).or_else(|| by(&|tea| tea.is_single(number)))
}

impl LargeMappings {
    /// The mapping that holds a base page.
    pub fn find(&self, page: PageNumber) -> Option<&Pages> {
        self.0.iter().find(|pages| pages.contains(&page.raw()))
    }

    /// Updates the mappings in a range and beside it.
    pub fn update(&mut self, pages: &Pages, vmas: &Vmas, min_pages: u64) {
        let ends =
            [pages.start.saturating_sub(1), pages.start, pages.end.saturating_sub(1), pages.end];
        let touched = ends.into_iter().filter_map(|page| vmas.find(PageNumber::new(page)));
        let changed = touched.fold(pages.clone(), |all, (mapping, _)| hull(&all, &mapping));
        let known = self.0.extract_if(.., |mapping| overlap(mapping, &changed));
        let all = known.fold(changed.clone(), |all, mapping| hull(&all, &mapping));
        let now = vmas.within(&all).into_iter().map(|(mapping, _)| mapping);
        self.0.extend(now.filter(|mapping| len(mapping) >= min_pages));
        self.0.sort_unstable_by_key(|mapping| mapping.start);
    }
}
