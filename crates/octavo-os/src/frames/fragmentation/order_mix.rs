//! A start state by how many free blocks of each order there are.

use octavo_types::FrameNumber;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use super::sampler::{Sampler, part_of};
use super::{FragmentationError, check_share};
use crate::frames::{Frames, Holder, MemoryShape, Order};

/// So many free blocks of each order, and the rest held by others: what `/proc/buddyinfo` says of
/// a memory. Where the blocks lie is random.
#[derive(Clone, PartialEq, Debug)]
pub struct OrderMix {
    /// Free blocks by order.
    pub free_blocks: [u64; Order::COUNT],
    /// The largest order that the memory told of could have. Two free buddies of an order below
    /// would have been one block, so none are placed; of this order, they may lie side by side.
    pub largest: Order,
    /// The share of 2 MiB regions, 0 to 1, in which what is held may be moved. Linux keeps what
    /// moves and what does not in different regions of that size.
    pub movable_share: f64,
}

impl OrderMix {
    /// The same mix in a memory of `to_frames` instead of `from_frames`: the numbers of blocks
    /// grow or shrink with it, to the nearest whole number.
    pub fn scaled(&self, from_frames: u64, to_frames: u64) -> Self {
        let scale = to_frames as f64 / from_frames as f64;
        let free_blocks = self.free_blocks.map(|blocks| part_of(blocks, scale));
        OrderMix { free_blocks, ..self.clone() }
    }

    /// Frames in all free blocks, or `None` where that is past all bounds.
    fn free_frames(&self) -> Option<u64> {
        Order::all().try_fold(0u64, |sum, order| {
            sum.checked_add(self.free_blocks[order.index()].checked_mul(order.frames())?)
        })
    }

    /// Refuses numbers that cannot be, whatever the memory is.
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
        let mut frames = Frames::held_by(shape, Holder::Foreign { movable: false });
        make_movable(&mut frames, self.movable_share, &mut random);
        // From the largest down, so that what is placed already is never broken: what is left of
        // memory is whole blocks of the order above.
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

    /// Frees `wanted` blocks of `order`, or as many as there is room for, and says how many. All
    /// blocks free now are larger, so that a pair of buddies is held if its first frame is.
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
        let room = groups().filter(|&group| frames.holder(at(group)).is_some()).count() as u64;
        let placed = wanted.min(room);
        let mut sampler = Sampler::new(random, room, placed);
        for group in groups() {
            if sampler.is_done() {
                break;
            }
            if frames.holder(at(group)).is_some() && sampler.chooses_next() {
                let choices = together.min(blocks - group);
                let block = group + sampler.below(choices);
                frames.free_range(at(block), order.frames());
            }
        }
        placed
    }
}

/// What becomes of free blocks that memory has no room for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::frames) enum Excess {
    /// The mix is refused.
    Refuse,
    /// Each becomes two of the order below; those of the lowest are left out.
    Split,
}

/// Lets what is held in a share of the 2 MiB regions of a memory be moved.
fn make_movable(frames: &mut Frames, share: f64, random: &mut Xoshiro256PlusPlus) {
    let regions = frames.shape().frames() / Order::HUGE.frames();
    let mut sampler = Sampler::new(random, regions, part_of(regions, share));
    for region in 0..regions {
        if sampler.chooses_next() {
            let start = FrameNumber::new(region * Order::HUGE.frames());
            frames.change_holder(start, Order::HUGE, Holder::Foreign { movable: true });
        }
    }
}
