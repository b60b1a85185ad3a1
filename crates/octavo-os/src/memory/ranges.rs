//! Operations on ranges of pages: collapse, split, move, protect, release.

use octavo_types::{PageNumber, PageSize, Protection};

use super::invalidations::GatheredInvalidation;
use super::sharing::is_shared;
use super::{Memory, ProcessId, around, base_pages};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::page_table::{Leaf, Used};
use crate::vmas::{Pages, Vma};

impl Memory {
    /// Collapses the range of a larger page into one block: copies its mapped pages, clears the rest, and
    /// maps it as one page. Mapped pages must be private. Does nothing if it is one page, or part of one,
    /// already.
    ///
    /// # Errors
    ///
    /// If there is no free block, or no frame for the page table.
    pub fn collapse(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        size: PageSize,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let pages = around(page, size);
        let first = PageNumber::new(pages.start);
        let old = self.leaves(process, &pages);
        if old.iter().any(|leaf| leaf.size >= size) {
            return Ok(());
        }
        let block = self.frames.allocate(Order::of(size), Owner::Data)?;
        let used = self.used_of(process, &old);
        let whole = Leaf { page: first, frame: block, size, rights };
        if let Err(error) = self.map_used(process, &whole, rights, used) {
            self.frames.free(block, Order::of(size));
            return Err(error);
        }
        let mut at = first;
        for leaf in &old {
            let from_at = leaf.page.raw() - at.raw();
            if from_at > 0 {
                self.zeroed(whole.frame_of(at), from_at);
            }
            self.moved(leaf.frame, whole.frame_of(leaf.page), base_pages(leaf.size));
            self.drop_frames(leaf);
            at = PageNumber::new(leaf.page.raw() + base_pages(leaf.size));
        }
        if at.raw() < pages.end {
            self.zeroed(whole.frame_of(at), pages.end - at.raw());
        }
        let mapped: u64 = old.iter().map(|leaf| base_pages(leaf.size)).sum();
        let untouched = (base_pages(size) - mapped) * PageSize::BASE.bytes();
        self.counters.bytes_mapped_untouched += untouched;
        self.counters.promotions += 1;
        if !old.is_empty() {
            self.invalidate(process, pages);
        }
        Ok(())
    }

    /// Splits a page into the largest allowed pages that do not straddle the ends of `kept`. Accessed and
    /// dirty bits are inherited.
    ///
    /// # Errors
    ///
    /// If there are no frames for the nodes of smaller pages.
    pub fn split(
        &mut self,
        process: ProcessId,
        leaf: Leaf,
        kept: &Pages,
    ) -> Result<(), OutOfMemory> {
        let parts = self.parts_of(&leaf, kept);
        self.replace(process, &leaf, &parts)
    }

    /// Splits the pages that straddle the ends of a range.
    ///
    /// # Errors
    ///
    /// If there are no frames for the nodes of smaller pages.
    pub fn split_at_ends(&mut self, process: ProcessId, pages: &Pages) -> Result<(), OutOfMemory> {
        for leaf in self.straddling(process, pages) {
            if !self.punch_whole(process, &leaf) {
                self.split(process, leaf, pages)?;
            }
        }
        Ok(())
    }

    /// Moves the pages of a range to another range, entry by entry; excess pages stay. Pages whose alignment
    /// does not fit the new place are split. The target is unmapped, and the ranges do not overlap.
    ///
    /// # Errors
    ///
    /// If there are no frames for the page table of the new place: no page has moved.
    pub fn move_pages(
        &mut self,
        process: ProcessId,
        from: &Pages,
        to: &Pages,
    ) -> Result<(), OutOfMemory> {
        self.ensure_movable(process, from, to)?;
        let from = fitting(from, to);
        let moved = to.start.wrapping_sub(from.start);
        let mut changed = GatheredInvalidation::default();
        self.move_composite(process, &from, moved, &mut changed);
        for leaf in self.leaves(process, &from) {
            let parts = self.moved_parts(&leaf, moved);
            self.counters.splits += u64::from(parts.len() > 1);
            let used = self.process(process).table.used(leaf.page).unwrap_or_default();
            for (page, size) in parts {
                let frame = leaf.frame.plus(page.raw().wrapping_sub(moved) - leaf.page.raw());
                let part = Leaf { page, frame, size, rights: leaf.rights };
                self.map_used(process, &part, leaf.rights, used).expect("frames were ensured");
            }
            self.unmap(process, leaf.page);
            changed.add(around(leaf.page, leaf.size));
        }
        self.invalidate_gathered(process, changed);
        Ok(())
    }

