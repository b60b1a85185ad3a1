//! A start state with faulty memory (paper 004, Section VII-D; Du et al., "Supporting Superpages in
//! Non-Contiguous Physical Memory", HPCA 2015): frames in which errors have been found, and which the operating
//! system gives to nobody.

use octavo_types::FrameNumber;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::sampler::{Sampler, part_of};
use super::{FragmentationError, HoleLayout, check_share};
use crate::frames::tables::frames_of_tables;
use crate::frames::{Frames, Holder, MemoryShape, Order, SubBlocks};

/// Frames of a run of clustered faults: 64 KiB.
const RUN: u64 = SubBlocks::ORDER.frames();

/// A share of all frames is faulty; the others are free.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Faults {
    /// The share, 0 to 1.
    pub portion: f64,
    /// Dispersed: any choice of so many frames is as likely as any other. Clustered: the same of runs of
    /// 64 KiB, of which as many are faulty as come nearest to the share.
    pub layout: HoleLayout,
}

impl Faults {
    /// Memory with such frames. Its very last ones, in which tables lie that hardware finds by their place
    /// (0.003% of memory), have no faults: with a share above what the others are, there are fewer.
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
        // Each run counts as one place, and so does each frame that is in none.
        let mut sampler = Sampler::new(&mut random, room - wanted * (run - 1), wanted);
        let mut frames = Frames::new(shape);
        let mut at = 0;
        while !sampler.is_done() {
            if !sampler.chooses_next() {
                at += 1;
                continue;
            }
            for frame in (at..at + run).map(FrameNumber::new) {
                let taken = frames.allocate_at(frame, Order::BASE, Holder::Faulty);
                debug_assert!(taken, "each fault has a place of its own");
            }
            at += run;
        }
        Ok(frames)
    }
}
