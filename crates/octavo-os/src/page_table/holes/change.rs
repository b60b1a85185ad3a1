//! Changes of pages with holes. Each is atomic: it succeeds or changes nothing.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::{EntryIndex, Holes, LEVEL};
use crate::frames::{Frames, OutOfMemory};
use crate::page_table::entry::{ENTRIES, Entry};
use crate::page_table::{Leaf, PageTable, ROOT, Used, index};

impl PageTable {
    /// Makes the 2 MiB around a base page a page with holes, with these permissions, accessed and dirty bits.
    /// All base pages but the holes lie in the region from `frame` on; the caller ensures that mapped ones
    /// lie there already. Holes keep their mapped base pages. A 2 MiB page mapped there lies at `frame`.
    /// Returns `false` without a shadow node.
    ///
    /// # Errors
    /// If there are no frames for its nodes: nothing has changed.
    pub fn map_with_holes(
        &mut self,
        page: PageNumber,
        (frame, rights): (FrameNumber, Protection),
        used: Used,
        holes: &Holes,
        frames: &mut Frames,
    ) -> Result<bool, OutOfMemory> {
        let first = PageNumber::new(page.raw() & !(ENTRIES as u64 - 1));
        let Some(filter) = self.format.holes.filter(|_| self.with_holes_at(first).is_none()) else {
            return Ok(false);
        };
        let place = self.prepare_path(first, PageSize::HUGE, frame, frames)?;
        let slot = (place.node, place.first);
        if !self.nodes[place.node as usize].has_shadow {
            self.free_empty_nodes(first, frames);
            return Ok(false);
        }
        let child = self.child_or_new(slot, first, frames)?;
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
        let entry = entry.with_holes(filter(holes)).with_used(used);
        self.nodes[place.node as usize].set(place.first, entry);
        self.holes.pages += 1;
        for at in (0..ENTRIES as u64).filter(|at| holes.contains(*at)) {
            frames.holes.add(frame.plus(at));
        }
        Ok(true)
    }

    /// The child node of a level-2 entry; created if missing.
    ///
    /// # Errors
    /// If there is no frame for it: nodes created on the way are freed.
    pub(in crate::page_table) fn child_or_new(
        &mut self,
        slot: EntryIndex,
        page: PageNumber,
        frames: &mut Frames,
    ) -> Result<u32, OutOfMemory> {
        if self.child_of(slot) as u32 == ROOT {
            match self.new_node(LEVEL - 1, frames) {
                Ok(child) => self.nodes[slot.0 as usize].children[slot.1] = child,
                Err(error) => {
                    self.free_empty_nodes(page, frames);
                    return Err(error);
                }
            }
        }
        Ok(self.child_of(slot) as u32)
    }

    /// Patches the hole at a base page that is mapped in its place with the region's permissions: it becomes
    /// a part of the region. Returns whether the hole was patched. If another address space has a hole at the
    /// same frame, the bit stays set, and the hole stays too.
    pub fn patch(&mut self, page: PageNumber, frames: &mut Frames) -> bool {
        let Some(slot) = self.with_holes_at(page) else { return false };
        let (whole, at) = (self.entry_of(slot), index(page, 1));
        let child = self.child_of(slot);
        let entry = self.nodes[child].entries[at];
        let frame = whole.frame(LEVEL).plus(at as u64);
        let is_alike = entry.is_present()
            && (entry.frame(1), entry.rights()) == (frame, whole.rights())
            && frames.holes.count(frame) == 1;
        if is_alike {
            self.uncount_entry(child as u32, at, 1);
            self.nodes[child].set(at, Entry::NONE);
            frames.holes.remove(frame);
            self.holes.changed.push((page, false));
            self.set_entry(slot, whole.with_holes(self.filter_of(child)).with_used(entry.used()));
        }
        is_alike
    }

    /// The filter of the page with this node of holes.
    fn filter_of(&self, child: usize) -> u8 {
        let filter = self.format.holes.expect("a page with holes needs a format with them");
        filter(&self.holes_in(child))
    }

    /// Turns the page with holes around a base page into a plain 2 MiB page, if it has no holes. Returns
    /// whether it is plain now.
    pub fn make_whole(&mut self, page: PageNumber, frames: &mut Frames) -> bool {
        let Some(slot) = self.with_holes_at(page) else { return false };
        let is_whole =
            self.nodes[self.child_of(slot)].entries.iter().all(|entry| *entry == Entry::NONE);
        if is_whole {
            let whole = self.entry_of(slot).whole();
            self.drop_child(slot.0, slot.1, LEVEL, frames);
            self.holes.pages -= 1;
            self.set_entry(slot, whole);
            self.count_page(PageSize::HUGE, 1);
        }
        is_whole
    }

