//! Naive models of structures that designs have in addition to TLBs of pages.

use octavo_os::vmas::Vmas;
use octavo_types::PageNumber;

use super::pages::Range;

/// The range TLB of Redundant Memory Mappings: 32 ranges, most recently used last; and the walker of the
/// range table.
#[derive(Default)]
pub struct RangeTlb {
    entries: Vec<TaggedRange>,
    pub hits: u64,
    pub misses: u64,
    pub walks: u64,
    pub reads: u64,
}

#[derive(Clone, Copy)]
struct TaggedRange {
    start: u64,
    end: u64,
    write: bool,
}

impl RangeTlb {
    /// Looks a page up. Returns whether a range permits the access.
    pub fn permits(&mut self, page: u64, stores: bool) -> bool {
        let held = self.entries.iter().position(|range| (range.start..range.end).contains(&page));
        let Some(at) = held else {
            self.misses += 1;
            return false;
        };
        self.hits += 1;
        let range = self.entries.remove(at);
        self.entries.push(range);
        !stores || range.write
    }

    /// Walks the range table, which reads `lines` lines, and fills the range that was found unless it is a single page.
    pub fn walk(&mut self, (start, end, _, write): Range, lines: u64) {
        self.walks += 1;
        self.reads += lines;
        if end - start > 1 {
            self.invalidate(start, end);
            if self.entries.len() == 32 {
                self.entries.remove(0);
            }
            self.entries.push(TaggedRange { start, end, write });
        }
    }

    pub fn invalidate(&mut self, start: u64, end: u64) {
        self.entries.retain(|range| range.end <= start || end <= range.start);
    }
}

/// The registers of a direct segment.
#[derive(Default)]
pub struct SegmentRegisters {
    /// First page, end, first frame, whether stores are allowed.
    segment: Option<(u64, u64, u64, bool)>,
    pub hits: u64,
    pub misses: u64,
    pub set: u64,
}

impl SegmentRegisters {
    /// The frame of a page, if the segment permits the access.
    pub fn look_up(&mut self, page: u64, stores: bool) -> Option<u64> {
        if let Some((start, end, frame, write)) = self.segment
            && (start..end).contains(&page)
            && (write || !stores)
        {
            self.hits += 1;
            return Some(frame + page - start);
        }
        self.misses += 1;
        None
    }

    /// Replaces the segment by the range of a walked page, if the range is of anonymous memory and longer.
    pub fn walked(&mut self, vmas: &Vmas, range: Range, page: u64) {
        let Some((mapping, vma)) = vmas.find(PageNumber::new(page)) else { return };
        let start = range.0.max(mapping.start);
        let end = range.1.min(mapping.end);
        let longest = self.segment.map_or(0, |(start, end, ..)| end - start);
        if vma.is_anonymous() && end - start > longest {
            self.segment = Some((start, end, range.2 + (start - range.0), range.3));
            self.set += 1;
        }
    }

    pub fn invalidate(&mut self, start: u64, end: u64) {
        self.segment = self.segment.filter(|segment| segment.1 <= start || end <= segment.0);
    }
}
