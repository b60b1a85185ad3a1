//! The buddy allocator: free physical memory as blocks of `2^order` frames, aligned to their size; two free
//! buddies always merge (Guvenilir and Patt, ISCA 2020, Section II-B, "Buddy Memory Allocation").
//!
//! An allocation takes the lowest block of the smallest sufficient order. Linux takes the block freed last,
//! which depends on all of the history; the lowest address is predictable, packs allocations at one end, and
//! costs nothing to find.
//!
//! Memory may have tiers, by address: then an allocation takes the block from the first tier that has a large enough
//! one, beginning with local memory, like the zone list of a Linux node. A block is in the tier of its first frame.
//!
//! Each order has a set of its free blocks ([`Bits`]): two bits per frame in total, and since memory starts
//! as a few large blocks, mostly untouched words.

use std::ops::Range;

use octavo_types::FrameNumber;

use super::bits::Bits;
use super::order::{Order, blocks_of};

/// The free memory of a machine.
#[derive(Clone, Debug)]
pub struct Buddy {
    /// The free blocks by order; the number of a block is its first frame shifted right by the order.
    free: Vec<Bits>,
    /// One bit per order with a free block.
    orders_with_any: u32,
    free_frames: u64,
    frames: u64,
    largest: Order,
    /// The first frame of each tier but the first.
    tiers: Vec<u64>,
}

/// One bit for each frame of a region of [`Order::HUGE`].
pub type RegionFrames = [u64; (Order::HUGE.frames() / 64) as usize];

/// The bits of a word at even places.
const EVEN_BITS: u64 = 0x5555_5555_5555_5555;

/// The bits of a word at even places, side by side; those at odd places are not set.
fn even_bits(word: u64) -> u64 {
    let steps = [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ];
    steps.into_iter().fold(word, |bits, (shift, kept)| (bits | bits >> shift) & kept)
}

impl Buddy {
    /// Memory of `frames` free frames, with blocks of up to `largest`.
    pub fn all_free(frames: u64, largest: Order) -> Self {
        let mut buddy = Buddy::all_allocated(frames, largest);
        let whole = frames >> largest.raw();
        buddy.free[largest.index()] = Bits::with_first(whole, whole);
        if whole > 0 {
            buddy.orders_with_any = 1 << largest.raw();
        }
        buddy.free_frames = whole << largest.raw();
        let rest = FrameNumber::new(buddy.free_frames);
        for (block, order) in blocks_of(rest, frames - rest.raw(), largest) {
            buddy.free(block, order);
        }
        buddy
    }

    /// Memory of `frames` allocated frames.
    pub fn all_allocated(frames: u64, largest: Order) -> Self {
        let free = largest.and_smaller().map(|order| Bits::new(frames >> order.raw())).collect();
        Buddy { free, orders_with_any: 0, free_frames: 0, frames, largest, tiers: Vec::new() }
    }

    /// Divides memory into tiers: local memory, and a tier that begins at each of these frames.
    pub fn set_tiers(&mut self, tiers: Vec<u64>) {
        self.tiers = tiers;
    }

    /// The frames of each tier. Without tiers, all of memory.
    pub fn tiers(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        let starts = [0].into_iter().chain(self.tiers.iter().copied());
        let ends = self.tiers.iter().copied().chain([self.frames]);
        starts.zip(ends).map(|(start, end)| start..end)
    }

    /// The number of frames, free or not.
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// The largest order of a block.
    pub fn largest(&self) -> Order {
        self.largest
    }

    /// Number of free frames.
    #[inline]
    pub fn free_frames(&self) -> u64 {
        self.free_frames
    }

    /// The number of free blocks of exactly `order`.
    pub fn free_blocks(&self, order: Order) -> u64 {
        self.free.get(order.index()).map_or(0, Bits::count)
    }

    /// The order of the largest free block, or `None` if no frame is free.
    pub fn largest_free_order(&self) -> Option<Order> {
        self.orders_with_any.checked_ilog2().and_then(|order| Order::new(order as u8))
    }

    /// Allocates a block of `order`: splits the lowest free block of the smallest sufficient order and keeps
    /// its lowest part. `None` if no block is large enough.
    #[inline]
    pub fn allocate(&mut self, order: Order) -> Option<FrameNumber> {
        let fitting = self.orders_with_any >> order.raw();
        if fitting == 0 {
            return None;
        }
        let mut from = order.raw() + fitting.trailing_zeros() as u8;
        let mut block =
            self.free[usize::from(from)].first().expect("an order that has free blocks");
        if !self.tiers.is_empty() {
            (from, block) = self.first_in_tiers(order)?;
        }
        let frame = block << from;
        self.remove(from, block);
        for half in order.raw()..from {
            self.insert(half, (frame >> half) + 1);
        }
        self.free_frames -= order.frames();
        Some(FrameNumber::new(frame))
    }