    /// Ensures that [`Memory::move_pages`] succeeds, even after the target has been released. Splits pages
    /// that straddle a range.
    ///
    /// # Errors
    ///
    /// If there are no frames for it, or for splitting.
    pub fn ensure_movable(
        &mut self,
        process: ProcessId,
        from: &Pages,
        to: &Pages,
    ) -> Result<(), OutOfMemory> {
        let from = fitting(from, to);
        let moved = to.start.wrapping_sub(from.start);
        self.split_at_ends(process, &from)?;
        self.split_at_ends(process, to)?;
        let leaves = self.leaves(process, &from);
        let parts = leaves.iter().flat_map(|leaf| self.moved_parts(leaf, moved));
        // Nodes freed by a release are available again.
        let nodes = self.process(process).table.nodes_for(parts);
        self.frames.ensure_free(nodes)
    }

    /// Gives the pages of each range the permissions of their mapping, in one shootdown; shared pages stay
    /// read-only.
    ///
    /// # Errors
    ///
    /// If there are no frames for the nodes of smaller pages: permissions are unchanged.
    pub fn protect_parts(
        &mut self,
        process: ProcessId,
        parts: &[(Pages, Vma)],
    ) -> Result<(), OutOfMemory> {
        for (pages, _) in parts {
            self.split_at_ends(process, pages)?;
        }
        let mut changed = GatheredInvalidation::default();
        for (pages, vma) in parts {
            let done = self.protect_composite(process, pages, vma, &mut changed);
            for leaf in self.leaves(process, pages) {
                if done.contains(leaf.page) && self.process(process).table.is_part(leaf.page) {
                    continue;
                }
                let write = vma.rights.write && (is_shared(vma) || !self.is_shared(&leaf));
                let rights = Protection { write, ..vma.rights };
                if rights != leaf.rights {
                    self.map(process, leaf.page, leaf.size, leaf.frame, rights)
                        .expect("it is mapped there");
                    changed.add(around(leaf.page, leaf.size));
                }
            }
        }
        for (pages, _) in parts {
            self.patch_holes(process, pages);
        }
        self.invalidate_gathered(process, changed);
        Ok(())
    }

    /// Unmaps a range and frees its unshared frames. Pages that straddle it are split.
    ///
    /// # Errors
    ///
    /// If there are no frames for the nodes of smaller pages, even counting those that the range frees:
    /// nothing has changed.
    pub fn release(&mut self, process: ProcessId, pages: &Pages) -> Result<(), OutOfMemory> {
        self.ensure_releasable(process, pages)?;
        let mut changed = GatheredInvalidation::default();
        self.release_composite(process, pages, &mut changed);
        // Pages inside the range first: their frames can become the nodes.
        let is_inside = |leaf: &Leaf| contains(pages, &around(leaf.page, leaf.size));
        let leaves = self.leaves(process, pages);
        for leaf in leaves.iter().filter(|leaf| is_inside(leaf)) {
            // The split and the unmapping are one shootdown.
            if let Some(gapped) = self.process(process).table.gapped(leaf.page) {
                changed.add(around(gapped.page, PageSize::HUGE));
            }
            self.unmap(process, leaf.page);
            self.drop_frames(leaf);
            changed.add(around(leaf.page, leaf.size));
        }
        for leaf in leaves.iter().filter(|leaf| !is_inside(leaf)) {
            let (gone, kept) = self.cut(leaf, pages);
            let first = leaf.frame_of(PageNumber::new(gone.start));
            self.drop_range(first, gone.end - gone.start);
            self.replace(process, leaf, &kept).expect("frames were ensured");
        }
        self.invalidate_gathered(process, changed);
        Ok(())
    }

