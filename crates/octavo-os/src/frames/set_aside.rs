//! Frames that are set aside for a [`Placement`](crate::Placement): it alone gives them to pages, as long as other base
//! frames are free.

use std::ops::Range;

use octavo_types::FrameNumber;

use super::memory::Frames;
use super::{Order, Owner};

impl Frames {
    /// Sets the free frames of a range aside. Frames of the range that are freed are set aside again. An operation for
    /// which too few other frames are free ends that: it frees all of them.
    pub fn set_aside(&mut self, range: Range<u64>) {
        let inside = |block: FrameNumber, order: Order| {
            range.start.max(block.raw())..range.end.min(block.raw() + order.frames())
        };
        let blocks: Vec<_> = self.buddy().iter().collect();
        for (block, order) in blocks {
            let frames = inside(block, order);
            match frames.clone().count() as u64 == order.frames() {
                true => self.take_free(block, order),
                false => {
                    frames.clone().for_each(|at| self.take_free(FrameNumber::new(at), Order::BASE))
                }
            }
            for at in frames {
                self.ledger.assign(FrameNumber::new(at), 1, Owner::SetAside);
            }
        }
        self.set_aside = range;
    }

    /// Whether frames were set aside, even if none is now.
    pub fn sets_aside(&self) -> bool {
        self.set_aside.end > 0
    }

    /// Whether a frame is free, or set aside.
    pub fn is_placeable(&self, frame: FrameNumber) -> bool {
        self.owner(frame).is_none_or(|owner| owner == Owner::SetAside)
    }

    /// Allocates a frame for data, if it is free or set aside. Returns whether it was.
    pub fn allocate_placed(&mut self, frame: FrameNumber) -> bool {
        if self.owner(frame) != Some(Owner::SetAside) {
            return self.allocate_at(frame, Order::BASE, Owner::Data);
        }
        self.change_owner(frame, Order::BASE, Owner::Data);
        true
    }

    /// Frees all frames that are set aside. Returns whether there were any.
    pub(super) fn release_set_aside(&mut self) -> bool {
        let mut any = false;
        let released = self.set_aside.clone();
        self.set_aside.start = released.end;
        for at in released {
            let frame = FrameNumber::new(at);
            if self.owner(frame) == Some(Owner::SetAside) {
                any = true;
                self.free(frame, Order::BASE);
            }
        }
        any
    }
}
