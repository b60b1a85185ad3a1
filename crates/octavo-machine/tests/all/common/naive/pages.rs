//! Queries of page tables, and the contiguous neighbours of a page that one walk reads.

use octavo_os::page_table::PageTable;
use octavo_types::{PageNumber, PageSize};

use super::tlb::Page;
use super::{NaiveMachine, PROCESS};

/// A range of base pages contiguous in memory: first page, end, first frame, store permission.
pub type Range = (u64, u64, u64, bool);

impl Page {
    /// The page of a table that holds a mapped base page.
    pub fn of(table: &PageTable, page: u64) -> Page {
        let leaf = table.leaf(PageNumber::new(page)).unwrap();
        let (_, dirty) = table.used(PageNumber::new(page)).unwrap();
        let first = leaf.page.raw() >> leaf.size.base_shift();
        let (frame, write) = (leaf.frame.raw(), leaf.rights.write);
        Page {
            size: leaf.size,
            first,
            count: 1,
            frame,
            write,
            dirty,
            half: false,
            filter: None,
            has_gaps: false,
            bits: 0,
            whole_size: leaf.size,
            known: 0,
        }
    }

    /// The perforated page of a table around a base page.
    pub fn of_perforated(table: &PageTable, page: u64) -> Option<Page> {
        let perforated = table.page_with_holes(PageNumber::new(page))?;
        Some(Page {
            size: PageSize::HUGE,
            first: page / 512,
            count: 1,
            frame: perforated.region.frame.raw(),
            write: perforated.region.rights.write,
            dirty: perforated.used.1,
            half: false,
            filter: Some(perforated.filter),
            has_gaps: false,
            bits: 0,
            whole_size: PageSize::HUGE,
            known: 0,
        })
    }

    /// The gapped page of a table around a base page.
    pub fn of_gapped(table: &PageTable, page: u64) -> Option<Page> {
        let gapped = table.gapped(PageNumber::new(page))?;
        Some(Page {
            size: PageSize::HUGE,
            first: page / 512,
            count: 1,
            frame: gapped.chunk.raw(),
            write: gapped.rights.write,
            dirty: gapped.used.1,
            half: false,
            filter: None,
            has_gaps: true,
            bits: 0,
            whole_size: PageSize::HUGE,
            known: 0,
        })
    }

    /// Composes this guest page with the host page that backs it: the result has the smaller size.
    pub fn through(&self, host_page: Page, page: u64) -> Page {
        let size = self.size.min(host_page.size);
        let first = page >> size.base_shift();
        let frame = host_page.frame_of(self.frame_of(first << size.base_shift()));
        let has_holes =
            size == PageSize::HUGE && (self.filter.is_some() || host_page.filter.is_some());
        let filter = self.filter.unwrap_or(0) | host_page.filter.unwrap_or(0);
        Page {
            size,
            first,
            count: 1,
            frame,
            write: self.write && host_page.write,
            dirty: self.dirty && host_page.dirty,
            half: false,
            filter: has_holes.then_some(filter),
            has_gaps: size == PageSize::HUGE && host_page.has_gaps,
            bits: 0,
            whole_size: size,
            known: 0,
        }
    }
}

impl NaiveMachine {
    pub fn own_table(&self) -> &PageTable {
        &self.os.memory().process(PROCESS).table
    }

    /// The page of the process' own table that holds a mapped base page.
    pub fn own_page(&self, page: u64) -> Page {
        Page::of(self.own_table(), page)
    }

    /// The page of a mapped base page: the smaller of the process' page and the host's, with the permissions and the
    /// dirty state that both have.
    pub fn page(&self, page: u64) -> Page {
        let own = self.own_page(page);
        let Some(host) = &self.host else { return own };
        own.through(Page::of(host.table(), own.frame_of(page)), page)
    }

    /// The page with its contiguous neighbours of equal permissions that the walk has read.
    pub fn page_and_neighbours(&self, page: u64) -> Page {
        let own = self.page(page);
        if own.size > PageSize::BASE {
            return own;
        }
        let frame = self.own_page(page).frame_of(page);
        let is_neighbour = |other: u64| {
            let in_own = self.are_alike(self.own_table(), page, other);
            let frame_of_other = (frame + other).wrapping_sub(page);
            in_own
                && self
                    .host
                    .as_ref()
                    .is_none_or(|host| self.are_alike(host.table(), frame, frame_of_other))
        };
        let (mut first, mut end) = (page, page + 1);
        while first > 0 && is_neighbour(first - 1) {
            first -= 1;
        }
        while is_neighbour(end) {
            end += 1;
        }
        Page { first, count: end - first, frame: own.frame - (page - first), ..own }
    }

    /// Whether the walk of one base page shows that another is contiguous and equal: both entries are in one line, or
    /// both pages in one larger page.
    fn are_alike(&self, table: &PageTable, page: u64, other: u64) -> bool {
        let leaf = table.leaf(PageNumber::new(page)).unwrap();
        let Some(leaf_of_other) = table.leaf(PageNumber::new(other)) else { return false };
        if leaf.size > PageSize::BASE {
            return leaf_of_other == leaf;
        }
        let entries_read = 8.min(self.line_bytes / 8);
        page / entries_read == other / entries_read
            && leaf_of_other.size == leaf.size
            && leaf_of_other.rights == leaf.rights
            && leaf_of_other.frame.raw() + page == leaf.frame.raw() + other
            && table.used(PageNumber::new(other)) == table.used(PageNumber::new(page))
    }

    /// The range that holds a base page, and the lines of range tables read for it.
    pub fn range(&self, page: u64) -> Option<(Range, u64)> {
        let own = self.own_table().ranges()?;
        let own_levels = levels(own.iter().count() as u64);
        let range = own.find(PageNumber::new(page)).unwrap();
        let (mut start, mut end) = (range.pages.start, range.pages.end);
        let frame_of = |page: u64| range.frame.raw() + (page - range.pages.start);
        let Some(host) = &self.host else {
            return Some(((start, end, frame_of(start), range.rights.write), own_levels));
        };
        let host_ranges = host.table().ranges().unwrap();
        let host_range = host_ranges.find(PageNumber::new(frame_of(page))).unwrap();
        // Page by page, for clarity.
        while end - 1 > page && !host_range.pages.contains(&frame_of(end - 1)) {
            end -= 1;
        }
        while start < page && !host_range.pages.contains(&frame_of(start)) {
            start += 1;
        }
        let frame = host_range.frame.raw() + (frame_of(start) - host_range.pages.start);
        let write = range.rights.write && host_range.rights.write;
        let host_levels = levels(host_ranges.iter().count() as u64);
        // Each line of the own table, and finally the page, is translated by the host's table.
        let lines = own_levels * (1 + host_levels) + host_levels;
        Some(((start, end, frame, write), lines))
    }
}

/// The levels of a tree of `ranges` ranges, 128 per node.
fn levels(ranges: u64) -> u64 {
    let (mut levels, mut reached) = (1, 128);
    while reached < ranges {
        levels += 1;
        reached *= 128;
    }
    levels
}
