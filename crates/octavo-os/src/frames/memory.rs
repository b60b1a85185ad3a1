//! Physical memory as the operating system uses it: the allocator and the ledger together.

use octavo_types::FrameNumber;

use super::buddy::Buddy;
use super::chunks::ChunkBitmaps;
use super::hole_bitmaps::HoleBitmaps;
use super::ledger::{Holder, Ledger, frames_of};
use super::order::{Order, blocks_of};
use super::reservations::Reservations;

/// The size of a physical memory and of its largest block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryShape {
    frames: u64,
    largest: Order,
}

impl MemoryShape {
    /// The most frames that a memory may have: 4 TiB.
    pub const MAX_FRAMES: u64 = 1 << 30;

    /// Memory of `frames` base frames, with blocks of up to `largest`; an error where there is
    /// none, or more than [`MemoryShape::MAX_FRAMES`].
    pub fn new(frames: u64, largest: Order) -> Result<Self, MemorySizeError> {
        if frames == 0 || frames > Self::MAX_FRAMES {
            return Err(MemorySizeError(frames));
        }
        Ok(MemoryShape { frames, largest })
    }

    /// Base frames.
    pub fn frames(self) -> u64 {
        self.frames
    }

    /// The order up to which blocks merge: 10 for Linux, 18 for Tailored Page Sizes.
    pub fn largest(self) -> Order {
        self.largest
    }
}

/// A memory too small or too large to be simulated.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a physical memory of {0} frames of 4 KiB: it has 1 to {max} frames (4 TiB)", max = MemoryShape::MAX_FRAMES)]
pub struct MemorySizeError(u64);

/// No free block is large enough, or there are fewer free frames than something needs at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", out_of_memory_text(self))]
pub struct OutOfMemory {
    /// The order that was asked for.
    pub order: Order,
    /// Frames that were free all the same.
    pub free_frames: u64,
    /// The order of the largest free block, if any was free.
    pub largest_free: Option<Order>,
}

fn out_of_memory_text(error: &OutOfMemory) -> String {
    let OutOfMemory { order, free_frames, largest_free } = error;
    if largest_free.is_some_and(|largest| largest >= *order) {
        return format!("{free_frames} frames of 4 KiB are free, and more are needed at once");
    }
    let size = order.page_size();
    let largest = largest_free.map_or("none of any size".to_owned(), |largest| {
        format!("the largest block of them has {}", largest.page_size())
    });
    format!("no block of {size} is free: {free_frames} frames of 4 KiB are free, {largest}")
}

/// Physical memory: what is free, and who holds what is not.
///
/// Every frame is either in a free block of the allocator or held by one [`Holder`];
/// [`Frames::check`] says whether that is so. Frames come and go by blocks, but what was taken as
/// one block may pass to other holders, and be freed, by parts.
#[derive(Clone, Debug)]
pub struct Frames {
    buddy: Buddy,
    pub(super) ledger: Ledger,
    pub(super) reservations: Reservations,
    pub(crate) holes: HoleBitmaps,
    pub(crate) chunks: ChunkBitmaps,
    peak_used_frames: u64,
}

impl Frames {
    /// Memory in which everything is free.
    pub fn new(shape: MemoryShape) -> Self {
        Frames {
            buddy: Buddy::all_free(shape.frames, shape.largest),
            ledger: Ledger::new(shape.frames),
            reservations: Reservations::default(),
            holes: HoleBitmaps::default(),
            chunks: ChunkBitmaps::default(),
            peak_used_frames: 0,
        }
    }

    /// Memory all of which `holder` has.
    pub fn held_by(shape: MemoryShape, holder: Holder) -> Self {
        let mut ledger = Ledger::new(shape.frames);
        ledger.take(FrameNumber::new(0), shape.frames, holder);
        let buddy = Buddy::all_held(shape.frames, shape.largest);
        let reservations = Reservations::default();
        let (holes, chunks) = (HoleBitmaps::default(), ChunkBitmaps::default());
        Frames { buddy, ledger, reservations, holes, chunks, peak_used_frames: shape.frames }
    }

    /// A block of `order` for `holder`: the lowest of the smallest order that has one. For a base
    /// frame reservations are broken where none is free.
    ///
    /// # Errors
    ///
    /// Where no free block is large enough.
    #[inline]
    pub fn allocate(&mut self, order: Order, holder: Holder) -> Result<FrameNumber, OutOfMemory> {
        let had = self.allocate_free(order, holder);
        if had.is_err() && order == Order::BASE && self.break_oldest_reservation() {
            return self.allocate_free(order, holder);
        }
        had
    }

    /// As [`Frames::allocate`], and no reservation is broken for it.
    ///
    /// # Errors
    ///
    /// Where no free block is large enough.
    #[inline]
    pub fn allocate_free(
        &mut self,
        order: Order,
        holder: Holder,
    ) -> Result<FrameNumber, OutOfMemory> {
        let Some(block) = self.buddy.allocate(order) else {
            return Err(self.out_of_memory(order));
        };
        self.taken(block, order, holder);
        Ok(block)
    }