    /// The lowest block of the smallest sufficient order in the first tier that has one.
    fn first_in_tiers(&self, order: Order) -> Option<(u8, u64)> {
        self.tiers().find_map(|tier| {
            self.largest.and_smaller().skip(order.index()).find_map(|at| {
                let block = self.free[at.index()].next(tier.start.div_ceil(at.frames()))?;
                (block << at.raw() < tier.end).then_some((at.raw(), block))
            })
        })
    }

    /// Allocates exactly the block of `order` at `frame`. Returns whether all of it was free; an unaligned
    /// block, or one outside memory, never is.
    pub fn allocate_at(&mut self, frame: FrameNumber, order: Order) -> bool {
        if !order.is_aligned(frame) {
            return false;
        }
        let Some((_, from)) = self.free_block_around(frame, order) else { return false };
        self.remove(from.raw(), frame.raw() >> from.raw());
        // At each halving on the way down, the other half stays free.
        for half in order.raw()..from.raw() {
            self.insert(half, (frame.raw() >> half) ^ 1);
        }
        self.free_frames -= order.frames();
        true
    }

    /// Allocates single frames of the free region of [`Order::HUGE`] at `region`: those whose bits are set in `frames`,
    /// at least one. Leaves the blocks that [`Buddy::allocate_at`] leaves for one frame after the other.
    pub fn allocate_frames(&mut self, region: FrameNumber, frames: &RegionFrames) {
        let top = self.largest.min(Order::HUGE);
        for block in 0..Order::HUGE.frames() / top.frames() {
            let was_free = self.allocate_at(region.plus(block * top.frames()), top);
            debug_assert!(was_free, "the region at frame {} is free", region.raw());
        }
        let mut free = frames.map(|word| !word);
        self.free_frames += free.iter().map(|word| u64::from(word.count_ones())).sum::<u64>();
        for order in top.and_smaller() {
            let words = (Order::HUGE.frames() >> order.raw()).div_ceil(64) as usize;
            let mut larger = RegionFrames::default();
            for (at, word) in free[..words].iter().enumerate() {
                let pairs = if order < top { word & (word >> 1) & EVEN_BITS } else { 0 };
                let (alone, first) = (word & !(pairs * 0b11), region.raw() >> order.raw());
                self.free[order.index()].insert_all(first + 64 * at as u64, alone);
                self.orders_with_any |= u32::from(alone != 0) << order.raw();
                larger[at / 2] |= even_bits(pairs) << (32 * (at % 2));
            }
            free = larger;
        }
    }

    /// Allocates the lowest `blocks` contiguous blocks of the largest order. `None` if there are none.
    pub fn allocate_run_of_largest(&mut self, blocks: u64) -> Option<FrameNumber> {
        let largest = self.largest;
        let (mut first, mut next) = (None, None);
        let start = self.blocks(largest).find_map(|block| {
            if next != Some(block) {
                first = Some(block);
            }
            next = Some(block.plus(largest.frames()));
            let start = first?;
            (block.raw() - start.raw() == (blocks - 1) * largest.frames()).then_some(start)
        })?;
        for number in 0..blocks {
            self.allocate_at(start.plus(number * largest.frames()), largest);
        }
        Some(start)
    }

    /// Frees the block of `order` at `frame` and merges it with free buddies.
    ///
    /// # Panics
    ///
    /// If memory has no such block. Debug builds also check that it was allocated; [`Frames`](super::Frames)
    /// tracks the owners.
    #[inline]
    pub fn free(&mut self, frame: FrameNumber, order: Order) {
        assert!(
            order <= self.largest
                && order.is_aligned(frame)
                && frame.raw() + order.frames() <= self.frames,
            "no block of {order:?} begins at frame {}",
            frame.raw()
        );
        debug_assert!(!self.any_free(frame, order), "frames of {} are free", frame.raw());
        self.free_frames += order.frames();
        let mut at = order.raw();
        let mut block = frame.raw() >> at;
        while at < self.largest.raw() && self.free[usize::from(at)].contains(block ^ 1) {
            self.remove(at, block ^ 1);
            block >>= 1;
            at += 1;
        }
        self.insert(at, block);
    }

    /// Whether every frame of the block of `order` at `frame` is free; false above the largest order.
    pub fn is_free(&self, frame: FrameNumber, order: Order) -> bool {
        order.is_aligned(frame) && self.free_block_around(frame, order).is_some()
    }

    /// The free block of at least `order` that holds `frame`: its first frame and its order.
    pub fn free_block_around(
        &self,
        frame: FrameNumber,
        order: Order,
    ) -> Option<(FrameNumber, Order)> {
        let mut orders = self.largest.and_smaller().skip(order.index());
        let found = orders.find(|at| self.free[at.index()].contains(frame.raw() >> at.raw()))?;
        Some((found.align_down(frame), found))
    }

