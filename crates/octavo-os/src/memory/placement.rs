//! Which frames private base pages get: any, or those that a policy chooses.

use octavo_types::{FrameNumber, PageNumber};

use super::{Memory, ProcessId};
use crate::frames::{Frames, Order, OutOfMemory, Owner};
use crate::page_table::DesignCounter;

/// Chooses frames of private base pages: new pages of anonymous memory, and copies. Pages that processes share,
/// larger pages and moved pages are placed without it.
pub trait Placement: Send {
    /// A free frame for a page of a process; `None` if any frame will do.
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
            Some(frame) if self.frames.allocate_at(frame, Order::BASE, Owner::Data) => Ok(frame),
            _ => self.frames.allocate(Order::BASE, Owner::Data),
        }
    }
}
