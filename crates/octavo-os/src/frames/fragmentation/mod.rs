//! The initial state of physical memory.
//!
//! An initial state and a seed determine the memory, frame by frame, on every machine.

mod faults;
mod holes;
mod of_snapshot;
mod order_mix;
mod sampler;

pub use faults::Faults;
pub use holes::{HoleKind, HoleLayout, Holes};
use order_mix::Excess;
pub use order_mix::OrderMix;

use std::sync::Arc;

use octavo_types::PageSize;
use octavo_types::values::size_text;

use super::snapshot::Snapshot;
use super::{Frames, MemoryShape, Order};

/// An initial state of physical memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Fragmentation {
    /// All memory is free.
    #[default]
    Empty,
    /// Faulty frames.
    Faults(Faults),
    /// A number of free blocks of each order.
    OrderMix(OrderMix),
    /// Holes in some of the 2 MiB regions.
    Holes(Holes),
    /// Holes of several kinds, each in regions of its own.
    MixedHoles(Vec<Holes>),
    /// The state of a real machine.
    Snapshot(Arc<Snapshot>),
}

impl Fragmentation {
    /// Builds a memory of this shape in this state. Peaks start at the initial counts.
    ///
    /// # Errors
    ///
    /// If the state is infeasible: a share outside 0 to 1, or more than fits.
    pub fn build(&self, shape: MemoryShape, seed: u64) -> Result<Frames, FragmentationError> {
        let mut frames = match self {
            Fragmentation::Empty => Frames::new(shape),
            Fragmentation::Faults(faults) => faults.build(shape, seed)?,
            Fragmentation::OrderMix(mix) => mix.build(shape, seed, Excess::Refuse)?,
            Fragmentation::Holes(holes) => holes::build(&[*holes], shape, seed)?,
            Fragmentation::MixedHoles(groups) => holes::build(groups, shape, seed)?,
            Fragmentation::Snapshot(snapshot) => snapshot.build(shape, seed)?,
        };
        frames.reset_peaks();
        Ok(frames)
    }
}

/// An infeasible initial state.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum FragmentationError {
    /// A share outside 0 to 1.
    #[error("{quantity} {given}: give a share from 0 to 1")]
    Share {
        /// The name of the share.
        quantity: &'static str,
        /// The given value.
        given: f64,
    },
    /// Free blocks above the largest order of the mix.
    #[error(
        "the order mix has free blocks of order {order}, and says that none is above order {largest}"
    )]
    AboveLargest {
        /// The order of the blocks.
        order: Order,
        /// The largest order of the mix.
        largest: Order,
    },
    /// More free frames than memory has.
    #[error("the order mix has {free_frames} free frames; memory has {frames} frames in all")]
    TooMuch {
        /// Free frames of the mix.
        free_frames: u64,
        /// Frames of memory.
        frames: u64,
    },
    /// A memory size other than the snapshot's.
    #[error(
        "the snapshot is of {snapshot}, and memory.bytes is {memory}: give memory.bytes={snapshot}, or \
         no snapshot (memory.fragmentation.kind=empty)",
        snapshot = size_text(.snapshot * PageSize::BASE.bytes()),
        memory = size_text(.memory * PageSize::BASE.bytes())
    )]
    SnapshotSize {
        /// Frames of the snapshot.
        snapshot: u64,
        /// Frames of the memory.
        memory: u64,
    },
    /// Not enough room for the free blocks of one order.
    #[error(
        "the order mix has {wanted} free blocks of order {order}; beside the larger ones there is \
         room for {room}, as two that are buddies would merge"
    )]
    NoRoom {
        /// The order.
        order: Order,
        /// Blocks of the mix.
        wanted: u64,
        /// Blocks that could be placed.
        room: u64,
    },
}

fn check_share(quantity: &'static str, given: f64) -> Result<(), FragmentationError> {
    if (0.0..=1.0).contains(&given) {
        Ok(())
    } else {
        Err(FragmentationError::Share { quantity, given })
    }
}
