//! Shared pages: fork and copy-on-write.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use serde::{Deserialize, Serialize};

use super::invalidations::GatheredInvalidation;
use super::{EVERYTHING, Memory, Process, ProcessId, around, base_pages, frames_of};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::page_table::Leaf;
use crate::vmas::{Backing, Pages, Vma};

/// The amount copied by a store to a shared large page (Guvenilir and Patt, ISCA 2020, section III.C.3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CopyOnWrite {
    /// Only the base page. The page is split around it, and the rest stays shared: less copying and memory.
    /// Linux does this.
    #[default]
    Split,
    /// The whole page, if a block is free; otherwise it is split. More copying and memory, fewer TLB entries.
    Whole,
}

/// Whether stores to a mapping are visible to its other users.
pub fn is_shared(vma: &Vma) -> bool {
    vma.shared_object().is_some()
}

impl Memory {
    /// Forks a process: the child shares all pages until one of the two stores to them.
    ///
    /// # Errors
    ///
    /// If there are no frames for its page table: no child is created.
    pub fn fork(&mut self, parent: ProcessId) -> Result<ProcessId, OutOfMemory> {
        let nodes = self.process(parent).table.frames_of_copy();
        self.frames.ensure_free(nodes)?;
        let child = self.spawn()?;
        self.inherit_anchor_distance(parent, child);
        self.process_mut(child).vmas = self.process(parent).vmas.clone();
        let mappings: Vec<Pages> =
            self.process(child).vmas.iter().map(|(pages, _)| pages.clone()).collect();
        mappings.iter().for_each(|pages| self.mappings_changed(child, pages));
        let mut changed = GatheredInvalidation::default();
        let composites = self.composite_in(parent, &EVERYTHING);
        for (region, holes) in &composites {
            self.share_composite(parent, region, holes, &mut changed);
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
            // The copy is not accessed yet; the parent's entry keeps the dirty bit of shared pages
            // (`copy_present_pte`).
            let dirty = self.process(parent).table.used(leaf.page).is_some_and(|used| used.1);
            self.map_used(child, &leaf, rights, (false, dirty && !shared))
                .expect("frames were ensured");
        }
        for (region, holes) in &composites {
            self.copy_composite((parent, child), region, holes);
        }
        self.invalidate_gathered(parent, changed);
        Ok(child)
    }

    /// Serves a store to a read-only page, which gets `rights`. If it is shared, the process gets its own
    /// copy of the base page or of the whole page.
    ///
    /// # Errors
    ///
    /// If there is no frame for the copy or for the nodes of smaller pages.
    pub fn copy_on_write(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        rights: Protection,
        how: CopyOnWrite,
    ) -> Result<(), OutOfMemory> {
        let Some(mut leaf) = self.process(process).table.leaf(page) else { return Ok(()) };
        if !self.is_shared(&leaf) {
            if self.make_parts_writable(process, page, rights) {
                return Ok(());
            }
            return self.map(process, leaf.page, leaf.size, leaf.frame, rights);
        }
        let order = Order::of(leaf.size);
        if leaf.size > PageSize::BASE {
            if how == CopyOnWrite::Whole
                && let Ok(copy) = self.frames.allocate(order, Owner::Data)
            {
                self.map_copy(process, &leaf, (copy, false), rights);
                return Ok(());
            }
            if self.punch_whole(process, &leaf) {
                return self.copy_on_write(process, page, rights, how);
            }
            let one = page.raw()..page.raw() + 1;
            let parts = self.parts_of(&leaf, &one);
            let nodes = self.process(process).table.nodes_for(parts);
            let copies = u64::from(self.is_frame_shared(leaf.frame_of(page)));
            self.frames.ensure_free(nodes + copies)?;
            self.split(process, leaf, &one)?;
            leaf = self.process(process).table.leaf(page).expect("split, not unmapped");
            if copies == 0 {
                self.counters.copy_on_write_faults += 1;
                return self.map(process, leaf.page, leaf.size, leaf.frame, rights);
            }
        }
        let (copy, is_in_place) = self.frame_for_copy(process, &leaf)?;
        self.map_copy(process, &leaf, (copy, is_in_place), rights);
        Ok(())
    }

    /// Maps a copy in place of a page. If the copy lies at its place in a page with holes, it becomes a part
    /// of that page.
    fn map_copy(
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

    /// The base frame that a store to a base page would copy now; `None` if the store would copy nothing.
    pub fn source_of_copy(&self, process: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        let Process { vmas, table } = self.process(process);
        let backing = vmas.find(page).map(|(_, vma)| vma.backing);
        match (table.leaf(page), backing) {
            (_, Some(Backing::Object { shared: true, .. })) => None,
            (Some(leaf), _) => {
                let frame = leaf.frame_of(page);
                (!leaf.rights.write && self.is_frame_shared(frame)).then_some(frame)
            }
            (None, Some(Backing::Object { object, origin, .. })) => {
                self.object_page(object, page.raw().wrapping_sub(origin))
            }
            (None, _) => None,
        }
    }

    /// Drops one reference to each frame of a page.
    pub fn drop_frames(&mut self, leaf: &Leaf) {
        self.drop_range(leaf.frame, base_pages(leaf.size));
    }

    /// Drops one reference to each of `frames` frames from `first` on.
    pub(super) fn drop_range(&mut self, first: FrameNumber, frames: u64) {
        if self.references.shared_frames() == 0 {
            self.frames.free_range(first, frames);
            return;
        }
        for frame in (0..frames).map(|number| first.plus(number)) {
            if !self.references.drop_reference(frame) {
                self.frames.free(frame, Order::BASE);
            }
        }
    }

    /// Whether any frame of the page has other references.
    pub fn is_shared(&self, leaf: &Leaf) -> bool {
        self.references.shared_frames() > 0
            && frames_of(leaf).any(|frame| self.is_frame_shared(frame))
    }

    /// Whether a base frame has more than one reference.
    pub fn is_frame_shared(&self, frame: FrameNumber) -> bool {
        self.references.extra(frame) > 0
    }
}
