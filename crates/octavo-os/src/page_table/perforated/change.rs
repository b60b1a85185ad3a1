//! Changes of perforated pages. Each is made whole or not at all.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::{EntryIndex, FILTERED, Holes, LEVEL};
use crate::frames::{Frames, OutOfMemory};
use crate::page_table::entry::{ENTRIES, Entry};
use crate::page_table::{Leaf, PageTable, ROOT, Used, index};

impl PageTable {
    /// Makes a perforated page of the 2 MiB around a base page. What is no hole lies in the region from
    /// `frame` on, with these rights, used as told; the caller has seen to it that all that was mapped
    /// there lies there already. Holes keep the base page that is mapped, if one is. A page of 2 MiB
    /// that is mapped lies at `frame`. Returns whether there is one now: there is none where there is
    /// no shadow node.
    ///
    /// # Errors
    /// Where there are no frames for its nodes: nothing has changed then.
    pub fn perforate(
        &mut self,
        page: PageNumber,
        (frame, rights): (FrameNumber, Protection),
        used: Used,
        holes: &Holes,
        frames: &mut Frames,
    ) -> Result<bool, OutOfMemory> {
        let first = PageNumber::new(page.raw() & !(ENTRIES as u64 - 1));
        if !self.format.has_perforated || self.perforated_at(first).is_some() {
            return Ok(false);
        }
        let place = self.prepare_path(first, PageSize::HUGE, frame, frames)?;
        let of = (place.node, place.first);
        if !self.nodes[place.node as usize].has_shadow {
            self.give_back_empty(first, frames);
            return Ok(false);
        }
        let child = self.child_or_new(of, first, frames)?;
        self.uncount_entry(place.node, place.first, LEVEL);
        for at in 0..ENTRIES {
            let before = self.nodes[child as usize].entries[at];
            let entry = match (holes.contains(at as u64), before.is_present()) {
                (false, _) => Entry::NONE,
                (true, true) => continue,
                (true, false) => Entry::HOLE,
            };
            self.uncount_entry(child, at, 1);
            self.nodes[child as usize].set(at, entry);
        }
        let entry = Entry::page(frame, PageSize::HUGE, rights, self.format.encoding);
        let entry = entry.perforated(holes.filter()).with_used(used);
        self.nodes[place.node as usize].set(place.first, entry);
        self.perforations.pages += 1;
        for at in (0..ENTRIES as u64).filter(|at| holes.contains(*at)) {
            frames.holes.add(frame.plus(at));
        }
        Ok(true)
    }

    /// The node below an entry of their level, made where there is none.
    ///
    /// # Errors
    /// Where there is no frame for it: the nodes that were made on the way are given back then.
    pub(in crate::page_table) fn child_or_new(
        &mut self,
        of: EntryIndex,
        page: PageNumber,
        frames: &mut Frames,
    ) -> Result<u32, OutOfMemory> {
        if self.child_of(of) as u32 == ROOT {
            match self.new_node(LEVEL - 1, frames) {
                Ok(child) => self.nodes[of.0 as usize].children[of.1] = child,
                Err(error) => {
                    self.give_back_empty(page, frames);
                    return Err(error);
                }
            }
        }
        Ok(self.child_of(of) as u32)
    }

    /// Patches the hole at a base page that is mapped in its place with the region's rights: it is a part
    /// of the region from now on. Whether it could be: where another address space has a hole there, its
    /// bit stays set, and so it stays a hole.
    pub fn patch(&mut self, page: PageNumber, frames: &mut Frames) -> bool {
        let Some(of) = self.perforated_at(page) else { return false };
        let (whole, at) = (self.entry_of(of), index(page, 1));
        let child = self.child_of(of);
        let entry = self.nodes[child].entries[at];
        let frame = whole.frame(LEVEL).plus(at as u64);
        let is_alike = entry.is_present()
            && (entry.frame(1), entry.rights()) == (frame, whole.rights())
            && frames.holes.count(frame) == 1;
        if is_alike {
            self.uncount_entry(child as u32, at, 1);
            self.nodes[child].set(at, Entry::NONE);
            frames.holes.remove(frame);
            self.perforations.changed.push((page, false));
            let first = at / FILTERED * FILTERED;
            let rest = &self.nodes[child].entries[first..first + FILTERED];
            let bit = 1 << (at / FILTERED);
            let filter = match rest.iter().all(|entry| *entry == Entry::NONE) {
                true => whole.filter() & !bit,
                false => whole.filter(),
            };
            self.set_entry(of, whole.perforated(filter).with_used(entry.used()));
        }
        is_alike
    }

    /// Makes the perforated page around a base page one of 2 MiB, if it has no hole. Whether it did.
    pub fn make_whole(&mut self, page: PageNumber, frames: &mut Frames) -> bool {
        let Some(of) = self.perforated_at(page) else { return false };
        let is_whole =
            self.nodes[self.child_of(of)].entries.iter().all(|entry| *entry == Entry::NONE);
        if is_whole {
            let whole = self.entry_of(of).whole();
            self.drop_child(of.0, of.1, LEVEL, frames);
            self.perforations.pages -= 1;
            self.set_entry(of, whole);
            self.count_page(PageSize::HUGE, 1);
        }
        is_whole
    }

