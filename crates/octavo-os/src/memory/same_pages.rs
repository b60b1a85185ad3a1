//! Same-page merging (Park et al., ISCA 2020, Sections III-A and VI): pages of equal content share one
//! read-only frame; a store copies it again.
//!
//! Contents are not simulated, so that only zero pages are known: pages cleared and never stored to. Only these
//! are merged. Stores of the kernel (`read`) are not observed, so that pages filled only by the kernel count as
//! zero pages.
//!
//! Merging a part of a page with holes punches a hole and frees its frame. A store patches the hole if that
//! frame is still free.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};
use serde::{Deserialize, Serialize};

use super::{EVERYTHING, Memory, ProcessId, around};
use crate::frames::{Order, OutOfMemory, Owner};
use crate::page_table::Leaf;
use crate::vmas::{Backing, Pages, Vma};

/// The pages that are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SamePages {
    /// None.
    #[default]
    Never,
    /// Base pages only.
    Base,
    /// Also parts of large pages, which get a hole if the policy makes pages with holes, and are split
    /// otherwise.
    All,
}

/// Known contents, and the shared zero frame.
pub(super) struct Contents {
    /// Whether each frame may hold anything but zeros; meaningless for frames never cleared.
    is_stored: Vec<bool>,
    zeros: Option<FrameNumber>,
}

impl Memory {
    /// Tracks zero pages from now on, given that every store is [recorded](Memory::record_store). No page may
    /// be in use yet.
    pub fn track_stores(&mut self) {
        let frames = self.frames.shape().frames() as usize;
        self.zeros = Some(Contents { is_stored: vec![false; frames], zeros: None });
    }

    /// Whether stores must be recorded.
    pub fn tracks_stores(&self) -> bool {
        self.zeros.is_some()
    }

    /// Records a store of a program to a frame.
    #[inline]
    pub fn record_store(&mut self, frame: FrameNumber) {
        self.record_content(frame, 1, |_, _| true);
    }

    /// Updates the contents of frames: `is_stored` gives, from the old state and the frame number, whether a
    /// frame may hold anything but zeros.
    #[inline]
    pub(super) fn record_content(
        &mut self,
        frame: FrameNumber,
        frames: u64,
        is_stored: impl Fn(&[bool], u64) -> bool,
    ) {
        if let Some(contents) = &mut self.zeros {
            for number in 0..frames {
                let now = is_stored(&contents.is_stored, number);
                contents.is_stored[frame.plus(number).raw() as usize] = now;
            }
        }
    }

    /// Merges the private zero pages of all processes.
    pub(crate) fn merge_same_pages(&mut self, how: SamePages) {
        let live: Vec<ProcessId> = self.live().collect();
        for process in live {
            for (pages, vma) in self.process(process).vmas.within(&EVERYTHING) {
                if matches!(vma.backing, Backing::Anonymous | Backing::Heap | Backing::Stack) {
                    self.merge_in(process, &pages, &vma, how);
                }
            }
        }
    }

    fn merge_in(&mut self, process: ProcessId, pages: &Pages, vma: &Vma, how: SamePages) {
        for leaf in self.leaves(process, pages) {
            for page in around(leaf.page, leaf.size) {
                let page = PageNumber::new(page);
                let is_inside = pages.contains(&page.raw());
                if is_inside && self.holds_zeros(leaf.frame_of(page)) {
                    self.merge(process, page, vma, how);
                }
            }
        }
    }

    /// Whether a private frame holds zeros.
    fn holds_zeros(&self, frame: FrameNumber) -> bool {
        let contents = self.zeros.as_ref();
        contents.is_some_and(|contents| !contents.is_stored[frame.raw() as usize])
            && !self.is_frame_shared(frame)
    }

    /// Merges a zero page, unless that needs memory or is disabled.
    fn merge(
        &mut self,
        process: ProcessId,
        page: PageNumber,
        vma: &Vma,
        how: SamePages,
    ) -> Option<()> {
        let mut leaf = self.process(process).table.leaf(page)?;
        let is_large = leaf.size > PageSize::BASE || self.process(process).table.is_part(page);
        if is_large && how != SamePages::All {
            return None;
        }
        let zeros = self.frame_of_zeros().ok()?;
        while leaf.size > PageSize::BASE {
            if !self.punch_whole(process, &leaf) {
                self.split(process, leaf, &(page.raw()..page.raw() + 1)).ok()?;
            }
            leaf = self.process(process).table.leaf(page)?;
        }
        let rights = Protection { write: false, ..vma.rights };
        let (accessed, _) = self.process(process).table.used(page)?;
        let to = Leaf { frame: zeros, ..leaf };
        self.map_used(process, &to, rights, (accessed, false)).expect("its tables are there");
        self.references.add(zeros);
        self.drop_frames(&leaf);
        self.counters.pages_merged += 1;
        self.invalidate(process, page.raw()..page.raw() + 1);
        Some(())
    }

    /// The zero frame, allocated at its first use and never freed.
    fn frame_of_zeros(&mut self) -> Result<FrameNumber, OutOfMemory> {
        if let Some(zeros) = self.zeros() {
            return Ok(zeros);
        }
        let frame = self.frames.allocate(Order::BASE, Owner::Data)?;
        self.zeroed(frame, 1);
        self.zeros.as_mut().expect("stores are followed").zeros = Some(frame);
        Ok(frame)
    }

    /// The zero frame, if allocated.
    pub(super) fn zeros(&self) -> Option<FrameNumber> {
        self.zeros.as_ref().and_then(|contents| contents.zeros)
    }

    /// The number of pages that map the zero frame.
    pub fn merged_pages(&self) -> u64 {
        self.zeros().map_or(0, |frame| u64::from(self.references.extra(frame)))
    }

    /// The frame for the copy of a base page on a store, and whether it is the page's place in a page
    /// with holes: the place of a merged page, if still free.
    pub(super) fn frame_for_copy(
        &mut self,
        process: ProcessId,
        leaf: &Leaf,
    ) -> Result<(FrameNumber, bool), OutOfMemory> {
        if self.zeros() == Some(leaf.frame) {
            let composite = self.process(process).table.holes_of(leaf.page);
            let place = composite.map(|(region, _)| region.frame_of(leaf.page));
            let frames = &mut self.frames;
            let found = place.filter(|at| frames.allocate_at(*at, Order::BASE, Owner::Data));
            let found = match found {
                Some(at) => (at, true),
                None => (self.allocate_private(process, leaf.page)?, false),
            };
            self.counters.pages_unmerged += 1;
            return Ok(found);
        }
        Ok((self.allocate_private(process, leaf.page)?, false))
    }
}
