//! Memory as a snapshot has it.

use super::FragmentationError;
use super::order_mix::{Excess, OrderMix};
use crate::frames::snapshot::{FrameRuns, FrameState, Snapshot, places};
use crate::frames::{Frames, MemoryShape, Owner};

impl Snapshot {
    /// The free blocks by order, for random placement. Background memory is movable in the share of regions
    /// reported by the kernel, or nowhere if unknown.
    pub fn order_mix(&self) -> OrderMix {
        OrderMix {
            free_blocks: self.header().free_blocks(),
            largest: self.header().largest(),
            movable_share: self.header().movable_share().unwrap_or(0.0),
        }
    }

    /// Builds the captured memory. With frame states, `shape` must have [`Snapshot::frames`] frames, the seed
    /// has no effect, and holes become unmovable background memory. Otherwise the order mix is scaled to
    /// `shape`; blocks that do not fit are split.
    pub(super) fn build(
        &self,
        shape: MemoryShape,
        seed: u64,
    ) -> Result<Frames, FragmentationError> {
        let Some(runs) = self.runs() else {
            let mix = self.order_mix().scaled(self.header().memory_frames, shape.frames());
            return mix.build(shape, seed, Excess::Split);
        };
        if shape.frames() != runs.frames() {
            let (snapshot, memory) = (runs.frames(), shape.frames());
            return Err(FragmentationError::SnapshotSize { snapshot, memory });
        }
        Ok(frames_of(runs, shape))
    }
}

fn frames_of(runs: &FrameRuns, shape: MemoryShape) -> Frames {
    let mut frames = Frames::all_owned_by(shape, Owner::Background { movable: false });
    for (state, start, length) in places(runs) {
        match state {
            FrameState::Free => frames.free_range(start, length),
            FrameState::Absent | FrameState::Fixed => {}
            FrameState::Movable | FrameState::Process => {
                frames.change_range(start, length, Owner::Background { movable: true });
            }
        }
    }
    frames
}
