//! Counts changes of frame contents; the contents themselves are not simulated.

use octavo_types::{FrameNumber, PageSize};

use super::Memory;
use crate::frames::Order;
use crate::vmas::ObjectId;

/// A change of frame contents. Other operations preserve them; the contents of a newly allocated frame are
/// undefined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Frames were cleared.
    Zeroed {
        /// The first frame.
        frame: FrameNumber,
        /// The number of frames.
        frames: u64,
    },
    /// Frames were copied.
    Copied {
        /// The first source frame.
        from: FrameNumber,
        /// The first target frame.
        to: FrameNumber,
        /// The number of frames.
        frames: u64,
    },
    /// A page of a file was read in.
    Read {
        /// The file.
        object: ObjectId,
        /// The index of the page.
        index: u64,
        /// The target frame.
        frame: FrameNumber,
    },
}

impl Memory {
    /// Records all changes of contents from now on for [`Memory::take_contents`], for tests.
    pub fn record_contents(&mut self) {
        self.contents = Some(Vec::new());
    }

    /// The changes of contents since the last call, in order.
    pub fn take_contents(&mut self) -> Vec<Content> {
        self.contents.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Counts `frames` frames from `frame` on as cleared. Must be called for memory that programs get.
    #[inline]
    pub fn zeroed(&mut self, frame: FrameNumber, frames: u64) {
        self.counters.bytes_zeroed += frames * PageSize::BASE.bytes();
        self.record_content(frame, frames, |_, _| false);
        if let Some(contents) = &mut self.contents {
            contents.push(Content::Zeroed { frame, frames });
        }
    }

    /// Clears the free block of `order` at `block` ahead of its next owner.
    pub fn clear_ahead(&mut self, block: FrameNumber, order: Order) {
        self.zeroed(block, order.frames());
        self.frames.mark_clear(block, order);
        self.counters.bytes_zeroed_ahead += order.frames() * PageSize::BASE.bytes();
    }

    /// Counts `frames` frames as copied.
    #[inline]
    pub fn copied(&mut self, from: FrameNumber, to: FrameNumber, frames: u64) {
        self.counters.bytes_copied += frames * PageSize::BASE.bytes();
        self.record_copy(from, to, frames);
    }

    /// Records that `frames` frames from `to` on have the contents of those from `from` on.
    pub(super) fn record_copy(&mut self, from: FrameNumber, to: FrameNumber, frames: u64) {
        self.record_content(to, frames, |all, number| all[from.plus(number).raw() as usize]);
        if let Some(contents) = &mut self.contents {
            contents.push(Content::Copied { from, to, frames });
        }
    }

    /// Counts a file's page as read.
    pub(super) fn read(&mut self, object: ObjectId, index: u64, frame: FrameNumber) {
        self.counters.bytes_read += PageSize::BASE.bytes();
        self.record_store(frame);
        if let Some(contents) = &mut self.contents {
            contents.push(Content::Read { object, index, frame });
        }
    }
}
