//! Perforated pages (paper 004, Sections IV-E and VI): made, patched, made whole and split, which is
//! always asked for; and what is done to them at once that is done to base pages one by one elsewhere.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use rustc_hash::{FxHashMap, FxHashSet};

use super::ranges::contains;
use super::stale::Gather;
use super::{EVERYTHING, Memory, ProcessId, around, base_pages};
use crate::frames::{Order, OutOfMemory};
use crate::page_table::{Holes, Leaf};
use crate::vmas::{Pages, Vma};

/// The perforated pages that something has been done to as a whole, by their first base pages.
#[derive(Default)]
pub(super) struct Done(FxHashSet<u64>);

impl Done {
    /// Whether a base page is in one of them.
    pub fn contains(&self, page: PageNumber) -> bool {
        !self.0.is_empty() && self.0.contains(&around(page, PageSize::HUGE).start)
    }
}

impl Memory {
    /// The perforated pages that lie in a range or reach into it: their regions, as pages of 2 MiB, and
    /// their holes.
    pub fn perforated_in(&self, process: ProcessId, pages: &Pages) -> Vec<(Leaf, Holes)> {
        let table = &self.process(process).table;
        let (mut found, mut from) = (Vec::new(), pages.start);
        while found.len() < table.perforated_pages() as usize
            && let Some(leaf) = table.next(PageNumber::new(from), PageNumber::new(pages.end))
        {
            from = leaf.page.raw() + base_pages(leaf.size);
            if let Some(perforation) = table.perforation(leaf.page) {
                from = perforation.0.page.raw() + base_pages(PageSize::HUGE);
                found.push(perforation);
            }
        }
        found
    }

    /// How many perforated pages all processes have mapped.
    pub fn perforated_pages(&self) -> u64 {
        self.processes.iter().flatten().map(|of| of.table.perforated_pages()).sum()
    }

    /// Makes a perforated page of the 2 MiB around a base page. All but the holes lies in the region
    /// from `frame` on, whose other frames the caller has allocated as data: base pages that are mapped
    /// there move to their places, the rest is cleared. In holes, pages that are mapped stay. Everything
    /// mapped is the process' own. Returns whether there is one now: where there is no shadow node it is
    /// not, and nothing has changed.
    ///
    /// # Errors
    /// Where there are no frames for its page table: nothing has changed then.
    ///
    /// # Panics
    /// Where a larger page is in the way.
    pub fn perforate(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        frame: FrameNumber,
        holes: &Holes,
        rights: Protection,
    ) -> Result<bool, OutOfMemory> {
        let pages = around(page, PageSize::HUGE);
        let in_hole = |leaf: &Leaf| holes.contains(leaf.page.raw() - pages.start);
        let mut old = self.leaves(process, &pages);
        let had_any = !old.is_empty();
        old.retain(|leaf| !in_hole(leaf));
        let table = &self.process(process).table;
        let used = old.iter().filter_map(|leaf| table.used(leaf.page));
        let used = used.fold((false, false), |all, one| (all.0 | one.0, all.1 | one.1));
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        if !of.table.perforate(page, (frame, rights), used, holes, &mut self.frames)? {
            return Ok(false);
        }
        self.counters.perforations += 1;
        self.counters.entries_written += 2 + u64::from(holes.count());
        let moved: FxHashMap<u64, FrameNumber> =
            old.iter().map(|leaf| (leaf.page.raw() - pages.start, leaf.frame)).collect();
        for at in (0..pages.end - pages.start).filter(|at| !holes.contains(*at)) {
            match moved.get(&at) {
                Some(from) => self.copied(*from, frame.plus(at), 1),
                None => self.zeroed(frame.plus(at), 1),
            }
        }
        old.iter().for_each(|leaf| self.drop_frames(leaf));
        if had_any {
            self.counters.promotions += 1;
            self.forget(process, pages);
        }
        Ok(true)
    }

    /// Makes a page of 2 MiB a perforated one without holes, where that is wanted rather than splitting
    /// it and it can be. Whether it did; no translation changes by that.
    pub(super) fn punch_whole(&mut self, process: ProcessId, leaf: &Leaf) -> bool {
        if !self.punches || leaf.size != PageSize::HUGE {
            return false;
        }
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let used = of.table.used(leaf.page).unwrap_or_default();
        let region = (leaf.frame, leaf.rights);
        let none = Holes::default();
        let made = of.table.perforate(leaf.page, region, used, &none, &mut self.frames);
        let is_made = made.unwrap_or(false);
        if is_made {
            self.counters.perforations += 1;
            self.counters.entries_written += 2;
        }
        is_made
    }

    /// Patches the holes of a range whose pages lie in their places, with the rights of the others.
    /// How many those were.
    pub fn patch_holes(&mut self, process: ProcessId, pages: &Pages) -> u64 {
        let mut patched = 0;
        for (region, holes) in self.perforated_in(process, pages) {
            let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
            let inside = around(region.page, PageSize::HUGE);
            for page in inside.start.max(pages.start)..inside.end.min(pages.end) {
                let is_hole = holes.contains(page - inside.start);
                if is_hole && of.table.patch(PageNumber::new(page), &mut self.frames) {
                    patched += 1;
                }
            }
        }
        self.counters.entries_written += patched;
        patched
    }

