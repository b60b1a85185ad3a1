//! Memory compaction: moves movable frames to the end of memory, so that free memory becomes contiguous
//! (Guvenilir and Patt, ISCA 2020, Section II-B, "Memory Compaction").
//!
//! As in Linux, two scanners approach each other: one from the low end empties one block of the wanted order
//! after another, one from the high end finds free frames. Compaction ends with enough blocks, when the
//! scanners meet, or at a limit.
//!
//! Each tier of the memory is compacted by itself, local memory first, as Linux does with zones.
//!
//! Two simplifications of Linux: a block with an unmovable frame is skipped as a whole (Linux does that when
//! a process waits for the block, and moves the rest when compacting in the background); and each frame moves
//! to the highest free frame, while Linux keeps a list of several.

use std::ops::Range;

use octavo_types::FrameNumber;

use super::ledger::{Owner, frames_of};
use super::memory::Frames;
use super::order::Order;

/// Updates the mappings of moved frames.
pub trait FrameRelocator {
    /// Whether the data in `frame` may be moved now: an unpinned base page that is not part of a larger page.
    fn may_move(&self, frame: FrameNumber) -> bool;

    /// The data of `from` was moved to `to`; `from` is free already.
    fn moved(&mut self, from: FrameNumber, to: FrameNumber);
}

/// A relocator that allows every move.
impl<F: FnMut(FrameNumber, FrameNumber)> FrameRelocator for F {
    fn may_move(&self, _: FrameNumber) -> bool {
        true
    }

    fn moved(&mut self, from: FrameNumber, to: FrameNumber) {
        self(from, to);
    }
}

/// Limits of one compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactionLimits {
    /// Ends once this many blocks of at least the wanted order are free; 0 does nothing.
    pub free_blocks: u64,
    /// Maximum frames moved.
    pub moved_frames: u64,
    /// Ends once the scanners have passed this many frames, except for the rest of the current block and its
    /// targets.
    pub scanned_frames: u64,
}

impl CompactionLimits {
    /// One block at any cost: the request of a failed allocation.
    pub const ONE_BLOCK: CompactionLimits =
        CompactionLimits { free_blocks: 1, moved_frames: u64::MAX, scanned_frames: u64::MAX };
    /// No limit.
    pub const ALL: CompactionLimits = CompactionLimits { free_blocks: u64::MAX, ..Self::ONE_BLOCK };
}

/// Why a compaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactionEnd {
    /// Enough blocks are free.
    Enough,
    /// The scanners met; the next compaction starts at the low end.
    Met,
    /// A limit was reached; the next compaction continues from there.
    Limit,
}

/// The result of a compaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compaction {
    /// Why it ended.
    pub end: CompactionEnd,
    /// Blocks of the wanted order emptied.
    pub blocks_made: u64,
    /// Frames moved, each a copy of 4 KiB.
    pub moved_frames: u64,
    /// Frames passed by the low scanner.
    pub scanned_for_moving: u64,
    /// Frames passed by the high scanner, including the free frames it found.
    pub scanned_for_free: u64,
}

/// The position of the low scanner, kept between compactions.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compactor {
    scanned_to: FrameNumber,
}