    /// Splits the page with holes around a base page into base pages.
    pub fn split_with_holes(&mut self, page: PageNumber, frames: &mut Frames) -> bool {
        let Some(slot) = self.with_holes_at(page) else { return false };
        self.remove_holes(slot.0, slot.1, frames);
        let (whole, child) = (self.entry_of(slot), self.child_of(slot));
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
        self.holes.pages -= 1;
        let frame = self.nodes[child].frame;
        self.set_entry(slot, Entry::node(frame));
        true
    }

    /// Sets the permissions of all parts of the composite (with holes, or gapped) page around a base page.
    pub fn protect_parts(&mut self, page: PageNumber, rights: Protection) {
        if let Some(slot) = self.composite_at(page) {
            let whole = self.entry_of(slot);
            let entry =
                Entry::page(whole.frame(LEVEL), PageSize::HUGE, rights, self.format.encoding);
            let entry = match whole.is_gapped() {
                true => entry.gapped(),
                false => entry.with_holes(whole.filter()),
            };
            self.set_entry(slot, entry.with_used(whole.used()));
        }
    }

    /// Unmaps the composite page around a base page, including its holes.
    pub fn unmap_composite(&mut self, page: PageNumber, frames: &mut Frames) {
        if let Some(slot) = self.composite_at(page) {
            self.drop_composite(slot, frames);
            self.free_empty_nodes(page, frames);
        }
    }

    /// The entry of the composite page around a base page.
    fn composite_at(&self, page: PageNumber) -> Option<EntryIndex> {
        self.with_holes_at(page).or_else(|| self.gapped_at(page))
    }

    /// Clears the entry of a page with holes.
    fn drop_composite(&mut self, slot: EntryIndex, frames: &mut Frames) {
        self.drop_child(slot.0, slot.1, LEVEL, frames);
        self.uncount_entry(slot.0, slot.1, LEVEL);
        self.set_entry(slot, Entry::NONE);
    }

    /// Punches a hole at a base page that is about to be mapped.
    pub(in crate::page_table) fn punch(
        &mut self,
        slot: EntryIndex,
        page: PageNumber,
        frames: &mut Frames,
    ) {
        let (child, place) = (self.child_of(slot), index(page, 1));
        if self.nodes[child].entries[place] != Entry::NONE {
            return;
        }
        let whole = self.entry_of(slot);
        self.nodes[child].set(place, Entry::HOLE);
        self.set_entry(slot, whole.with_holes(self.filter_of(child)));
        frames.holes.add(whole.frame(LEVEL).plus(place as u64));
        self.holes.changed.push((page, true));
    }

    /// Unmaps a base page of a page with holes, which becomes a hole without a page.
    pub(in crate::page_table) fn clear_hole(
        &mut self,
        slot: EntryIndex,
        page: PageNumber,
        frames: &mut Frames,
    ) -> Option<Leaf> {
        let leaf = self.leaf(page)?;
        let (child, at) = (self.child_of(slot), index(page, 1));
        self.punch(slot, page, frames);
        self.uncount_entry(child as u32, at, 1);
        self.nodes[child].set(at, Entry::HOLE);
        Some(leaf)
    }

    /// Frees the page with holes around a base page if nothing is mapped in it. Returns whether no page with
    /// holes remains there.
    pub(in crate::page_table) fn free_empty_page_with_holes(
        &mut self,
        page: PageNumber,
        frames: &mut Frames,
    ) -> bool {
        let Some(slot) = self.with_holes_at(page) else { return true };
        let holes = &self.nodes[self.child_of(slot)];
        let is_empty = holes.present == 0 && !holes.entries.contains(&Entry::NONE);
        if is_empty {
            self.drop_composite(slot, frames);
        }
        is_empty
    }

    /// Removes the holes below an entry, if it is a page with holes.
    pub(in crate::page_table) fn remove_holes(
        &mut self,
        node: u32,
        index: usize,
        frames: &mut Frames,
    ) {
        let entry = self.nodes[node as usize].entries[index];
        if !entry.has_holes() {
            return;
        }
        let holes = &self.nodes[self.child_of((node, index))].entries;
        for at in (0..ENTRIES).filter(|at| holes[*at] != Entry::NONE) {
            frames.holes.remove(entry.frame(LEVEL).plus(at as u64));
        }
    }
}
