//! Ranges: maximal runs of pages that are contiguous in memory as in the address space, with equal
//! permissions, at any alignment. Redundant Memory Mappings (Karakostas et al., ISCA 2015; as described by
//! Guvenilir and Patt, ISCA 2020, Section V) translates by ranges as well as by the page table.
//!
//! Each mapping and unmapping in the page table updates the ranges, so that both always match.

use octavo_types::{FrameNumber, PageNumber, Protection};
use rangemap::RangeMap;

use crate::vmas::Pages;

/// A range, as an entry of a range table describes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// The base pages.
    pub pages: Pages,
    /// The frame of the first page; the others follow.
    pub frame: FrameNumber,
    /// Their permissions.
    pub rights: Protection,
}

/// The common attributes of the pages of a range. Neighbours with equal attributes form one range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RangeAttributes {
    /// Frame number minus page number, wrapping.
    offset: u64,
    rights: Protection,
}

/// The ranges of an address space.
#[derive(Clone, Debug, Default)]
pub struct Ranges {
    map: RangeMap<u64, RangeAttributes>,
}

impl Ranges {
    /// The range that holds a base page.
    pub fn find(&self, page: PageNumber) -> Option<Range> {
        self.map.get_key_value(&page.raw()).map(|(pages, attributes)| range(pages, attributes))
    }

    /// The parts of all ranges that lie in `pages`.
    pub fn within(&self, pages: Pages) -> impl Iterator<Item = Pages> + '_ {
        let (start, end) = (pages.start, pages.end);
        let overlapping = self.map.overlapping(pages);
        overlapping.map(move |(range, _)| range.start.max(start)..range.end.min(end))
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.map.iter().map(|(pages, attributes)| range(pages, attributes))
    }

    /// Maps these pages contiguously from `frame` on.
    pub(super) fn set(&mut self, pages: Pages, frame: FrameNumber, rights: Protection) {
        let offset = frame.raw().wrapping_sub(pages.start);
        self.map.insert(pages, RangeAttributes { offset, rights });
    }

    /// Unmaps these pages.
    pub(super) fn clear(&mut self, pages: Pages) {
        self.map.remove(pages);
    }
}

fn range(pages: &Pages, attributes: &RangeAttributes) -> Range {
    let frame = FrameNumber::new(pages.start.wrapping_add(attributes.offset));
    Range { pages: pages.clone(), frame, rights: attributes.rights }
}
