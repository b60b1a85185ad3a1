//! Pages that several have: fork, and copies of what is stored to.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::invalidations::InvalidationGatherer;
use super::{EVERYTHING, Memory, Process, ProcessId, around, base_pages, frames_of};
use crate::frames::{Holder, Order, OutOfMemory};
use crate::page_table::Leaf;
use crate::vmas::{Backing, Vma};

/// What is copied when a program stores to a large page that others have, too (Tailored Page Sizes,
/// section III.C.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CopyOnWrite {
    /// The base page that is stored to. The page is split around it, and the rest stays shared: less
    /// is copied, and less memory taken. Linux does so.
    #[default]
    Split,
    /// All of the page, if there is a block for it; it is split where there is none. It takes more
    /// time and memory, and fewer TLB entries.
    Whole,
}

/// Whether stores to a mapping go to what others map too.
pub fn is_shared(vma: &Vma) -> bool {
    vma.shared_object().is_some()
}

impl Memory {
    /// A copy of a process that shares all its pages until one of the two stores to them.
    ///
    /// # Errors
    ///
    /// Where there are no frames for its page table: there is no copy then.
    pub fn fork(&mut self, parent: ProcessId) -> Result<ProcessId, OutOfMemory> {
        let nodes = self.process(parent).table.frames_of_copy();
        self.frames.ensure_free(nodes)?;
        let child = self.spawn()?;
        self.process_mut(child).vmas = self.process(parent).vmas.clone();
        let mut changed = InvalidationGatherer::default();
        let parted = self.parted_in(parent, &EVERYTHING);
        for (region, holes) in &parted {
            self.share_parted(parent, region, holes, &mut changed);
        }
        for leaf in self.leaves(parent, &EVERYTHING) {
            if self.process(parent).table.is_part(leaf.page) {
                continue;
            }
            let vma = self.process(parent).vmas.find(leaf.page);
            let shared = vma.is_some_and(|(_, vma)| is_shared(&vma));
            let rights = Protection { write: leaf.rights.write && shared, ..leaf.rights };
            if rights != leaf.rights {
                self.map(parent, leaf.page, leaf.size, leaf.frame, rights)
                    .expect("it is mapped there");
                changed.add(around(leaf.page, leaf.size));
            }
            for frame in frames_of(&leaf) {
                self.references.add(frame);
            }
            // The copy is not used yet; what is stored to a shared page, the parent's entry tells
            // (`copy_present_pte`).
            let dirty = self.process(parent).table.used(leaf.page).is_some_and(|used| used.1);
            self.map_used(child, &leaf, rights, (false, dirty && !shared))
                .expect("frames were ensured");
        }
        for (region, holes) in &parted {
            self.copy_parted((parent, child), region, holes);
        }
        self.forget_all(parent, changed);
        Ok(child)
    }

    /// A store to a page that may not be stored to: it gets `rights`. Where others have it, too, the
    /// process gets its own copy of the base page, or of the whole page.
    ///
    /// # Errors
    ///
    /// Where there is no frame for the copy or for the nodes of smaller pages.
    pub fn copy_on_write(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        rights: Protection,
        how: CopyOnWrite,
    ) -> Result<(), OutOfMemory> {
        let Some(mut leaf) = self.process(process).table.leaf(page) else { return Ok(()) };
        if !self.is_shared(&leaf) {
            if self.open_parts(process, page, rights) {
                return Ok(());
            }
            return self.map(process, leaf.page, leaf.size, leaf.frame, rights);
        }
        let order = Order::of(leaf.size);
        if leaf.size > PageSize::BASE {
            if how == CopyOnWrite::Whole
                && let Ok(copy) = self.frames.allocate(order, Holder::Data)
            {
                self.take_copy(process, &leaf, (copy, false), rights);
                return Ok(());
            }
            if self.punch_whole(process, &leaf) {
                return self.copy_on_write(process, page, rights, how);
            }
            let one = page.raw()..page.raw() + 1;
            let parts = self.parts_of(&leaf, &one);
            let nodes = self.process(process).table.nodes_for(parts);
            let copies = u64::from(self.has_others(leaf.frame_of(page)));
            self.frames.ensure_free(nodes + copies)?;
            self.split(process, leaf, &one)?;
            leaf = self.process(process).table.leaf(page).expect("split, not unmapped");
            if copies == 0 {
                self.counters.copy_on_write_faults += 1;
                return self.map(process, leaf.page, leaf.size, leaf.frame, rights);
            }
        }
        let (copy, is_in_place) = self.frame_for_copy(process, &leaf)?;
        self.take_copy(process, &leaf, (copy, is_in_place), rights);
        Ok(())
    }

    /// Puts a copy in the place of a page. If it is in its place in a perforated page, it is a part of that.
    fn take_copy(
        &mut self,
        process: ProcessId,
        leaf: &Leaf,
        (copy, is_in_place): (FrameNumber, bool),
        rights: Protection,
    ) {
        self.counters.copy_on_write_faults += 1;
        self.copied(leaf.frame, copy, base_pages(leaf.size));
        self.map(process, leaf.page, leaf.size, copy, rights).expect("a page is mapped there");
        self.drop_frames(leaf);
        let pages = around(leaf.page, leaf.size);
        if is_in_place {
            self.patch_holes(process, &pages);
        }
        self.invalidate(process, pages);
    }

    /// The base frame that would be copied if a process stored to a base page now.
    pub fn source_of_copy(&self, process: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        let Process { vmas, table } = self.process(process);
        let backing = vmas.find(page).map(|(_, vma)| vma.backing);
        match (table.leaf(page), backing) {
            (_, Some(Backing::Object { shared: true, .. })) => None,
            (Some(leaf), _) => {
                let frame = leaf.frame_of(page);
                (!leaf.rights.write && self.has_others(frame)).then_some(frame)
            }
            (None, Some(Backing::Object { object, origin, .. })) => {
                self.object_page(object, page.raw().wrapping_sub(origin))
            }
            (None, _) => None,
        }
    }

    /// Gives up one reference to the frames of a page.
    pub fn drop_frames(&mut self, leaf: &Leaf) {
        self.drop_range(leaf.frame, base_pages(leaf.size));
    }

    /// Gives up one reference to each of `frames` frames from `first` on.
    pub(super) fn drop_range(&mut self, first: FrameNumber, frames: u64) {
        if self.references.shared_frames() == 0 {
            self.frames.free_range(first, frames);
            return;
        }
        for frame in (0..frames).map(|number| first.plus(number)) {
            if !self.references.give_up(frame) {
                self.frames.free(frame, Order::BASE);
            }
        }
    }

    /// Whether somebody else has a frame of the page too.
    pub fn is_shared(&self, leaf: &Leaf) -> bool {
        self.references.shared_frames() > 0 && frames_of(leaf).any(|frame| self.has_others(frame))
    }

    /// Whether a base frame has more than one reference.
    pub fn has_others(&self, frame: FrameNumber) -> bool {
        self.references.others(frame) > 0
    }
}