    /// The number of free frames in a range of memory.
    pub fn free_in(&self, frames: &Range<u64>) -> u64 {
        let of_order = self.free.iter().enumerate().map(|(order, bits)| {
            let first = frames.start >> order;
            // The last block may begin in the range and end behind all of memory: that one is never free.
            let end = frames.end.div_ceil(1 << order);
            let blocks = bits.count_in(first..end.min(self.frames >> order));
            let before = if bits.contains(first) { frames.start - (first << order) } else { 0 };
            let has_last = frames.end > 0 && bits.contains(end - 1);
            let after = if has_last { (end << order) - frames.end } else { 0 };
            (blocks << order) - before - after
        });
        of_order.sum()
    }

    /// The free blocks of exactly `order`, by address.
    pub fn blocks(&self, order: Order) -> impl Iterator<Item = FrameNumber> + '_ {
        let bits = self.free.get(order.index());
        bits.into_iter()
            .flat_map(Bits::iter)
            .map(move |block| FrameNumber::new(block << order.raw()))
    }

    /// The free blocks of `order`, parts of larger ones among them, in the order in which [`Buddy::allocate`] takes them
    /// from memory without tiers.
    pub fn blocks_in_larger(&self, order: Order) -> impl Iterator<Item = FrameNumber> + '_ {
        let at_least = self.largest.and_smaller().skip(order.index());
        let parts = move |block: FrameNumber, at: Order| {
            (0..at.frames()).step_by(order.frames() as usize).map(move |part| block.plus(part))
        };
        at_least.flat_map(move |at| self.blocks(at).flat_map(move |block| parts(block, at)))
    }

    /// All free blocks, by address.
    pub fn iter(&self) -> impl Iterator<Item = (FrameNumber, Order)> + '_ {
        let mut by_order: Vec<_> = self
            .largest
            .and_smaller()
            .map(|order| (order, self.blocks(order).peekable()))
            .collect();
        std::iter::from_fn(move || {
            let next = by_order
                .iter_mut()
                .filter_map(|(order, blocks)| Some((*blocks.peek()?, *order)))
                .min()?;
            by_order[next.1.index()].1.next();
            Some(next)
        })
    }

    /// The highest frame below `end` that is free in a block smaller than `order`.
    pub fn last_in_smaller(&self, order: Order, end: u64) -> Option<FrameNumber> {
        self.last_of_orders(order.index(), end)
    }

    /// The highest free frame of a range.
    pub fn last_in(&self, frames: &Range<u64>) -> Option<FrameNumber> {
        self.last_of_orders(self.free.len(), frames.end).filter(|at| frames.contains(&at.raw()))
    }

    /// The highest frame below `end` that is free in a block of one of the lowest orders.
    fn last_of_orders(&self, orders: usize, end: u64) -> Option<FrameNumber> {
        let lasts = self.free.iter().take(orders).enumerate().filter_map(|(at, bits)| {
            let block = bits.previous(end.div_ceil(1 << at))?;
            Some((((block + 1) << at) - 1).min(end - 1))
        });
        lasts.max().map(FrameNumber::new)
    }

    /// Whether any frame of a block is free.
    fn any_free(&self, frame: FrameNumber, order: Order) -> bool {
        let end = frame.raw() + order.frames();
        self.is_free(frame, order)
            || order.and_smaller().any(|at| {
                let next = self.free[at.index()].next(frame.raw() >> at.raw());
                next.is_some_and(|block| block << at.raw() < end)
            })
    }

    #[inline]
    fn insert(&mut self, order: u8, block: u64) {
        self.free[usize::from(order)].insert(block);
        self.orders_with_any |= 1 << order;
    }

    #[inline]
    fn remove(&mut self, order: u8, block: u64) {
        let bits = &mut self.free[usize::from(order)];
        bits.remove(block);
        if bits.count() == 0 {
            self.orders_with_any &= !(1 << order);
        }
    }
}

#[cfg(test)]
mod tests {
    use octavo_oracle::cases;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(cases(64))]

        #[test]
        fn frames_of_a_region_leave_the_blocks_of_single_allocations(
            largest in prop_oneof![0u8..=10, Just(18)],
            region in 0u64..4,
            some in any::<RegionFrames>(),
            others in any::<RegionFrames>(),
            is_dense in any::<bool>(),
        ) {
            // A half of the frames, or a quarter, so that larger blocks stay free; at least one.
            let mut frames: RegionFrames = std::array::from_fn(|at| match is_dense {
                true => some[at],
                false => some[at] & others[at] & some[7 - at].rotate_left(11),
            });
            frames[3] |= 1;
            let mut all = Buddy::all_free(2500, Order::new(largest).unwrap());
            let mut one_by_one = all.clone();
            let region = FrameNumber::new(region * Order::HUGE.frames());
            all.allocate_frames(region, &frames);
            for at in 0..Order::HUGE.frames() {
                if frames[at as usize / 64] >> (at % 64) & 1 == 1 {
                    prop_assert!(one_by_one.allocate_at(region.plus(at), Order::BASE));
                }
            }
            prop_assert!(all.iter().eq(one_by_one.iter()));
            prop_assert_eq!(all.free_frames(), one_by_one.free_frames());
            prop_assert_eq!(all.orders_with_any, one_by_one.orders_with_any);
        }
    }
}