    /// Puts base pages in the place of the perforated page around a base page.
    pub fn split_perforated(&mut self, page: PageNumber, frames: &mut Frames) -> bool {
        let Some(of) = self.perforated_at(page) else { return false };
        self.remove_holes(of.0, of.1, frames);
        let (whole, child) = (self.entry_of(of), self.child_of(of));
        for at in 0..ENTRIES {
            let entry = self.nodes[child].entries[at];
            if entry == Entry::NONE {
                let frame = whole.frame(LEVEL).plus(at as u64);
                let rights = whole.rights();
                let part = Entry::page(frame, PageSize::BASE, rights, self.format.encoding);
                self.nodes[child].set(at, part.with_used(whole.used()));
                self.count_page(PageSize::BASE, 1);
            } else if !entry.is_present() {
                self.nodes[child].set(at, Entry::NONE);
            }
        }
        self.perforations.pages -= 1;
        let frame = self.nodes[child].frame;
        self.set_entry(of, Entry::node(frame));
        true
    }

    /// The parts of the page around a base page that is perforated, or has gaps, have these rights from now on.
    pub fn protect_parts(&mut self, page: PageNumber, rights: Protection) {
        if let Some(of) = self.composite_at(page) {
            let whole = self.entry_of(of);
            let entry =
                Entry::page(whole.frame(LEVEL), PageSize::HUGE, rights, self.format.encoding);
            let entry = match whole.is_gapped() {
                true => entry.gapped(),
                false => entry.perforated(whole.filter()),
            };
            self.set_entry(of, entry.with_used(whole.used()));
        }
    }

    /// Unmaps the page around a base page that is perforated, or has gaps, its holes with it.
    pub fn unmap_composite(&mut self, page: PageNumber, frames: &mut Frames) {
        if let Some(of) = self.composite_at(page) {
            self.drop_perforated(of, frames);
            self.give_back_empty(page, frames);
        }
    }

    /// The entry of the page around a base page that is perforated, or has gaps.
    fn composite_at(&self, page: PageNumber) -> Option<EntryIndex> {
        self.perforated_at(page).or_else(|| self.gapped_at(page))
    }

    /// The entry of such a page goes.
    fn drop_perforated(&mut self, of: EntryIndex, frames: &mut Frames) {
        self.drop_child(of.0, of.1, LEVEL, frames);
        self.uncount_entry(of.0, of.1, LEVEL);
        self.set_entry(of, Entry::NONE);
    }

    /// A base page of a perforated page is about to be mapped: it is a hole from now on.
    pub(in crate::page_table) fn punch(
        &mut self,
        of: EntryIndex,
        page: PageNumber,
        frames: &mut Frames,
    ) {
        let (child, place) = (self.child_of(of), index(page, 1));
        if self.nodes[child].entries[place] != Entry::NONE {
            return;
        }
        let whole = self.entry_of(of);
        self.nodes[child].set(place, Entry::HOLE);
        self.set_entry(of, whole.perforated(whole.filter() | 1 << (place / FILTERED)));
        frames.holes.add(whole.frame(LEVEL).plus(place as u64));
        self.perforations.changed.push((page, true));
    }

    /// Unmaps a base page of a perforated page, which is a hole without a page then.
    pub(in crate::page_table) fn clear_hole(
        &mut self,
        of: EntryIndex,
        page: PageNumber,
        frames: &mut Frames,
    ) -> Option<Leaf> {
        let leaf = self.leaf(page)?;
        let (child, at) = (self.child_of(of), index(page, 1));
        self.punch(of, page, frames);
        self.uncount_entry(child as u32, at, 1);
        self.nodes[child].set(at, Entry::HOLE);
        Some(leaf)
    }

    /// Gives back the perforated page around a base page, if nothing is mapped in it. Whether there is
    /// none any more.
    pub(in crate::page_table) fn give_back_perforated(
        &mut self,
        page: PageNumber,
        frames: &mut Frames,
    ) -> bool {
        let Some(of) = self.perforated_at(page) else { return true };
        let holes = &self.nodes[self.child_of(of)];
        let is_empty = holes.present == 0 && !holes.entries.contains(&Entry::NONE);
        if is_empty {
            self.drop_perforated(of, frames);
        }
        is_empty
    }

    /// The holes below an entry of any level are none any more, if it is a perforated page's.
    pub(in crate::page_table) fn remove_holes(
        &mut self,
        node: u32,
        index: usize,
        frames: &mut Frames,
    ) {
        let entry = self.nodes[node as usize].entries[index];
        if !entry.is_perforated() {
            return;
        }
        let holes = &self.nodes[self.child_of((node, index))].entries;
        for at in (0..ENTRIES).filter(|at| holes[*at] != Entry::NONE) {
            frames.holes.remove(entry.frame(LEVEL).plus(at as u64));
        }
    }
}
