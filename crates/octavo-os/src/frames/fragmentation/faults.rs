//! An initial state with faulty memory (Du et al., HPCA 2015; Park et al., ISCA 2020, Section VII-D): frames
//! with detected errors, which the operating system never allocates.

use octavo_types::FrameNumber;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::sampler::{Sampler, part_of};
use super::{FragmentationError, HoleLayout, check_share};
use crate::frames::fixed_tables::frames_of_tables;
use crate::frames::{Frames, MemoryShape, Order, Owner, SubBlocks};

/// Frames of a run of clustered faults: 64 KiB.
const RUN: u64 = SubBlocks::ORDER.frames();

/// A share of all frames is faulty; the others are free.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Faults {
    /// The share, 0 to 1.
    pub portion: f64,
    /// Dispersed: a uniform choice of single frames. Clustered: a uniform choice of 64 KiB runs, their number
    /// rounded to the nearest.
    pub layout: HoleLayout,
}

impl Faults {
    /// Builds a memory with such frames. Its last frames, which hold fixed tables (0.003% of memory), have no
    /// faults: a share above that of the remaining frames yields fewer.
    pub(super) fn build(
        &self,
        shape: MemoryShape,
        seed: u64,
    ) -> Result<Frames, FragmentationError> {
        check_share("portion of faults", self.portion)?;
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let run = match self.layout {
            HoleLayout::Dispersed => 1,
            HoleLayout::Clustered => RUN,
        };
        let room = shape.frames().saturating_sub(frames_of_tables(shape.frames()));
        let wanted = part_of(shape.frames(), self.portion / run as f64).min(room / run);
        // Each run counts as one place, as does each frame outside the runs.
        let mut sampler = Sampler::new(&mut random, room - wanted * (run - 1), wanted);
        let mut frames = Frames::new(shape);
        let mut at = 0;
        while !sampler.is_done() {
            if !sampler.chooses_next() {
                at += 1;
                continue;
            }
            for frame in (at..at + run).map(FrameNumber::new) {
                let taken = frames.allocate_at(frame, Order::BASE, Owner::Faulty);
                debug_assert!(taken, "each fault has a place of its own");
            }
            at += run;
        }
        Ok(frames)
    }
}
