//! Memory compaction: frames that may be moved go to the other end of memory, so that what is free
//! comes together (paper 003, Section II-B, "Memory Compaction").
//!
//! Two scanners walk towards each other, as in Linux: one from the low end, which empties one
//! block of the wanted order after the other, and one from the high end, which finds free frames.
//! It ends when there are enough blocks, when the scanners meet, or at a limit.
//!
//! Two things are simpler than in Linux. A block with a frame that cannot move is left alone as a
//! whole; Linux does that when a process waits for the block, and moves the rest all the same when
//! it compacts in the background. And each frame moves to the highest free one, while Linux keeps
//! a list of some.

use octavo_types::FrameNumber;

use super::ledger::{Holder, frames_of};
use super::memory::Frames;
use super::order::Order;

/// Who knows where the frames that hold data are mapped.
pub trait FrameOwner {
    /// Whether the data in `frame` may be moved now: a base page, neither pinned nor a part of a
    /// larger page that would have to be moved as a whole.
    fn may_move(&self, frame: FrameNumber) -> bool;

    /// The data in `from` is in `to` now; `from` is free already.
    fn moved(&mut self, from: FrameNumber, to: FrameNumber);
}

/// An owner whose frames may all be moved.
impl<F: FnMut(FrameNumber, FrameNumber)> FrameOwner for F {
    fn may_move(&self, _: FrameNumber) -> bool {
        true
    }

    fn moved(&mut self, from: FrameNumber, to: FrameNumber) {
        self(from, to);
    }
}

/// When one compaction ends, even if it could go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompactionLimits {
    /// As soon as so many blocks of at least the wanted order are free. With none wanted nothing
    /// is done.
    pub free_blocks: u64,
    /// Before it moves more frames than this.
    pub moved_frames: u64,
    /// Once the scanners have looked at so many frames: it looks at the rest of a block still, and
    /// for free frames for it.
    pub scanned_frames: u64,
}

impl CompactionLimits {
    /// One block, whatever it costs: what an allocation that failed asks for.
    pub const ONE_BLOCK: CompactionLimits =
        CompactionLimits { free_blocks: 1, moved_frames: u64::MAX, scanned_frames: u64::MAX };
    /// Everything that can be brought together.
    pub const ALL: CompactionLimits = CompactionLimits { free_blocks: u64::MAX, ..Self::ONE_BLOCK };
}

/// Why a compaction ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CompactionEnd {
    /// There are as many blocks as were wanted.
    Enough,
    /// The scanners met: the next one begins at the low end again.
    Met,
    /// It moved or looked at as many frames as it may. The next one goes on from there.
    Limit,
}

/// What a compaction did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Compaction {
    /// Why it ended.
    pub end: CompactionEnd,
    /// Blocks of the wanted order that it emptied.
    pub blocks_made: u64,
    /// Frames moved, each a copy of 4 KiB.
    pub moved_frames: u64,
    /// Frames that the low scanner looked at.
    pub scanned_for_moving: u64,
    /// Frames that the high scanner passed in search of free ones, those it found included.
    pub scanned_for_free: u64,
}

/// The low scanner's place, kept from one compaction to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct Compactor {
    scanned_to: FrameNumber,
}

impl Compactor {
    /// Makes free blocks of `order` in `frames`, within `limits`. Every frame of data that moves is
    /// told to `owner`; what is foreign moves silently. Where memory has no blocks of `order` there
    /// is nothing to be done.
    pub fn compact(
        &mut self,
        frames: &mut Frames,
        order: Order,
        limits: CompactionLimits,
        owner: &mut impl FrameOwner,
    ) -> Compaction {
        let mut run = Run {
            free_end: frames.shape().frames(),
            order,
            done: Compaction {
                end: CompactionEnd::Met,
                blocks_made: 0,
                moved_frames: 0,
                scanned_for_moving: 0,
                scanned_for_free: 0,
            },
        };
        if order > frames.shape().largest() {
            return run.done;
        }
        let mut block = order.align_down(self.scanned_to);
        run.done.end = loop {
            if free_blocks(frames, order) >= limits.free_blocks {
                break CompactionEnd::Enough;
            }
            // A block that reaches past the high scanner is not emptied: it would go into itself.
            if block.raw() + order.frames() > run.free_end {
                break CompactionEnd::Met;
            }
            if run.done.scanned_for_moving + run.done.scanned_for_free >= limits.scanned_frames {
                break CompactionEnd::Limit;
            }
            if let Some(to_move) = run.movable_in(frames, block, owner) {
                if run.done.moved_frames + to_move.len() as u64 > limits.moved_frames {
                    break CompactionEnd::Limit;
                }
                if !run.empty(frames, block, &to_move, owner) {
                    break CompactionEnd::Met;
                }
            }
            block = block.plus(order.frames());
        };
        self.scanned_to =
            if run.done.end == CompactionEnd::Met { FrameNumber::default() } else { block };
        run.done
    }
}

/// One compaction under way.
struct Run {
    /// Where the high scanner is: no frame from here on is free and in a small block.
    free_end: u64,
    order: Order,
    done: Compaction,
}

impl Run {
    /// The frames to be moved so that `block` is free; `None` where it is free already, or holds
    /// what cannot be moved.
    fn movable_in(
        &mut self,
        frames: &Frames,
        block: FrameNumber,
        owner: &impl FrameOwner,
    ) -> Option<Vec<FrameNumber>> {
        if frames.is_free(block, self.order) {
            self.done.scanned_for_moving += 1;
            return None;
        }
        let mut to_move = Vec::new();
        for frame in frames_of(block, self.order) {
            self.done.scanned_for_moving += 1;
            match frames.holder(frame) {
                None => {}
                Some(Holder::Data) if !owner.may_move(frame) => return None,
                Some(holder) if !holder.is_movable() => return None,
                Some(_) => to_move.push(frame),
            }
        }
        Some(to_move)
    }

    /// Moves frames out of `block`; whether there was a free one above the block for each.
    fn empty(
        &mut self,
        frames: &mut Frames,
        block: FrameNumber,
        to_move: &[FrameNumber],
        owner: &mut impl FrameOwner,
    ) -> bool {
        let end = block.raw() + self.order.frames();
        for &from in to_move {
            // Free blocks of the wanted order are left whole: that would be one for another.
            let target = frames.buddy().last_in_smaller(self.order);
            let Some(to) = target.filter(|to| to.raw() >= end) else {
                self.done.scanned_for_free += self.free_end.saturating_sub(end);
                return false;
            };
            self.done.scanned_for_free += self.free_end - to.raw();
            self.free_end = to.raw();
            let holder = frames.holder(from).expect("a frame that is held");
            assert!(frames.allocate_at(to, Order::BASE, holder), "a frame that is free");
            frames.free(from, Order::BASE);
            self.done.moved_frames += 1;
            if holder == Holder::Data {
                owner.moved(from, to);
            }
        }
        self.done.blocks_made += 1;
        true
    }
}

/// Free blocks of `order`, those in larger ones included.
fn free_blocks(frames: &Frames, order: Order) -> u64 {
    let at_least = Order::all().skip(order.index());
    at_least.map(|at| frames.buddy().free_blocks(at) << (at.raw() - order.raw())).sum()
}
