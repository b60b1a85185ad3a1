//! The memory of a real machine, taken at one moment, as a file that a simulation starts from.
//!
//! A snapshot holds how many blocks of each order are free, which every user may read, and where
//! the rights allow the state of every frame. With the latter a simulation starts from the very
//! frames of the machine; else from memory with as many blocks of each order, somewhere.

mod about;
mod capture;
mod error;
mod file;
mod flags;
mod pagemap;
mod runs;
mod summary;
mod tables;

use octavo_types::FrameNumber;

pub use about::{About, Process, Regions, Zone};
pub use capture::PROC;
pub use error::SnapshotError;
pub use runs::{FrameRuns, FrameState};
pub use summary::{SizeCoverage, Summary};

use super::fragmentation::{Excess, FragmentationError, OrderMix};
use super::{Buddy, Coverage, Frames, Holder, MemoryShape, Order, blocks_of};

/// A machine's memory at one moment.
#[derive(Clone, PartialEq, Debug)]
pub struct Snapshot {
    about: About,
    runs: Option<FrameRuns>,
}

impl Snapshot {
    /// What it says of the machine.
    pub fn about(&self) -> &About {
        &self.about
    }

    /// The state of every frame, where it could be read.
    pub fn runs(&self) -> Option<&FrameRuns> {
        self.runs.as_ref()
    }

    /// The size of the memory that is as this one was: up to the last frame of the machine, its
    /// holes included, or as much memory as it has where its frames are not known.
    pub fn frames(&self) -> u64 {
        self.runs.as_ref().map_or(self.about.memory_frames, FrameRuns::frames)
    }

    /// The free blocks by order, to be placed anywhere. What holds the rest may be moved in as
    /// large a share of regions as the kernel says, and nowhere if it does not.
    pub fn order_mix(&self) -> OrderMix {
        OrderMix {
            free_blocks: self.about.free_blocks(),
            largest: self.about.largest(),
            movable_share: self.about.movable_share().unwrap_or(0.0),
        }
    }

    /// Memory as it was. Where every frame is known, `shape` must be of as many frames as
    /// [`Snapshot::frames`], and the same comes of every seed; holes are held as memory that
    /// cannot be moved. Else the order mix grows or shrinks to `shape`; a block that has no room
    /// there comes in parts.
    pub(super) fn build(
        &self,
        shape: MemoryShape,
        seed: u64,
    ) -> Result<Frames, FragmentationError> {
        let Some(runs) = &self.runs else {
            let mix = self.order_mix().scaled(self.about.memory_frames, shape.frames());
            return mix.build(shape, seed, Excess::Split);
        };
        if shape.frames() != runs.frames() {
            let (snapshot, memory) = (runs.frames(), shape.frames());
            return Err(FragmentationError::SnapshotSize { snapshot, memory });
        }
        Ok(frames_of(runs, shape))
    }

    /// How much of the free memory each page size could use. With every frame known it is that of
    /// blocks of any size; else of those up to the kernel's largest.
    pub fn coverage(&self) -> Coverage {
        match &self.runs {
            Some(runs) => {
                let mut buddy = Buddy::all_held(runs.frames(), Order::LARGEST);
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

/// Each run of frames: its state, its first frame, and how many.
fn places(runs: &FrameRuns) -> impl Iterator<Item = (FrameState, FrameNumber, u64)> + '_ {
    runs.iter().scan(FrameNumber::new(0), |next, (state, frames)| {
        let start = *next;
        *next = start.plus(frames);
        Some((state, start, frames))
    })
}

fn frames_of(runs: &FrameRuns, shape: MemoryShape) -> Frames {
    let mut frames = Frames::held_by(shape, Holder::Foreign { movable: false });
    for (state, start, length) in places(runs) {
        match state {
            FrameState::Free => frames.free_range(start, length),
            FrameState::Absent | FrameState::Fixed => {}
            FrameState::Movable | FrameState::Process => {
                frames.change_range(start, length, Holder::Foreign { movable: true });
            }
        }
    }
    frames
}
