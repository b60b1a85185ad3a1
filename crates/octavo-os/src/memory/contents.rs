//! What happens to the contents of frames, counted; memory holds none of them.

use octavo_types::{FrameNumber, PageSize};

use super::Memory;
use crate::vmas::ObjectId;

/// Something that changed what frames hold. All else leaves them as they are; what a frame holds
/// that has just been allocated is not defined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Content {
    /// Frames were cleared.
    Zeroed {
        /// The first.
        frame: FrameNumber,
        /// How many.
        frames: u64,
    },
    /// Frames were copied.
    Copied {
        /// The first one that was read.
        from: FrameNumber,
        /// The first one that was written.
        to: FrameNumber,
        /// How many.
        frames: u64,
    },
    /// A page of a file was read in.
    Read {
        /// The file.
        object: ObjectId,
        /// Which of its pages.
        index: u64,
        /// Where to.
        frame: FrameNumber,
    },
}

impl Memory {
    /// From now on all changes of contents are kept for [`Memory::take_contents`]: for tests, since
    /// nobody else wants to know.
    pub fn record_contents(&mut self) {
        self.contents = Some(Vec::new());
    }

    /// All changes of contents since the last call, in order.
    pub fn take_contents(&mut self) -> Vec<Content> {
        self.contents.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Counts `frames` frames from `frame` on as cleared: whoever gives new memory to a program
    /// clears it.
    #[inline]
    pub fn zeroed(&mut self, frame: FrameNumber, frames: u64) {
        self.counters.bytes_zeroed += frames * PageSize::BASE.bytes();
        self.note_content(frame, frames, |_, _| false);
        if let Some(contents) = &mut self.contents {
            contents.push(Content::Zeroed { frame, frames });
        }
    }

    /// Counts `frames` frames as copied.
    #[inline]
    pub fn copied(&mut self, from: FrameNumber, to: FrameNumber, frames: u64) {
        self.counters.bytes_copied += frames * PageSize::BASE.bytes();
        self.note_content(to, frames, |all, number| all[from.plus(number).raw() as usize]);
        if let Some(contents) = &mut self.contents {
            contents.push(Content::Copied { from, to, frames });
        }
    }

    /// Counts a file's page as read.
    pub(super) fn read(&mut self, object: ObjectId, index: u64, frame: FrameNumber) {
        self.counters.bytes_read += PageSize::BASE.bytes();
        self.note_stored(frame);
        if let Some(contents) = &mut self.contents {
            contents.push(Content::Read { object, index, frame });
        }
    }
}