    /// Ensures that [`Memory::release`] succeeds.
    ///
    /// # Errors
    ///
    /// As [`Memory::release`].
    pub fn ensure_releasable(
        &mut self,
        process: ProcessId,
        pages: &Pages,
    ) -> Result<(), OutOfMemory> {
        for leaf in self.straddling(process, pages) {
            self.punch_whole(process, &leaf);
        }
        let table = &self.process(process).table;
        let reaching = self.straddling(process, pages);
        let nodes: u64 = reaching.iter().map(|leaf| table.nodes_for(self.cut(leaf, pages).1)).sum();
        if self.frames.ensure_free(nodes).is_ok() {
            return Ok(());
        }
        let mut freed = 0;
        for leaf in self.leaves(process, pages) {
            let gone = self.cut(&leaf, pages).0;
            let frames = gone.map(|page| leaf.frame_of(PageNumber::new(page)));
            freed += frames.filter(|frame| !self.is_frame_shared(*frame)).count() as u64;
        }
        self.frames.ensure_free(nodes.saturating_sub(freed))
    }

    /// The pages that straddle the ends of a range: at most one per end.
    fn straddling(&self, process: ProcessId, pages: &Pages) -> Vec<Leaf> {
        let table = &self.process(process).table;
        let end = pages.end.min(table.reach_pages());
        let mut found = Vec::new();
        for at in [pages.start, end.saturating_sub(1)] {
            let leaf = (pages.start < end).then(|| table.leaf(PageNumber::new(at))).flatten();
            let reaches = |leaf: &Leaf| !contains(pages, &around(leaf.page, leaf.size));
            found.extend(leaf.filter(|leaf| reaches(leaf) && found.last() != Some(leaf)));
        }
        found
    }

    /// Replaces a page by smaller ones: a split.
    fn replace(
        &mut self,
        process: ProcessId,
        leaf: &Leaf,
        parts: &[(PageNumber, PageSize)],
    ) -> Result<(), OutOfMemory> {
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let written = of.table.replace(leaf.page, parts, &mut self.frames)?;
        self.counters.entries_written += written.entries;
        self.counters.splits += 1;
        self.invalidate(process, around(leaf.page, leaf.size));
        Ok(())
    }

    /// The *or* of the accessed and dirty bits of these pages.
    pub(super) fn used_of(&self, process: ProcessId, leaves: &[Leaf]) -> Used {
        let table = &self.process(process).table;
        let used = leaves.iter().filter_map(|leaf| table.used(leaf.page));
        used.fold((false, false), |all, one| (all.0 | one.0, all.1 | one.1))
    }

    /// As [`Memory::map`], with these accessed and dirty bits.
    pub(super) fn map_used(
        &mut self,
        process: ProcessId,
        at: &Leaf,
        rights: Protection,
        used: Used,
    ) -> Result<(), OutOfMemory> {
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let Leaf { page, size, frame, .. } = *at;
        let written = of.table.map_used(page, size, frame, rights, used, &mut self.frames)?;
        self.counters.entries_written += written.entries;
        Ok(())
    }

    pub(super) fn unmap(&mut self, process: ProcessId, page: PageNumber) {
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        of.table.unmap(page, &mut self.frames);
    }
}

/// The part of a range that fits into another.
fn fitting(from: &Pages, to: &Pages) -> Pages {
    from.start..from.end.min(from.start + (to.end - to.start))
}

pub(super) fn contains(pages: &Pages, part: &Pages) -> bool {
    pages.start <= part.start && part.end <= pages.end
}
