//! Operations on whole composite (with holes, or gapped) pages: protect, release, move, share and copy.

use octavo_types::{PageNumber, PageSize, Protection};
use rustc_hash::FxHashSet;

use super::holes::table_used;
use super::invalidations::GatheredInvalidation;
use super::ranges::contains;
use super::{Memory, ProcessId, around, base_pages};
use crate::frames::OutOfMemory;
use crate::page_table::{Holes, Leaf, Used};
use crate::vmas::{Pages, Vma};

/// Composite pages that an operation has handled as a whole, by their first base pages.
#[derive(Default)]
pub(super) struct HandledPages(FxHashSet<u64>);

impl HandledPages {
    /// Whether one of them holds a base page.
    pub fn contains(&self, page: PageNumber) -> bool {
        !self.0.is_empty() && self.0.contains(&around(page, PageSize::HUGE).start)
    }
}

impl Memory {
    /// Makes all parts of the composite page around a base page writable, if all its mappings have these
    /// permissions and no part is shared. Returns whether it did.
    pub(super) fn make_parts_writable(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        rights: Protection,
    ) -> bool {
        let space = self.process(process);
        if !space.table.is_part(page) {
            return false;
        }
        let pages = around(page, PageSize::HUGE);
        let mappings = space.vmas.within(&pages);
        let is_alike = mappings.iter().all(|(_, vma)| vma.rights == rights);
        if mappings.is_empty() || !is_alike || self.has_shared_parts(process, &pages) {
            return false;
        }
        self.process_mut(process).table.protect_parts(page, rights);
        self.counters.entries_written += 1;
        true
    }

    fn has_shared_parts(&self, process: ProcessId, pages: &Pages) -> bool {
        let table = &self.process(process).table;
        let leaves = self.leaves(process, pages);
        leaves.iter().any(|leaf| table.is_part(leaf.page) && self.is_shared(leaf))
    }

    /// Gives the parts of composite pages in a range the permissions of their mapping.
    pub(super) fn protect_composite(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        vma: &Vma,
        changed: &mut GatheredInvalidation,
    ) -> HandledPages {
        let mut done = HandledPages::default();
        for (region, _) in self.composite_in(process, pages) {
            let inside = around(region.page, PageSize::HUGE);
            if !contains(pages, &inside) {
                continue;
            }
            let write = vma.rights.write && !self.has_shared_parts(process, &inside);
            let rights = Protection { write, ..vma.rights };
            if rights != region.rights {
                self.process_mut(process).table.protect_parts(region.page, rights);
                self.counters.entries_written += 1;
                changed.add(inside.clone());
            }
            done.0.insert(inside.start);
        }
        done
    }

    /// Unmaps the composite pages inside a range, and drops their frames.
    pub(super) fn release_composite(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        changed: &mut GatheredInvalidation,
    ) {
        for (region, _) in self.composite_in(process, pages) {
            let inside = around(region.page, PageSize::HUGE);
            if contains(pages, &inside) {
                let leaves = self.leaves(process, &inside);
                let space =
                    self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
                space.table.unmap_composite(region.page, &mut self.frames);
                leaves.iter().for_each(|leaf| self.drop_frames(leaf));
                changed.add(inside);
            }
        }
    }

