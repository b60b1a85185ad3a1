//! An initial state by the number of free blocks of each order.

use octavo_types::FrameNumber;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::sampler::{Sampler, part_of};
use super::{FragmentationError, check_share};
use crate::frames::{Frames, MemoryShape, Order, Owner};

/// Free blocks by order, as in `/proc/buddyinfo`; the rest is background memory. The location of the blocks
/// is random.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderMix {
    /// Free blocks by order.
    pub free_blocks: [u64; Order::COUNT],
    /// The largest order of the described memory. Free buddies of a smaller order would have merged, so that
    /// none are placed; blocks of this order may be adjacent.
    pub largest: Order,
    /// The share of 2 MiB regions, 0 to 1, whose background memory is movable. Linux keeps movable and
    /// unmovable memory in different regions of that size.
    pub movable_share: f64,
}

impl OrderMix {
    /// Scales the mix from a memory of `from_frames` to one of `to_frames`; block counts are rounded to the
    /// nearest.
    pub fn scaled(&self, from_frames: u64, to_frames: u64) -> Self {
        let scale = to_frames as f64 / from_frames as f64;
        let free_blocks = self.free_blocks.map(|blocks| part_of(blocks, scale));
        OrderMix { free_blocks, ..self.clone() }
    }

    /// Frames of all free blocks, or `None` on overflow.
    fn free_frames(&self) -> Option<u64> {
        Order::all().try_fold(0u64, |sum, order| {
            sum.checked_add(self.free_blocks[order.index()].checked_mul(order.frames())?)
        })
    }

    /// Rejects counts that fit no memory.
    fn check(&self) -> Result<(), FragmentationError> {
        check_share("movable share", self.movable_share)?;
        let mut above = Order::all().skip(self.largest.index() + 1);
        match above.find(|order| self.free_blocks[order.index()] > 0) {
            Some(order) => Err(FragmentationError::AboveLargest { order, largest: self.largest }),
            None => Ok(()),
        }
    }

    pub(in crate::frames) fn build(
        &self,
        shape: MemoryShape,
        seed: u64,
        excess: Excess,
    ) -> Result<Frames, FragmentationError> {
        self.check()?;
        let free_frames = self.free_frames().unwrap_or(u64::MAX);
        if excess == Excess::Refuse && free_frames > shape.frames() {
            return Err(FragmentationError::TooMuch { free_frames, frames: shape.frames() });
        }
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut frames = Frames::all_owned_by(shape, Owner::Background { movable: false });
        make_movable(&mut frames, self.movable_share, &mut random);
        // From the largest order down, so that placed blocks are never split: the remaining memory consists
        // of whole blocks of the order above.
        let mut from_larger = 0;
        for order in self.largest.and_smaller().rev() {
            let wanted = self.free_blocks[order.index()] + from_larger;
            let placed = self.place(order, wanted, &mut frames, &mut random);
            if placed < wanted && excess == Excess::Refuse {
                return Err(FragmentationError::NoRoom { order, wanted, room: placed });
            }
            from_larger = 2 * (wanted - placed);
        }
        Ok(frames)
    }

    /// Frees `wanted` blocks of `order`, or as many as have room, and returns their number. All blocks free
    /// so far are larger, so that a pair of buddies is allocated if its first frame is.
    fn place(
        &self,
        order: Order,
        wanted: u64,
        frames: &mut Frames,
        random: &mut Xoshiro256PlusPlus,
    ) -> u64 {
        if wanted == 0 {
            return 0;
        }
        let blocks = frames.shape().frames() >> order.raw();
        let may_be_side_by_side = order == self.largest;
        // The last block of memory may have no buddy.
        let together = if may_be_side_by_side { 1 } else { 2 };
        let groups = || (0..blocks).step_by(together as usize);
        let at = |block: u64| FrameNumber::new(block << order.raw());
        let room = groups().filter(|&group| frames.owner(at(group)).is_some()).count() as u64;
        let placed = wanted.min(room);
        let mut sampler = Sampler::new(random, room, placed);
        for group in groups() {
            if sampler.is_done() {
                break;
            }
            if frames.owner(at(group)).is_some() && sampler.chooses_next() {
                let choices = together.min(blocks - group);
                let block = group + sampler.below(choices);
                frames.free_range(at(block), order.frames());
            }
        }
        placed
    }
}

/// The treatment of free blocks that do not fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::frames) enum Excess {
    /// Reject the mix.
    Refuse,
    /// Split each into two of the order below; drop those of order 0.
    Split,
}

/// Makes the background memory of a share of the 2 MiB regions movable.
fn make_movable(frames: &mut Frames, share: f64, random: &mut Xoshiro256PlusPlus) {
    let regions = frames.shape().frames() / Order::HUGE.frames();
    let mut sampler = Sampler::new(random, regions, part_of(regions, share));
    for region in 0..regions {
        if sampler.chooses_next() {
            let start = FrameNumber::new(region * Order::HUGE.frames());
            frames.change_owner(start, Order::HUGE, Owner::Background { movable: true });
        }
    }
}