    /// The very block of `order` at `frame` for `holder`, and whether it could be had: whether all
    /// of it was free.
    pub fn allocate_at(&mut self, frame: FrameNumber, order: Order, holder: Holder) -> bool {
        let could = self.buddy.allocate_at(frame, order);
        if could {
            self.taken(frame, order, holder);
        }
        could
    }

    /// Gives the block of `order` at `frame` back, whoever holds its frames; it may be a part of
    /// what was allocated, or several such parts together.
    ///
    /// # Panics
    ///
    /// Where any of it is free, or there is no such block.
    #[inline]
    pub fn free(&mut self, frame: FrameNumber, order: Order) {
        self.ledger.give_back(frame, order.frames());
        self.buddy.free(frame, order);
    }

    /// Gives back `frames` frames from `start` on, as [`Frames::free`] does with a block.
    ///
    /// # Panics
    ///
    /// Where any of them is free, or memory ends before them.
    pub fn free_range(&mut self, start: FrameNumber, frames: u64) {
        for (block, order) in blocks_of(start, frames, self.buddy.largest()) {
            self.free(block, order);
        }
    }

    /// The frames of the block of `order` at `frame` pass to `holder`, whoever holds them: what
    /// was reserved becomes data part by part.
    ///
    /// # Panics
    ///
    /// Where any of them is free.
    pub fn change_holder(&mut self, frame: FrameNumber, order: Order, holder: Holder) {
        self.ledger.change(frame, order.frames(), holder);
    }

    /// As [`Frames::change_holder`], of `frames` frames from `start` on.
    ///
    /// # Panics
    ///
    /// Where any of them is free, or memory ends before them.
    pub fn change_range(&mut self, start: FrameNumber, frames: u64, holder: Holder) {
        self.ledger.change(start, frames, holder);
    }

    /// Who holds `frame`; `None` where it is free.
    ///
    /// # Panics
    ///
    /// Where memory has no such frame.
    #[inline]
    pub fn holder(&self, frame: FrameNumber) -> Option<Holder> {
        self.ledger.holder(frame)
    }

    /// Whether every frame of the block of `order` at `frame` is free.
    pub fn is_free(&self, frame: FrameNumber, order: Order) -> bool {
        self.buddy.is_free(frame, order)
    }

    /// Sees to it that `frames` frames can be allocated one by one, of which none is taken yet: who
    /// changes much at once asks before the first change. Reservations are broken for them.
    ///
    /// # Errors
    ///
    /// Where there are fewer.
    pub fn ensure_free(&mut self, frames: u64) -> Result<(), OutOfMemory> {
        while frames > self.free_frames() && self.break_oldest_reservation() {}
        if frames <= self.free_frames() { Ok(()) } else { Err(self.out_of_memory(Order::BASE)) }
    }

    /// How many frames `holder` has.
    pub fn used_frames(&self, holder: Holder) -> u64 {
        self.ledger.held_frames(holder)
    }

    /// The most frames that `holder` ever had at one time.
    pub fn peak_frames(&self, holder: Holder) -> u64 {
        self.ledger.peak_frames(holder)
    }

    /// The most frames that were in use at one time, whoever held them.
    pub fn peak_used_frames(&self) -> u64 {
        self.peak_used_frames
    }

    /// Frames that are free.
    pub fn free_frames(&self) -> u64 {
        self.buddy.free_frames()
    }

    /// The free blocks.
    pub fn buddy(&self) -> &Buddy {
        &self.buddy
    }

    /// What this memory was made with.
    pub fn shape(&self) -> MemoryShape {
        MemoryShape { frames: self.buddy.frames(), largest: self.buddy.largest() }
    }

    /// Whether nothing was lost: a frame is free in the ledger if it lies in a free block, the
    /// counts are those of the frames, and all holders and what is free make up the whole memory.
    /// It looks at every frame, and says the first thing that is wrong.
    pub fn check(&self) -> Result<(), String> {
        self.ledger.check()?;
        let mut free_frames = 0;
        for (block, order) in self.buddy.iter() {
            if let Some(held) = frames_of(block, order).find(|&frame| self.holder(frame).is_some())
            {
                return Err(format!("frame {} is held and free at once", held.raw()));
            }
            free_frames += order.frames();
        }
        if free_frames != self.free_frames() {
            return Err(format!("{free_frames} frames are free, not {}", self.free_frames()));
        }
        let (all, held) = (self.buddy.frames(), self.ledger.all_held_frames());
        if held + free_frames != all {
            return Err(format!("{held} frames held and {free_frames} free are not all {all}"));
        }
        Ok(())
    }

    /// High-water marks begin anew with what is held now.
    pub(super) fn restart_peaks(&mut self) {
        self.ledger.restart_peaks();
        self.peak_used_frames = self.buddy.frames() - self.buddy.free_frames();
    }

    #[cold]
    fn out_of_memory(&self, order: Order) -> OutOfMemory {
        OutOfMemory {
            order,
            free_frames: self.buddy.free_frames(),
            largest_free: self.buddy.largest_free_order(),
        }
    }

    #[inline]
    fn taken(&mut self, block: FrameNumber, order: Order, holder: Holder) {
        self.ledger.take(block, order.frames(), holder);
        let used = self.buddy.frames() - self.buddy.free_frames();
        self.peak_used_frames = self.peak_used_frames.max(used);
    }
}
