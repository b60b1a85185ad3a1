//! Snapshots: the memory state of a real machine at one moment, as an initial state of simulations.
//!
//! A snapshot holds the number of free blocks of each order, which every user may read, and the state of
//! every frame if permissions allow. With frame states, a simulation starts from exactly that memory;
//! otherwise from a memory with as many free blocks of each order.

mod capture;
mod error;
mod file;
mod flags;
mod header;
mod pagemap;
mod proc_text;
mod runs;
mod summary;

use octavo_types::FrameNumber;

pub use capture::PROC;
pub use error::SnapshotError;
pub use header::{Process, Regions, SnapshotHeader, Zone};
pub use runs::{FrameRuns, FrameState};
pub use summary::{SizeCoverage, Summary};

use super::{Buddy, Coverage, Order, blocks_of};

/// A machine's memory at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    about: SnapshotHeader,
    runs: Option<FrameRuns>,
}

impl Snapshot {
    /// Facts about the machine.
    pub fn header(&self) -> &SnapshotHeader {
        &self.about
    }

    /// The state of every frame, if it could be read.
    pub fn runs(&self) -> Option<&FrameRuns> {
        self.runs.as_ref()
    }

    /// The number of frames of an equal memory: up to the last frame, including holes; or the amount of
    /// memory if frame states are unknown.
    pub fn frames(&self) -> u64 {
        self.runs.as_ref().map_or(self.about.memory_frames, FrameRuns::frames)
    }

    /// The coverage of free memory by page size: of all sizes with frame states, else up to the kernel's
    /// largest block.
    pub fn coverage(&self) -> Coverage {
        match &self.runs {
            Some(runs) => {
                let mut buddy = Buddy::all_allocated(runs.frames(), Order::LARGEST);
                for (_, start, frames) in places(runs).filter(|run| run.0 == FrameState::Free) {
                    for (block, order) in blocks_of(start, frames, Order::LARGEST) {
                        buddy.free(block, order);
                    }
                }
                Coverage::of(&buddy)
            }
            None => {
                let free_blocks = self.about.free_blocks();
                Coverage::of_blocks(|order| free_blocks[order.index()], self.about.largest())
            }
        }
    }
}

/// The runs of frames: state, first frame and length.
pub(super) fn places(
    runs: &FrameRuns,
) -> impl Iterator<Item = (FrameState, FrameNumber, u64)> + '_ {
    runs.iter().scan(FrameNumber::new(0), |next, (state, frames)| {
        let start = *next;
        *next = start.plus(frames);
        Some((state, start, frames))
    })
}
