//! Which frames private base pages and the last nodes of page tables get: any, or those that a policy chooses.

use std::any::Any;

use octavo_types::{FrameNumber, PageNumber};

use super::{Memory, ProcessId};
use crate::frames::{Frames, Order, OutOfMemory, Owner};
use crate::page_table::{DesignCounter, NodePlace};

/// Chooses frames of private base pages: new pages of anonymous memory, and copies. Pages that processes share,
/// larger pages and moved pages are placed without it.
///
/// It may also choose frames of nodes of level 1, and let hardware assume the frame of a page without a walk.
pub trait Placement: Any + Send {
    /// A frame for a page of a process that is free or [set aside](Frames::set_aside); `None` if any frame will do.
    fn choose(
        &mut self,
        frames: &Frames,
        process: ProcessId,
        page: PageNumber,
    ) -> Option<FrameNumber>;

    /// The rule for frames of nodes of level 1 of a new process; `None` if any frame will do.
    fn node_place(&self, _process: ProcessId) -> Option<NodePlace> {
        None
    }

    /// The frame that hardware assumes for a page of a process without a walk, if it knows the rule.
    fn assumed_frame(&self, _process: ProcessId, _page: PageNumber) -> Option<FrameNumber> {
        None
    }

    /// Its own counters, always the same ones.
    fn counters(&self) -> Vec<DesignCounter> {
        Vec::new()
    }
}

impl Memory {
    /// Has a placement choose the frames of private base pages from now on.
    pub fn place_by(&mut self, placement: Box<dyn Placement>) {
        self.placement = Some(placement);
    }

    /// The placement that chooses frames, if it is of this type: hardware may know its rule, and where its tables are.
    pub fn placement<T: Placement>(&self) -> Option<&T> {
        let placement: &dyn Any = self.placement.as_deref()?;
        placement.downcast_ref()
    }

    /// [`Placement::assumed_frame`].
    pub fn assumed_frame(&self, process: ProcessId, page: PageNumber) -> Option<FrameNumber> {
        self.placement.as_ref()?.assumed_frame(process, page)
    }

    /// Allocates the frame of a private base page.
    ///
    /// # Errors
    ///
    /// If no frame is free.
    pub(super) fn allocate_private(
        &mut self,
        process: ProcessId,
        page: PageNumber,
    ) -> Result<FrameNumber, OutOfMemory> {
        let placement = self.placement.as_mut();
        match placement.and_then(|placement| placement.choose(&self.frames, process, page)) {
            Some(frame) if self.frames.allocate_placed(frame) => Ok(frame),
            _ => self.frames.allocate(Order::BASE, Owner::Data),
        }
    }
}
