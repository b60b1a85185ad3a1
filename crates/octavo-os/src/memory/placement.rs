//! Which frames private base pages get: any, or those that a policy chooses.

use std::any::Any;

use octavo_types::{FrameNumber, PageNumber};

use super::{Memory, ProcessId};
use crate::frames::{Frames, Order, OutOfMemory, Owner};
use crate::page_table::DesignCounter;

/// Chooses frames of private base pages: new pages of anonymous memory, and copies. Pages that processes share,
/// larger pages and moved pages are placed without it.
pub trait Placement: Any + Send {
    /// A frame for a page of a process that is free or [set aside](Frames::set_aside); `None` if any frame will do.
    fn choose(
        &mut self,
        frames: &Frames,
        process: ProcessId,
        page: PageNumber,
    ) -> Option<FrameNumber>;

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
