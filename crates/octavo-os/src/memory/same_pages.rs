//! Same-page merging (paper 004, Sections III-A and VI): pages of equal content share one frame, which nobody may
//! store to; a store copies it again.
//!
//! What pages hold is not known here, but for one thing: a page that was cleared and has not been stored to since
//! holds zeros. Those are the pages that are merged. Stores of the kernel (`read`) are not seen: what it alone has
//! filled is taken for zeros; other equal contents are not found.
//!
//! A part of a perforated page becomes a hole by it, whose own frame is free then. A store patches the hole, if
//! that frame is still free: the page is a part again.

use octavo_types::{FrameNumber, PageNumber, PageSize, Protection};

use super::{EVERYTHING, Memory, ProcessId, around};
use crate::frames::{Holder, Order, OutOfMemory};
use crate::page_table::Leaf;
use crate::vmas::{Backing, Pages, Vma};

/// Which pages are merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SamePages {
    /// None.
    #[default]
    Never,
    /// Base pages; large ones are left alone.
    Base,
    /// Parts of large pages, too: these get a hole where the policy makes perforated pages, and are split
    /// elsewhere.
    All,
}

/// What is known of contents, and the frame of zeros.
pub(super) struct Contents {
    /// By frame, whether it may hold anything but zeros. Of what was never cleared that says nothing.
    is_stored: Vec<bool>,
    zeros: Option<FrameNumber>,
}

impl Memory {
    /// From now on it is known which pages hold zeros, as long as every store is told of
    /// ([`Memory::note_stored`]). No page may have been used before.
    pub fn follow_stores(&mut self) {
        let frames = self.frames.shape().frames() as usize;
        self.zeros = Some(Contents { is_stored: vec![false; frames], zeros: None });
    }

    /// Whether stores have to be told of.
    pub fn follows_stores(&self) -> bool {
        self.zeros.is_some()
    }

    /// A program has stored to a frame.
    #[inline]
    pub fn note_stored(&mut self, frame: FrameNumber) {
        self.note_content(frame, 1, |_, _| true);
    }

    /// Frames hold something else now: whether anything but zeros may be, by what all frames held and the
    /// number of the frame.
    #[inline]
    pub(super) fn note_content(
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

    /// Merges the pages of all processes that hold zeros and that a process has alone.
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

    /// Whether a frame that is one page's alone holds zeros.
    fn holds_zeros(&self, frame: FrameNumber) -> bool {
        let of = self.zeros.as_ref();
        of.is_some_and(|of| !of.is_stored[frame.raw() as usize]) && !self.has_others(frame)
    }

    /// Merges a base page that holds zeros; none where that would need memory, or is not wanted.
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

    /// The frame of zeros, which stays once there is one.
    fn frame_of_zeros(&mut self) -> Result<FrameNumber, OutOfMemory> {
        if let Some(zeros) = self.zeros.as_ref().and_then(|of| of.zeros) {
            return Ok(zeros);
        }
        let frame = self.frames.allocate(Order::BASE, Holder::Data)?;
        self.zeroed(frame, 1);
        self.zeros.as_mut().expect("stores are followed").zeros = Some(frame);
        Ok(frame)
    }

    /// The frame of zeros, if there is one.
    pub(super) fn zeros(&self) -> Option<FrameNumber> {
        self.zeros.as_ref().and_then(|of| of.zeros)
    }

    /// How many pages lie in the frame of zeros.
    pub fn merged_pages(&self) -> u64 {
        self.zeros().map_or(0, |frame| u64::from(self.references.others(frame)))
    }

    /// The frame for the copy of a base page that is stored to, and whether it is the page's place in a
    /// perforated page: that of a page that was merged, if nobody has it yet.
    pub(super) fn frame_for_copy(
        &mut self,
        process: ProcessId,
        leaf: &Leaf,
    ) -> Result<(FrameNumber, bool), OutOfMemory> {
        if self.zeros() == Some(leaf.frame) {
            let of = self.process(process).table.perforation(leaf.page);
            let place = of.map(|(region, _)| region.frame_of(leaf.page));
            let frames = &mut self.frames;
            let found = place.filter(|at| frames.allocate_at(*at, Order::BASE, Holder::Data));
            let found = match found {
                Some(at) => (at, true),
                None => (self.frames.allocate(Order::BASE, Holder::Data)?, false),
            };
            self.counters.pages_unmerged += 1;
            return Ok(found);
        }
        Ok((self.frames.allocate(Order::BASE, Holder::Data)?, false))
    }
}