    /// Moves the composite pages inside a range by a number of base pages, if that is a multiple of their
    /// size and the target has shadow nodes. The caller moves other pages by base pages.
    pub(super) fn move_composite(
        &mut self,
        process: ProcessId,
        from: &Pages,
        moved: u64,
        changed: &mut GatheredInvalidation,
    ) {
        if !moved.is_multiple_of(base_pages(PageSize::HUGE)) {
            return;
        }
        for (region, holes) in self.composite_in(process, from) {
            let inside = around(region.page, PageSize::HUGE);
            if !contains(from, &inside) {
                continue;
            }
            let to = |page: PageNumber| PageNumber::new(page.raw().wrapping_add(moved));
            let leaves = self.leaves(process, &inside);
            let table = &self.process(process).table;
            let used = match table.gapped(region.page) {
                Some(gapped) => gapped.used,
                None => {
                    table.page_with_holes(region.page).map(|page| page.used).unwrap_or_default()
                }
            };
            let target = Leaf { page: to(region.page), ..region };
            let made = self.map_like(process, (process, &region), &holes, &target, used);
            if !made.unwrap_or(false) {
                continue;
            }
            let is_hole = |leaf: &&Leaf| holes.contains(leaf.page.raw() - inside.start);
            for leaf in leaves.iter().filter(is_hole) {
                let used = table_used(self, process, leaf.page);
                let target = Leaf { page: to(leaf.page), ..*leaf };
                self.map_used(process, &target, leaf.rights, used).expect("its tables are there");
            }
            let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
            space.table.unmap_composite(region.page, &mut self.frames);
            changed.add(inside);
        }
    }

    /// Prepares a fork: makes the parts of composite pages read-only, and adds a reference to each.
    pub(super) fn share_composite(
        &mut self,
        parent: ProcessId,
        region: &Leaf,
        holes: &Holes,
        changed: &mut GatheredInvalidation,
    ) {
        if region.rights.write {
            let rights = Protection { write: false, ..region.rights };
            self.process_mut(parent).table.protect_parts(region.page, rights);
            self.counters.entries_written += 1;
            changed.add(around(region.page, PageSize::HUGE));
        }
        for leaf in self.parts(parent, region, holes) {
            self.references.add(leaf.frame);
        }
    }

    /// The parts of a composite page, as base pages.
    fn parts(&self, process: ProcessId, region: &Leaf, holes: &Holes) -> Vec<Leaf> {
        let table = &self.process(process).table;
        let parts = (0..base_pages(PageSize::HUGE)).filter(|at| !holes.contains(*at));
        let pages = parts.map(|at| PageNumber::new(region.page.raw() + at));
        pages.map(|page| table.leaf(page).expect("a part is mapped")).collect()
    }

    /// Maps a composite page like another one, in the same frames. Returns whether it did.
    fn map_like(
        &mut self,
        process: ProcessId,
        (like_process, like): (ProcessId, &Leaf),
        holes: &Holes,
        page: &Leaf,
        used: Used,
    ) -> Result<bool, OutOfMemory> {
        let has_gaps = self.process(like_process).table.gapped(like.page).is_some();
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let Leaf { page, frame, rights, .. } = *page;
        let is_made = if has_gaps {
            let blocks = self.frames.chunk_bitmaps().of(frame).expect("its chunk has a page");
            space.table.map_gapped(page, (frame, blocks), rights, used, &mut self.frames)?
        } else {
            space.table.map_with_holes(page, (frame, rights), used, holes, &mut self.frames)?
        };
        // A page with holes also has an entry in the shadow node.
        let entries = if has_gaps { 1 } else { 2 };
        self.counters.entries_written += if is_made { entries } else { 0 };
        Ok(is_made)
    }

    /// Maps a composite page in a forked process, which has its holes as base pages already. Without a shadow
    /// node it gets base pages.
    pub(super) fn copy_composite(
        &mut self,
        (parent, child): (ProcessId, ProcessId),
        region: &Leaf,
        holes: &Holes,
    ) {
        let rights = Protection { write: false, ..region.rights };
        let parts = self.parts(parent, region, holes);
        let dirty = parts.first().is_some_and(|part| table_used(self, parent, part.page).1);
        let used = (false, dirty);
        let copy = Leaf { rights, ..*region };
        let made = self.map_like(child, (parent, region), holes, &copy, used);
        if made.expect("frames were ensured") {
            return;
        }
        for part in parts {
            self.map_used(child, &part, rights, used).expect("frames were ensured");
        }
    }
}
