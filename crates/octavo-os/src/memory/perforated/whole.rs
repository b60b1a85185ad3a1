//! What is done to perforated pages as a whole: their parts get rights, go, and are shared at once.

use octavo_types::{PageNumber, PageSize, Protection};
use rustc_hash::FxHashSet;

use super::table_used;
use crate::memory::ranges::contains;
use crate::memory::stale::Gather;
use crate::memory::{Memory, ProcessId, around, base_pages};
use crate::page_table::{Holes, Leaf};
use crate::vmas::{Pages, Vma};

/// The perforated pages that something has been done to as a whole, by their first base pages.
#[derive(Default)]
pub(in crate::memory) struct Done(FxHashSet<u64>);

impl Done {
    /// Whether a base page is in one of them.
    pub fn contains(&self, page: PageNumber) -> bool {
        !self.0.is_empty() && self.0.contains(&around(page, PageSize::HUGE).start)
    }
}

impl Memory {
    /// Lets all parts of the perforated page around a base page that is one of them be used so, where
    /// all its mappings have these rights and nobody else has any part. Whether it did.
    pub(in crate::memory) fn open_parts(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        rights: Protection,
    ) -> bool {
        let of = self.process(process);
        if !of.table.is_part(page) {
            return false;
        }
        let pages = around(page, PageSize::HUGE);
        let mappings = of.vmas.within(&pages);
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

    /// Gives the parts of the perforated pages that lie in a range the rights of their mapping, at once.
    pub(in crate::memory) fn protect_perforated(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        vma: &Vma,
        changed: &mut Gather,
    ) -> Done {
        let mut done = Done::default();
        for (region, _) in self.perforated_in(process, pages) {
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

    /// Unmaps the perforated pages that lie in a range, and gives their frames up.
    pub(in crate::memory) fn release_perforated(
        &mut self,
        process: ProcessId,
        pages: &Pages,
        changed: &mut Gather,
    ) {
        for (region, _) in self.perforated_in(process, pages) {
            let inside = around(region.page, PageSize::HUGE);
            if contains(pages, &inside) {
                let leaves = self.leaves(process, &inside);
                let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
                of.table.unmap_perforated(region.page, &mut self.frames);
                leaves.iter().for_each(|leaf| self.drop_frames(leaf));
                changed.add(inside);
            }
        }
    }

    /// Moves the perforated pages that lie in a range by so many base pages, if that is a multiple of their
    /// size, and there are shadow nodes at the new place. The others are left to be moved by base pages.
    pub(in crate::memory) fn move_perforated(
        &mut self,
        process: ProcessId,
        from: &Pages,
        moved: u64,
        changed: &mut Gather,
    ) {
        if !moved.is_multiple_of(base_pages(PageSize::HUGE)) {
            return;
        }
        for (region, holes) in self.perforated_in(process, from) {
            let inside = around(region.page, PageSize::HUGE);
            if !contains(from, &inside) {
                continue;
            }
            let to = |page: PageNumber| PageNumber::new(page.raw().wrapping_add(moved));
            let leaves = self.leaves(process, &inside);
            let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
            let used = of.table.perforated(region.page).map(|of| of.used).unwrap_or_default();
            let lies = (region.frame, region.rights);
            let made = of.table.perforate(to(region.page), lies, used, &holes, &mut self.frames);
            if !made.unwrap_or(false) {
                continue;
            }
            self.counters.entries_written += 2;
            for leaf in leaves.iter().filter(|of| holes.contains(of.page.raw() - inside.start)) {
                let used = table_used(self, process, leaf.page);
                let there = Leaf { page: to(leaf.page), ..*leaf };
                self.map_used(process, &there, leaf.rights, used).expect("its tables are there");
            }
            let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
            of.table.unmap_perforated(region.page, &mut self.frames);
            changed.add(inside);
        }
    }

    /// A process is about to be copied: nobody stores to the parts of a perforated page any more, each
    /// of which gets a reference more.
    pub(in crate::memory) fn share_perforated(
        &mut self,
        parent: ProcessId,
        region: &Leaf,
        holes: &Holes,
        changed: &mut Gather,
    ) {
        if region.rights.write {
            let rights = Protection { write: false, ..region.rights };
            self.process_mut(parent).table.protect_parts(region.page, rights);
            self.counters.entries_written += 1;
            changed.add(around(region.page, PageSize::HUGE));
        }
        for at in (0..base_pages(PageSize::HUGE)).filter(|at| !holes.contains(*at)) {
            self.references.add(region.frame.plus(at));
        }
    }

    /// The copy of a process gets a perforated page, whose holes it has as base pages already. Where it
    /// has no shadow node, it gets base pages.
    pub(in crate::memory) fn copy_perforated(
        &mut self,
        (parent, child): (ProcessId, ProcessId),
        region: &Leaf,
        holes: &Holes,
    ) {
        let rights = Protection { write: false, ..region.rights };
        let parts = (0..base_pages(PageSize::HUGE)).filter(|at| !holes.contains(*at));
        let parts: Vec<PageNumber> =
            parts.map(|at| PageNumber::new(region.page.raw() + at)).collect();
        let dirty = parts.first().is_some_and(|part| table_used(self, parent, *part).1);
        let used = (false, dirty);
        let of = self.processes[usize::from(child.0)].as_mut().expect("it has just begun");
        let lies = (region.frame, rights);
        let made = of.table.perforate(region.page, lies, used, holes, &mut self.frames);
        if made.expect("frames were ensured") {
            self.counters.entries_written += 2;
            return;
        }
        for page in parts {
            let (frame, size) = (region.frame_of(page), PageSize::BASE);
            let leaf = Leaf { page, frame, size, rights };
            self.map_used(child, &leaf, rights, used).expect("frames were ensured");
        }
    }
}