    /// Maps a hole at its place in the region, whose frame the caller has taken as data, and clears it: it
    /// is patched, where its rights are those of the region.
    ///
    /// # Errors
    /// Never where the page is a hole.
    ///
    /// # Panics
    /// Where there is no perforated page.
    pub fn fill_hole(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let (region, _) = self.process(process).table.perforation(page).expect("a perforated page");
        let place = region.frame_of(page);
        self.map(process, page, PageSize::BASE, place, rights)?;
        self.zeroed(place, 1);
        self.patch_holes(process, &(page.raw()..page.raw() + 1));
        Ok(())
    }

    /// Moves the page of a hole to its place in the region, where that frame is free, and patches it.
    /// Whether it did. A hole without a page stays one.
    pub fn move_into_place(&mut self, process: ProcessId, page: PageNumber) -> bool {
        let table = &self.process(process).table;
        let Some((region, holes)) = table.perforation(page) else { return false };
        let Some(leaf) = table.leaf(page) else { return false };
        let place = region.frame_of(page);
        let is_hole = holes.contains(page.raw() - region.page.raw());
        if !is_hole || leaf.rights != region.rights || self.has_others(leaf.frame) {
            return false;
        }
        if leaf.frame != place {
            if !self.frames.allocate_at(place, Order::BASE, crate::frames::Holder::Data) {
                return false;
            }
            let used = table_used(self, process, page);
            let at = Leaf { frame: place, ..leaf };
            self.map_used(process, &at, leaf.rights, used).expect("its tables are there");
            self.copied(leaf.frame, place, 1);
            self.drop_frames(&leaf);
        }
        let one = page.raw()..page.raw() + 1;
        let is_patched = self.patch_holes(process, &one) > 0;
        if is_patched || leaf.frame != place {
            self.forget(process, one);
        }
        is_patched
    }

    /// Makes the perforated page around a base page one of 2 MiB, if it has no hole left. Whether it did.
    pub fn make_whole(&mut self, process: ProcessId, page: PageNumber) -> bool {
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let is_whole = of.table.make_whole(page, &mut self.frames);
        if is_whole {
            self.counters.entries_written += 1;
            self.counters.promotions += 1;
            self.forget(process, around(page, PageSize::HUGE));
        }
        is_whole
    }

    /// Puts base pages in the place of the perforated page around a base page: a split.
    pub fn split_perforated(&mut self, process: ProcessId, page: PageNumber) {
        let of = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        if of.table.split_perforated(page, &mut self.frames) {
            self.counters.splits += 1;
            self.counters.entries_written += 1 + base_pages(PageSize::HUGE);
            self.forget(process, around(page, PageSize::HUGE));
        }
    }

    /// Lets all parts of the perforated page around a base page that is one of them be used so, where
    /// all its mappings have these rights and nobody else has any part. Whether it did.
    pub(super) fn open_parts(
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
    pub(super) fn protect_perforated(
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
    pub(super) fn release_perforated(
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

    /// A process is about to be copied: nobody stores to the parts of a perforated page any more, each
    /// of which gets a reference more.
    pub(super) fn share_perforated(
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
    pub(super) fn copy_perforated(
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

    /// Notes the bits that have changed of a process' perforated pages.
    pub(super) fn collect_changed_holes(&mut self, process: ProcessId) {
        let Some(Some(of)) = self.processes.get_mut(usize::from(process.0)) else { return };
        if !of.table.has_hole_changes() {
            return;
        }
        for (page, is_punched) in of.table.take_hole_changes() {
            self.counters.punches += u64::from(is_punched);
            self.counters.patches += u64::from(!is_punched);
            self.holes_changed.push((process, page));
        }
    }

    /// Bits that have changed, and no shootdown was due anyway: a shootdown for each run of pages.
    pub(super) fn forget_changed_holes(&mut self) {
        if !self.frames.hole_bitmaps().are_there() {
            return;
        }
        let live: Vec<ProcessId> = self.live().collect();
        live.into_iter().for_each(|process| self.collect_changed_holes(process));
        let mut changed = std::mem::take(&mut self.holes_changed);
        changed.sort_unstable();
        changed.dedup();
        let follows = |a: &(ProcessId, PageNumber), b: &(ProcessId, PageNumber)| {
            a.0 == b.0 && a.1.raw() + 1 == b.1.raw()
        };
        for run in changed.chunk_by(follows) {
            self.counters.hole_shootdowns += 1;
            let (process, first) = run[0];
            self.forget(process, first.raw()..first.raw() + run.len() as u64);
        }
    }

    /// Frames of all shadow nodes.
    pub(super) fn shadows(&self) -> u64 {
        self.processes.iter().flatten().map(|process| process.table.shadows()).sum()
    }

    /// Whether the bitmap of holes says what page tables say, and they have counted their perforated
    /// pages.
    pub(super) fn check_holes(&self) -> Result<(), String> {
        let mut holes = FxHashMap::<FrameNumber, u16>::default();
        for process in self.live() {
            let perforated = self.perforated_in(process, &EVERYTHING);
            let told = self.process(process).table.perforated_pages();
            if perforated.len() as u64 != told {
                return Err(format!("{} pages are perforated, not {told}", perforated.len()));
            }
            for (region, of) in perforated {
                let places = (0..base_pages(PageSize::HUGE)).filter(|at| of.contains(*at));
                places.for_each(|at| *holes.entry(region.frame.plus(at)).or_insert(0) += 1);
            }
        }
        let told = self.frames.hole_bitmaps().counted();
        if holes != told {
            return Err(format!(
                "{} frames are holes, and {} bits are set",
                holes.len(),
                told.len()
            ));
        }
        Ok(())
    }
}

fn table_used(memory: &Memory, process: ProcessId, page: PageNumber) -> (bool, bool) {
    memory.process(process).table.used(page).unwrap_or_default()
}
