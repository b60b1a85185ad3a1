//! Pages with holes: explicit creation, patching, restoration and splitting. Operations on whole ones are in
//! [`composite_pages`](super::composite_pages).

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use rustc_hash::FxHashMap;

use super::{Memory, ProcessId, around, base_pages};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::page_table::{Holes, Leaf, PageTable};
use crate::vmas::Pages;

impl Memory {
    /// The pages with holes that overlap a range: their regions as 2 MiB pages, and their holes.
    pub fn pages_with_holes_in(&self, process: ProcessId, pages: &Pages) -> Vec<(Leaf, Holes)> {
        let most = self.process(process).table.pages_with_holes();
        self.regions_in(process, pages, most, PageTable::holes_of)
    }

    /// Collects `find` over the composite pages of a range, at most `most`.
    pub(super) fn regions_in<T>(
        &self,
        process: ProcessId,
        pages: &Pages,
        most: u64,
        find: impl Fn(&PageTable, PageNumber) -> Option<T>,
    ) -> Vec<T> {
        let table = &self.process(process).table;
        let (mut found, mut from) = (Vec::new(), pages.start);
        while found.len() < most as usize
            && let Some(leaf) = table.next(PageNumber::new(from), PageNumber::new(pages.end))
        {
            from = leaf.page.raw() + base_pages(leaf.size);
            if let Some(region) = find(table, leaf.page) {
                from = around(leaf.page, PageSize::HUGE).end;
                found.push(region);
            }
        }
        found
    }

    /// The number of pages with holes of all processes.
    pub fn pages_with_holes(&self) -> u64 {
        self.processes.iter().flatten().map(|space| space.table.pages_with_holes()).sum()
    }

    /// Makes the 2 MiB around a base page a page with holes. All parts but the holes lie in the region from
    /// `frame` on, whose frames outside the holes the caller has allocated as data. Mapped base pages move to
    /// their places, and the rest is cleared; pages mapped in holes stay. All mapped pages must be private.
    /// Returns whether the page exists now: without a shadow node nothing changes.
    ///
    /// # Errors
    /// If there are no frames for its page table: nothing has changed.
    ///
    /// # Panics
    /// If a larger page is mapped there.
    pub fn map_with_holes(
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
        let used = self.used_of(process, &old);
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        if !space.table.map_with_holes(page, (frame, rights), used, holes, &mut self.frames)? {
            return Ok(false);
        }
        self.counters.pages_with_holes += 1;
        self.counters.entries_written += 2 + u64::from(holes.count());
        let places = (0..pages.end - pages.start).filter(|at| !holes.contains(*at));
        self.fill(process, pages, &old, had_any, places.map(|at| (at, frame.plus(at))));
        Ok(true)
    }

    /// Fills the parts of a new page, given by place and frame: mapped base pages move there, the others are
    /// cleared. Counts a promotion if anything was mapped.
    pub(super) fn fill(
        &mut self,
        process: ProcessId,
        pages: Pages,
        old: &[Leaf],
        had_any: bool,
        parts: impl Iterator<Item = (u64, FrameNumber)>,
    ) {
        let moved: FxHashMap<u64, FrameNumber> =
            old.iter().map(|leaf| (leaf.page.raw() - pages.start, leaf.frame)).collect();
        for (at, frame) in parts {
            match moved.get(&at) {
                Some(from) => self.copied(*from, frame, 1),
                None => self.zeroed(frame, 1),
            }
        }
        old.iter().for_each(|leaf| self.drop_frames(leaf));
        if had_any {
            self.counters.promotions += 1;
            self.invalidate(process, pages);
        }
    }

    /// Turns a 2 MiB page into a page with holes that has none yet, if punching is enabled and possible. Returns
    /// whether it did. No translation changes.
    pub(super) fn punch_whole(&mut self, process: ProcessId, leaf: &Leaf) -> bool {
        if !self.punches || leaf.size != PageSize::HUGE {
            return false;
        }
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let used = space.table.used(leaf.page).unwrap_or_default();
        let region = (leaf.frame, leaf.rights);
        let none = Holes::default();
        let made = space.table.map_with_holes(leaf.page, region, used, &none, &mut self.frames);
        let is_made = made.unwrap_or(false);
        if is_made {
            self.counters.pages_with_holes += 1;
            self.counters.entries_written += 2;
        }
        is_made
    }

    /// Patches the holes in a range whose pages lie at their places in the region, with the region's permissions.
    /// Returns their number.
    pub fn patch_holes(&mut self, process: ProcessId, pages: &Pages) -> u64 {
        let mut patched = 0;
        for (region, holes) in self.pages_with_holes_in(process, pages) {
            let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
            let inside = around(region.page, PageSize::HUGE);
            for page in inside.start.max(pages.start)..inside.end.min(pages.end) {
                let is_hole = holes.contains(page - inside.start);
                if is_hole && space.table.patch(PageNumber::new(page), &mut self.frames) {
                    patched += 1;
                }
            }
        }
        self.counters.entries_written += patched;
        patched
    }

    /// Maps a hole at its place in the region, whose frame the caller has claimed as data, and clears it. It
    /// is patched if its permissions are those of the region.
    ///
    /// # Errors
    /// Never if the page is a hole.
    ///
    /// # Panics
    /// If there is no page with holes.
    pub fn fill_hole(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        rights: Protection,
    ) -> Result<(), OutOfMemory> {
        let (region, _) = self.process(process).table.holes_of(page).expect("a page with holes");
        self.place_at(process, page, region.frame_of(page), rights)?;
        self.patch_holes(process, &(page.raw()..page.raw() + 1));
        Ok(())
    }

    /// Moves the page of a hole to its place in the region, if that frame is free, and patches it. Returns
    /// whether it did. A hole without a page stays a hole.
    pub fn move_into_place(&mut self, process: ProcessId, page: PageNumber) -> bool {
        let table = &self.process(process).table;
        let Some((region, holes)) = table.holes_of(page) else { return false };
        let Some(leaf) = table.leaf(page) else { return false };
        let place = region.frame_of(page);
        let is_hole = holes.contains(page.raw() - region.page.raw());
        if !is_hole || leaf.rights != region.rights || self.is_frame_shared(leaf.frame) {
            return false;
        }
        if leaf.frame != place {
            if !self.frames.allocate_at(place, Order::BASE, Owner::Data) {
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
            self.invalidate(process, one);
        }
        is_patched
    }

    /// Turns the page with holes around a base page into a plain 2 MiB page, if it has no holes. Returns
    /// whether it did.
    pub fn make_whole(&mut self, process: ProcessId, page: PageNumber) -> bool {
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        let is_whole = space.table.make_whole(page, &mut self.frames);
        if is_whole {
            self.counters.entries_written += 1;
            self.counters.promotions += 1;
            self.invalidate(process, around(page, PageSize::HUGE));
        }
        is_whole
    }

    /// Splits the page with holes around a base page into base pages.
    pub fn split_with_holes(&mut self, process: ProcessId, page: PageNumber) {
        let space = self.processes[usize::from(process.0)].as_mut().expect("it has not ended");
        if space.table.split_with_holes(page, &mut self.frames) {
            self.counters.splits += 1;
            self.counters.entries_written += 1 + base_pages(PageSize::HUGE);
            self.invalidate(process, around(page, PageSize::HUGE));
        }
    }
}

pub(super) fn table_used(memory: &Memory, process: ProcessId, page: PageNumber) -> (bool, bool) {
    memory.process(process).table.used(page).unwrap_or_default()
}