impl Compactor {
    /// Makes free blocks of `order` in `frames`, within `limits`. Reports every moved data frame to
    /// `relocator`; background frames move silently. Does nothing if memory has no blocks of `order`.
    pub fn compact(
        &mut self,
        frames: &mut Frames,
        order: Order,
        limits: CompactionLimits,
        relocator: &mut impl FrameRelocator,
    ) -> Compaction {
        let tiers: Vec<_> = frames.buddy().tiers().collect();
        let mut tiers = tiers.into_iter().skip_while(|tier| tier.end <= self.scanned_to.raw());
        let tier_end = tiers.next().map_or(0, |tier: Range<u64>| tier.end);
        let mut pass =
            Pass { tier_end, free_end: tier_end, order, done: Compaction::new(CompactionEnd::Met) };
        if order > frames.shape().largest() {
            return pass.done;
        }
        let mut block = order.align_down(self.scanned_to);
        pass.done.end = loop {
            if free_blocks(frames, order) >= limits.free_blocks {
                break CompactionEnd::Enough;
            }
            // A block beyond the high scanner is not emptied: its frames would move into itself.
            if block.raw() + order.frames() > pass.free_end {
                let Some(tier) = tiers.next() else { break CompactionEnd::Met };
                block = FrameNumber::new(tier.start.next_multiple_of(order.frames()));
                (pass.tier_end, pass.free_end) = (tier.end, tier.end);
                continue;
            }
            if pass.done.scanned_for_moving + pass.done.scanned_for_free >= limits.scanned_frames {
                break CompactionEnd::Limit;
            }
            let scanned = &mut pass.done.scanned_for_moving;
            if let Some(to_move) = frames_to_move(frames, block, order, relocator, scanned) {
                if pass.done.moved_frames + to_move.len() as u64 > limits.moved_frames {
                    break CompactionEnd::Limit;
                }
                if !pass.empty(frames, block, &to_move, relocator) {
                    // No frame is free above the block in its tier.
                    pass.free_end = 0;
                    continue;
                }
            }
            block = block.plus(order.frames());
        };
        self.scanned_to =
            if pass.done.end == CompactionEnd::Met { FrameNumber::default() } else { block };
        pass.done
    }
}

/// The state of one compaction.
struct Pass {
    /// The end of the tier that is being compacted.
    tier_end: u64,
    /// Position of the high scanner: no frame from here on is free in a small block.
    free_end: u64,
    order: Order,
    done: Compaction,
}

impl Compaction {
    /// A compaction that has done nothing yet.
    pub(super) fn new(end: CompactionEnd) -> Self {
        Compaction {
            end,
            blocks_made: 0,
            moved_frames: 0,
            scanned_for_moving: 0,
            scanned_for_free: 0,
        }
    }
}

/// The frames to move so that the block of `order` at `block` becomes free; `None` if it is free already or holds
/// unmovable frames. Adds the frames looked at to `scanned`.
pub(super) fn frames_to_move(
    frames: &Frames,
    block: FrameNumber,
    order: Order,
    relocator: &impl FrameRelocator,
    scanned: &mut u64,
) -> Option<Vec<FrameNumber>> {
    if frames.is_free(block, order) {
        *scanned += 1;
        return None;
    }
    let mut to_move = Vec::new();
    for frame in frames_of(block, order) {
        *scanned += 1;
        match frames.owner(frame) {
            None => {}
            Some(Owner::Data) if !relocator.may_move(frame) => return None,
            Some(owner) if !owner.is_movable() => return None,
            Some(_) => to_move.push(frame),
        }
    }
    Some(to_move)
}

/// Moves a held frame to a free one.
pub(super) fn move_frame(
    frames: &mut Frames,
    from: FrameNumber,
    to: FrameNumber,
    relocator: &mut impl FrameRelocator,
) {
    let owner = frames.owner(from).expect("a frame that is held");
    assert!(frames.allocate_at(to, Order::BASE, owner), "a frame that is free");
    frames.free(from, Order::BASE);
    if owner == Owner::Data {
        relocator.moved(from, to);
    }
}

impl Pass {
    /// Moves frames out of `block`. Returns whether each found a free frame above the block.
    fn empty(
        &mut self,
        frames: &mut Frames,
        block: FrameNumber,
        to_move: &[FrameNumber],
        relocator: &mut impl FrameRelocator,
    ) -> bool {
        let end = block.raw() + self.order.frames();
        for &from in to_move {
            // Free blocks of the wanted order stay whole.
            let target = frames.buddy().last_in_smaller(self.order, self.tier_end);
            let Some(to) = target.filter(|to| to.raw() >= end) else {
                self.done.scanned_for_free += self.free_end.saturating_sub(end);
                return false;
            };
            self.done.scanned_for_free += self.free_end - to.raw();
            self.free_end = to.raw();
            move_frame(frames, from, to, relocator);
            self.done.moved_frames += 1;
        }
        self.done.blocks_made += 1;
        true
    }
}

/// Free blocks of `order`, including those in larger free blocks.
fn free_blocks(frames: &Frames, order: Order) -> u64 {
    let at_least = Order::all().skip(order.index());
    at_least.map(|at| frames.buddy().free_blocks(at) << (at.raw() - order.raw())).sum()
}
