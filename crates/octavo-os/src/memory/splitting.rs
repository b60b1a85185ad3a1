//! Splitting of pages into smaller ones.

use octavo_types::{PageNumber, PageSize};

use super::{Memory, around, base_pages};
use crate::page_table::Leaf;
use crate::vmas::Pages;

impl Memory {
    /// The part of a page inside a range, and the largest allowed pages of the rest.
    pub(super) fn cut(&self, leaf: &Leaf, pages: &Pages) -> (Pages, Vec<(PageNumber, PageSize)>) {
        let whole = around(leaf.page, leaf.size);
        let removed = whole.start.max(pages.start)..whole.end.min(pages.end);
        let mut kept = self.largest_in(whole.start..removed.start, leaf.size, 0);
        kept.extend(self.largest_in(removed.end..whole.end, leaf.size, 0));
        (removed, kept)
    }

    /// The largest allowed smaller pages of a page that do not straddle the ends of `kept`.
    pub(super) fn parts_of(&self, leaf: &Leaf, kept: &Pages) -> Vec<(PageNumber, PageSize)> {
        let whole = around(leaf.page, leaf.size);
        let clamped = |at: u64| at.clamp(whole.start, whole.end);
        let ends = [whole.start, clamped(kept.start), clamped(kept.end), whole.end];
        let between = ends.windows(2).map(|ends| ends[0]..ends[1]);
        between.flat_map(|pages| self.largest_in(pages, leaf.size, 0)).collect()
    }

    /// The pages that map a page's frames after a move by `moved` base pages, at their new addresses.
    pub(super) fn moved_parts(&self, leaf: &Leaf, moved: u64) -> Vec<(PageNumber, PageSize)> {
        let whole = around(leaf.page, leaf.size);
        if moved.is_multiple_of(base_pages(leaf.size)) {
            return vec![(PageNumber::new(whole.start.wrapping_add(moved)), leaf.size)];
        }
        self.largest_in(whole, leaf.size, moved)
    }

    /// The largest allowed pages below `limit` of a range whose frames are offset by `moved`.
    fn largest_in(&self, pages: Pages, limit: PageSize, moved: u64) -> Vec<(PageNumber, PageSize)> {
        let (mut parts, mut at) = (Vec::new(), pages.start);
        while at < pages.end {
            let to = at.wrapping_add(moved);
            let fits = |size: &PageSize| {
                let count = base_pages(*size);
                *size < limit && (at | to).is_multiple_of(count) && at + count <= pages.end
            };
            let size = self.sizes.iter().rev().copied().find(fits).unwrap_or(PageSize::BASE);
            parts.push((PageNumber::new(to), size));
            at += base_pages(size);
        }
        parts
    }
}
