//! What physical memory is like before a simulation begins.
//!
//! A start state and a seed give the same memory, frame by frame, each time and on every machine.

mod faults;
mod holes;
mod order_mix;
mod sampler;

pub use faults::Faults;
pub use holes::{HoleKind, HoleLayout, Holes};
pub(super) use order_mix::Excess;
pub use order_mix::OrderMix;

use std::sync::Arc;

use super::snapshot::Snapshot;
use super::{Frames, MemoryShape, Order};

/// A start state of physical memory.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Fragmentation {
    /// Everything is free.
    #[default]
    Empty,
    /// Frames that nobody may have.
    Faults(Faults),
    /// So many free blocks of each order.
    OrderMix(OrderMix),
    /// Holes in some of the 2 MiB regions.
    Holes(Holes),
    /// Holes of several kinds, each in regions of its own.
    MixedHoles(Vec<Holes>),
    /// As a real machine's was.
    Snapshot(Arc<Snapshot>),
}

impl Fragmentation {
    /// Memory of this shape in this state. High-water marks begin here.
    ///
    /// # Errors
    ///
    /// Where the state asks for what cannot be: a share outside 0 to 1, or more than fits.
    pub fn build(&self, shape: MemoryShape, seed: u64) -> Result<Frames, FragmentationError> {
        let mut frames = match self {
            Fragmentation::Empty => Frames::new(shape),
            Fragmentation::Faults(faults) => faults.build(shape, seed)?,
            Fragmentation::OrderMix(mix) => mix.build(shape, seed, Excess::Refuse)?,
            Fragmentation::Holes(holes) => holes::build(&[*holes], shape, seed)?,
            Fragmentation::MixedHoles(groups) => holes::build(groups, shape, seed)?,
            Fragmentation::Snapshot(snapshot) => snapshot.build(shape, seed)?,
        };
        frames.restart_peaks();
        Ok(frames)
    }
}

/// A start state that cannot be.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
pub enum FragmentationError {
    /// A share that is none.
    #[error("{what} {given}: give a share from 0 to 1")]
    Share {
        /// Which share.
        what: &'static str,
        /// What was given.
        given: f64,
    },
    /// Blocks larger than the largest.
    #[error(
        "the order mix has free blocks of order {order}, and says that none is above order {largest}"
    )]
    AboveLargest {
        /// The order of the blocks.
        order: Order,
        /// The largest order that the mix says there is.
        largest: Order,
    },
    /// More free memory than memory.
    #[error("the order mix has {free_frames} free frames; memory has {frames} frames in all")]
    TooMuch {
        /// What the mix has.
        free_frames: u64,
        /// What there is.
        frames: u64,
    },
    /// A memory of another size than the snapshot's.
    #[error(
        "the snapshot is of {snapshot} frames of 4 KiB, each of which is known, and memory has \
         {memory}: give memory the same size"
    )]
    SnapshotSize {
        /// Frames of the snapshot.
        snapshot: u64,
        /// Frames of the memory.
        memory: u64,
    },
    /// No place for blocks of one order.
    #[error(
        "the order mix has {wanted} free blocks of order {order}; beside the larger ones there is \
         room for {room}, as two that are buddies would merge"
    )]
    NoRoom {
        /// The order.
        order: Order,
        /// How many blocks the mix has.
        wanted: u64,
        /// How many could be placed.
        room: u64,
    },
}

fn check_share(what: &'static str, given: f64) -> Result<(), FragmentationError> {
    if (0.0..=1.0).contains(&given) {
        Ok(())
    } else {
        Err(FragmentationError::Share { what, given })
    }
}
