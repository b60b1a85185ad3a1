//! The initial state of memory from a snapshot.

use octavo_types::FrameNumber;

use super::FragmentationError;
use super::order_mix::{Excess, OrderMix};
use crate::frames::snapshot::{FrameRuns, FrameState, Snapshot, places};
use crate::frames::{Frames, MemoryShape, Order, Owner};

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
    /// has no effect, holes become unmovable background memory, and the kernel keeps the free blocks of regions that
    /// are not movable, since Linux allocates pages of programs in movable regions (`mm/page_alloc.c`, migrate types).
    /// Without frame states, the order mix is scaled to `shape`, and blocks that do not fit are split.
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
        let mut frames = frames_of(runs, shape);
        let regions = not_movable(runs, self.header().other_regions().unwrap_or(0));
        let region = |frame: FrameNumber| (frame.raw() / Order::HUGE.frames()) as usize;
        let blocks = frames.buddy().iter();
        let kept = blocks.filter(|(at, order)| *order < Order::HUGE && regions[region(*at)]);
        let kept = kept.collect();
        frames.keep_for_kernel(kept);
        Ok(frames)
    }
}

/// Whether each 2 MiB region is one of the `count` regions that are not movable. The kernel reports only their number;
/// they are assumed to be the regions with free memory that have the most kernel frames.
fn not_movable(runs: &FrameRuns, count: u64) -> Vec<bool> {
    let region_frames = Order::HUGE.frames();
    let regions = runs.frames().div_ceil(region_frames) as usize;
    let (mut fixed, mut has_free) = (vec![0u64; regions], vec![false; regions]);
    for (state, start, length) in places(runs) {
        let (mut at, end) = (start.raw(), start.raw() + length);
        while at < end {
            let region = (at / region_frames) as usize;
            let next = end.min((region as u64 + 1) * region_frames);
            fixed[region] += if state == FrameState::Fixed { next - at } else { 0 };
            has_free[region] |= state == FrameState::Free;
            at = next;
        }
    }
    let mut by_fixed: Vec<usize> =
        (0..regions).filter(|region| has_free[*region] && fixed[*region] > 0).collect();
    by_fixed.sort_by_key(|region| std::cmp::Reverse(fixed[*region]));
    let mut chosen = vec![false; regions];
    by_fixed.into_iter().take(count as usize).for_each(|region| chosen[region] = true);
    chosen
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
