//! Ranges: runs of pages that lie in memory as they lie in the address space, with the same rights,
//! however long and wherever they begin. Redundant Memory Mappings (Karakostas et al., ISCA 2015, as
//! paper 003, Section V, describes it) translates by them beside the page table.
//!
//! They are kept by the page table itself, wherever it maps or unmaps, so that they are right
//! whatever happens to it, and each is as long as it can be.

use octavo_types::{FrameNumber, PageNumber, Protection};
use rangemap::RangeMap;

use crate::vmas::Pages;

/// A run of base pages: its begin, its end, where it lies, and its rights, as an entry of a range
/// table has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Range {
    /// Which pages.
    pub pages: Pages,
    /// Where the first of them lies; the others follow.
    pub frame: FrameNumber,
    /// What they may be used for.
    pub rights: Protection,
}

/// What all pages of a range have in common. Neighbours that have the same are one range.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct RangeAttributes {
    /// From the number of a page to that of its frame, wrapping.
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
        self.map.get_key_value(&page.raw()).map(|(pages, way)| range(pages, way))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// All ranges, in order.
    pub fn iter(&self) -> impl Iterator<Item = Range> + '_ {
        self.map.iter().map(|(pages, way)| range(pages, way))
    }

    /// These pages lie at `frame` and after it now.
    pub(super) fn set(&mut self, pages: Pages, frame: FrameNumber, rights: Protection) {
        let offset = frame.raw().wrapping_sub(pages.start);
        self.map.insert(pages, RangeAttributes { offset, rights });
    }

    /// These pages lie nowhere any more.
    pub(super) fn clear(&mut self, pages: Pages) {
        self.map.remove(pages);
    }
}

fn range(pages: &Pages, way: &RangeAttributes) -> Range {
    let frame = FrameNumber::new(pages.start.wrapping_add(way.offset));
    Range { pages: pages.clone(), frame, rights: way.rights }
}
