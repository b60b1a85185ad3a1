//! Physical memory as the operating system uses it: the allocator combined with the ledger.

use std::ops::Range;

use octavo_types::FrameNumber;

use super::block_set::BlockSet;
use super::buddy::{Buddy, RegionFrames};
use super::chunks::ChunkBitmaps;
use super::hole_bitmaps::HoleBitmaps;
use super::ledger::{Ledger, Owner, frames_of};
use super::order::{Order, blocks_of};
use super::reservations::{Reservation, ReservationId, Reservations};

/// The size of a physical memory and of its largest block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemoryShape {
    frames: u64,
    largest: Order,
}

impl MemoryShape {
    /// Maximum frames of a memory: 4 TiB.
    pub const MAX_FRAMES: u64 = 1 << 30;

    /// A memory of `frames` base frames with blocks of up to `largest`. Fails for 0 frames or more than
    /// [`MemoryShape::MAX_FRAMES`].
    pub fn new(frames: u64, largest: Order) -> Result<Self, MemorySizeError> {
        if frames == 0 || frames > Self::MAX_FRAMES {
            return Err(MemorySizeError(frames));
        }
        Ok(MemoryShape { frames, largest })
    }

    /// Number of base frames.
    pub fn frames(self) -> u64 {
        self.frames
    }

    /// The largest order of a block: 10 in Linux, 18 for pages of up to 1 GiB.
    pub fn largest(self) -> Order {
        self.largest
    }
}

/// An unsupported memory size.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a physical memory of {0} frames of 4 KiB: it has 1 to {max} frames (4 TiB)", max = MemoryShape::MAX_FRAMES)]
pub struct MemorySizeError(u64);

/// No free block is large enough, or an operation needs more free frames at once.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", out_of_memory_text(self))]
pub struct OutOfMemory {
    /// The requested order.
    pub order: Order,
    /// Number of free frames.
    pub free_frames: u64,
    /// The order of the largest free block, if any.
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

/// Physical memory: free blocks, and the owners of allocated frames.
///
/// Every frame is either in a free block of the allocator or has one [`Owner`]; [`Frames::check`] verifies
/// that. Frames are allocated by blocks, but parts of a block may change owner and be freed separately.
#[derive(Clone, Debug)]
pub struct Frames {
    buddy: Buddy,
    pub(super) ledger: Ledger,
    pub(super) reservations: Reservations,
    pub(crate) holes: HoleBitmaps,
    pub(crate) chunks: ChunkBitmaps,
    /// The most frames that an operation has [ensured](Frames::ensure_free), less the frames allocated since: at least
    /// as many as the current operation still needs.
    ensured: u64,
    /// The frames reserved for tables of a translation design.
    pub(super) of_design: Vec<FrameNumber>,
    /// Runs of page tables that are contiguous by design, recorded since the last query.
    contiguous_tables: Vec<(FrameNumber, u64)>,
    /// Whether single frames of page tables are allocated at the end of memory.
    tables_last: bool,
    /// Blocks that the kernel keeps for itself until no other base frame is free.
    kept: Vec<(FrameNumber, Order)>,
    /// The frames that are [set aside](Frames::set_aside), unless they have been given to pages.
    pub(super) set_aside: Range<u64>,
}

impl Frames {
    /// A free memory.
    pub fn new(shape: MemoryShape) -> Self {
        let buddy = Buddy::all_free(shape.frames, shape.largest);
        Self::of(buddy, Ledger::new(shape.frames))
    }

    fn of(buddy: Buddy, ledger: Ledger) -> Self {
        Frames {
            buddy,
            ledger,
            reservations: Reservations::default(),
            holes: HoleBitmaps::default(),
            chunks: ChunkBitmaps::default(),
            ensured: 0,
            of_design: Vec::new(),
            contiguous_tables: Vec::new(),
            tables_last: false,
            kept: Vec::new(),
            set_aside: 0..0,
        }
    }

    /// A memory owned entirely by `owner`.
    pub fn all_owned_by(shape: MemoryShape, owner: Owner) -> Self {
        let mut ledger = Ledger::new(shape.frames);
        ledger.assign(FrameNumber::new(0), shape.frames, owner);
        Self::of(Buddy::all_allocated(shape.frames, shape.largest), ledger)
    }

    /// Divides memory into tiers: local memory, and a tier that begins at each of these frames. Blocks are allocated in
    /// the first tier that has one.
    pub fn set_tiers(&mut self, first_frames: Vec<u64>) {
        self.buddy.set_tiers(first_frames);
    }

    /// Keeps free blocks from all allocations for as long as other base frames are free.
    ///
    /// # Panics
    ///
    /// If any of a block is not free.
    pub fn keep_for_kernel(&mut self, blocks: Vec<(FrameNumber, Order)>) {
        for (block, order) in &blocks {
            let was_free = self.allocate_at(*block, *order, Owner::Background { movable: false });
            assert!(was_free, "no block of {order:?} is free at frame {}", block.raw());
        }
        self.kept.extend(blocks);
    }

    /// Frees all blocks that were kept for the kernel. Returns whether there were any.
    fn release_kept(&mut self) -> bool {
        let kept = std::mem::take(&mut self.kept);
        kept.iter().for_each(|(block, order)| self.free(*block, *order));
        !kept.is_empty()
    }

    /// Allocates a block of `order` for `owner`: the lowest one of the smallest sufficient order. If no base
    /// frame is free, frees the blocks kept for the kernel, or else the frames set aside, or else breaks a reservation.
    ///
    /// # Errors
    ///
    /// If no free block is large enough.
    #[inline]
    pub fn allocate(&mut self, order: Order, owner: Owner) -> Result<FrameNumber, OutOfMemory> {
        let mut block = self.allocate_free(order, owner);
        // Blocks kept for the kernel may lie among the frames set aside, which are not free then.
        while block.is_err() && order == Order::BASE && self.free_more() {
            block = self.allocate_free(order, owner);
        }
        block
    }

    /// Frees the blocks kept for the kernel, or else the frames set aside, or else those of a reservation. Returns whether
    /// there were any.
    fn free_more(&mut self) -> bool {
        self.release_kept() || self.release_set_aside() || self.break_oldest_reservation()
    }

    /// Allocates like [`Frames::allocate`], but frees no other blocks.
    ///
    /// # Errors
    ///
    /// If no free block is large enough.
    #[inline]
    pub fn allocate_free(
        &mut self,
        order: Order,
        owner: Owner,
    ) -> Result<FrameNumber, OutOfMemory> {
        let is_last = self.tables_last && owner == Owner::PageTable && order == Order::BASE;
        let block = if is_last { self.allocate_last() } else { self.buddy.allocate(order) };
        let Some(block) = block else { return Err(self.out_of_memory(order)) };
        self.ledger.assign(block, order.frames(), owner);
        self.ensured = self.ensured.saturating_sub(order.frames());
        Ok(block)
    }

    /// Allocates single frames of page tables at the end of memory from now on, so that they do not interrupt runs of
    /// data. (Linux keeps unmovable memory in blocks of its own.)
    pub fn place_tables_last(&mut self) {
        self.tables_last = true;
    }

    /// Allocates the last free frame of the first tier that has one.
    fn allocate_last(&mut self) -> Option<FrameNumber> {
        let last = self.buddy.tiers().find_map(|tier| self.buddy.last_in(&tier))?;
        self.buddy.allocate_at(last, Order::BASE);
        Some(last)
    }

    /// Allocates an optional block, if all frames that operations have ensured remain free.
    pub fn allocate_surplus(&mut self, order: Order, owner: Owner) -> Option<FrameNumber> {
        if self.free_frames() < self.ensured + order.frames() {
            return None;
        }
        let block = self.buddy.allocate(order)?;
        self.ledger.assign(block, order.frames(), owner);
        Some(block)
    }

    /// Allocates `frames` contiguous optional frames, if all frames that operations have ensured remain free: the first
    /// frames of the lowest block of the smallest sufficient order, or of the lowest sufficient run of largest blocks.
    /// Each frame may be freed alone.
    pub fn allocate_surplus_run(&mut self, frames: u64, owner: Owner) -> Option<FrameNumber> {
        if self.free_frames() < self.ensured + frames {
            return None;
        }
        let largest = self.buddy.largest();
        let order = Order::new(frames.next_power_of_two().ilog2() as u8);
        let (start, taken) = match order.filter(|order| *order <= largest) {
            Some(order) => (self.buddy.allocate(order)?, order.frames()),
            None => {
                let blocks = frames.div_ceil(largest.frames());
                (self.buddy.allocate_run_of_largest(blocks)?, blocks * largest.frames())
            }
        };
        for (block, order) in blocks_of(start.plus(frames), taken - frames, largest) {
            self.buddy.free(block, order);
        }
        self.ledger.assign(start, frames, owner);
        Some(start)
    }

    /// Records frames of page tables that hardware finds by their distance from the first frame, so that the host of a
    /// guest must back them by contiguous frames.
    pub fn note_contiguous_tables(&mut self, start: FrameNumber, frames: u64) {
        self.contiguous_tables.push((start, frames));
    }

    /// The runs of page tables recorded since the last call.
    pub fn take_contiguous_tables(&mut self) -> Vec<(FrameNumber, u64)> {
        std::mem::take(&mut self.contiguous_tables)
    }

    /// Allocates exactly the block of `order` at `frame` for `owner`. Returns whether all of it was free.
    pub fn allocate_at(&mut self, frame: FrameNumber, order: Order, owner: Owner) -> bool {
        let was_free = self.buddy.allocate_at(frame, order);
        if was_free {
            self.ledger.assign(frame, order.frames(), owner);
        }
        was_free
    }

    /// Allocates single frames of a free region of [`Order::HUGE`] for `owner`: those whose bits are set in `frames`, at
    /// least one.
    pub(super) fn allocate_frames(
        &mut self,
        region: FrameNumber,
        frames: &RegionFrames,
        owner: Owner,
    ) {
        self.buddy.allocate_frames(region, frames);
        for (at, word) in frames.iter().enumerate() {
            let mut bits = *word;
            while bits != 0 {
                let frame = 64 * at as u64 + u64::from(bits.trailing_zeros());
                self.ledger.assign(region.plus(frame), 1, owner);
                bits &= bits - 1;
            }
        }
    }

    /// Frees the block of `order` at `frame`, regardless of its owner; it may be a part of an allocated
    /// block, or several parts together.
    ///
    /// # Panics
    ///
    /// If any of it is free, or memory has no such block.
    #[inline]
    pub fn free(&mut self, frame: FrameNumber, order: Order) {
        let (first, end) = (frame.raw(), frame.raw() + order.frames());
        let aside = self.set_aside.start.max(first)..self.set_aside.end.min(end);
        if aside == (first..end) {
            return self.change_owner(frame, order, Owner::SetAside);
        }
        if !aside.is_empty() {
            let half = Order::new(order.raw() - 1).expect("a frame is set aside or not");
            self.free(frame, half);
            return self.free(frame.plus(half.frames()), half);
        }
        self.ledger.release(frame, order.frames());
        self.buddy.free(frame, order);
    }

    /// Frees `frames` frames from `start` on.
    ///
    /// # Panics
    ///
    /// If any of them is free, or memory ends before them.
    pub fn free_range(&mut self, start: FrameNumber, frames: u64) {
        for (block, order) in blocks_of(start, frames, self.buddy.largest()) {
            self.free(block, order);
        }
    }

    /// Assigns the allocated frames of the block of `order` at `frame` to `owner`, as when reserved frames
    /// become data.
    ///
    /// # Panics
    ///
    /// If any of them is free.
    pub fn change_owner(&mut self, frame: FrameNumber, order: Order, owner: Owner) {
        self.ledger.change(frame, order.frames(), owner);
    }

    /// Assigns `frames` allocated frames from `start` on to `owner`.
    ///
    /// # Panics
    ///
    /// If any of them is free, or memory ends before them.
    pub fn change_range(&mut self, start: FrameNumber, frames: u64, owner: Owner) {
        self.ledger.change(start, frames, owner);
    }

    /// The owner of `frame`; `None` if it is free.
    ///
    /// # Panics
    ///
    /// If memory has no such frame.
    #[inline]
    pub fn owner(&self, frame: FrameNumber) -> Option<Owner> {
        self.ledger.owner(frame)
    }

    /// The order of the block that an allocated frame was allocated in, at most 15.
    pub fn allocated_order(&self, frame: FrameNumber) -> u8 {
        self.ledger.order(frame)
    }

    /// Takes a free block from the allocator.
    pub(super) fn take_free(&mut self, frame: FrameNumber, order: Order) {
        assert!(self.buddy.allocate_at(frame, order), "the block is free");
    }

    /// Whether every frame of the block of `order` at `frame` is free.
    pub fn is_free(&self, frame: FrameNumber, order: Order) -> bool {
        self.buddy.is_free(frame, order)
    }

    /// Whether the block of `order` at `frame` is free and clear: none of its frames was held since the start, or since
    /// [`Frames::mark_clear`].
    pub fn is_clear(&self, frame: FrameNumber, order: Order) -> bool {
        self.ledger.is_clear(frame, order.frames())
    }

    /// Records that the free block of `order` at `frame` has been cleared.
    pub fn mark_clear(&mut self, frame: FrameNumber, order: Order) {
        // Most blocks at the start are: the ledger of a large memory stays untouched then.
        if !self.is_clear(frame, order) {
            self.ledger.mark_clear(frame, order.frames());
        }
    }

    /// Ensures that `frames` frames can be allocated one by one. If necessary, frees the blocks kept for the kernel and
    /// the frames set aside, and breaks reservations. Operations with many changes call it before the first change.
    ///
    /// # Errors
    ///
    /// If fewer frames are available.
    pub fn ensure_free(&mut self, frames: u64) -> Result<(), OutOfMemory> {
        while frames > self.free_frames() && self.free_more() {}
        if frames > self.free_frames() {
            return Err(self.out_of_memory(Order::BASE));
        }
        self.ensured = self.ensured.max(frames);
        Ok(())
    }

    /// The current number of frames of an owner.
    pub fn used_frames(&self, owner: Owner) -> u64 {
        self.ledger.owned_frames(owner)
    }

    /// The peak number of frames of an owner.
    pub fn peak_frames(&self, owner: Owner) -> u64 {
        self.ledger.peak_frames(owner)
    }

    /// Number of free frames.
    pub fn free_frames(&self) -> u64 {
        self.buddy.free_frames()
    }

    /// The free blocks.
    pub fn buddy(&self) -> &Buddy {
        &self.buddy
    }

    /// The shape of this memory.
    pub fn shape(&self) -> MemoryShape {
        MemoryShape { frames: self.buddy.frames(), largest: self.buddy.largest() }
    }

    /// Checks every frame: a frame is free in the ledger if and only if it lies in a free block, counts
    /// match, and owners and free memory add up to the whole. Returns the first error.
    pub fn check(&self) -> Result<(), String> {
        self.ledger.check()?;
        let mut free_frames = 0;
        for (block, order) in self.buddy.iter() {
            if let Some(held) = frames_of(block, order).find(|&frame| self.owner(frame).is_some()) {
                return Err(format!("frame {} is held and free at once", held.raw()));
            }
            free_frames += order.frames();
        }
        if free_frames != self.free_frames() {
            return Err(format!("{free_frames} frames are free, not {}", self.free_frames()));
        }
        let (all, held) = (self.buddy.frames(), self.ledger.allocated_frames());
        if held + free_frames != all {
            return Err(format!("{held} frames held and {free_frames} free are not all {all}"));
        }
        Ok(())
    }

    /// Resets the peaks to the current counts.
    pub(super) fn reset_peaks(&mut self) {
        self.ledger.reset_peaks();
    }

    #[cold]
    fn out_of_memory(&self, order: Order) -> OutOfMemory {
        OutOfMemory {
            order,
            free_frames: self.buddy.free_frames(),
            largest_free: self.buddy.largest_free_order(),
        }
    }
}

/// Reservations.
impl Frames {
    /// Reserves a block of `order`; `None` if none is free.
    pub fn reserve(&mut self, order: Order) -> Option<(ReservationId, FrameNumber)> {
        let block = self.allocate_free(order, Owner::Reserved).ok()?;
        let used = self.reservations.tick();
        Some((self.reservations.insert(block, BlockSet::all(order), used), block))
    }

    /// Whether the reservation still exists: it has unclaimed frames, and was neither broken nor ended.
    pub fn is_reserved(&self, id: ReservationId) -> bool {
        self.reservations.by_id.contains_key(&id)
    }

    /// Whether the frame at `place` of the reservation's block is unclaimed.
    pub fn has_unclaimed(&self, id: ReservationId, place: u64) -> bool {
        self.reservations.by_id.get(&id).is_some_and(|held| held.left.contains(place))
    }

    /// The number of unclaimed frames at `places` of the reservation's block.
    pub fn unclaimed(&self, id: ReservationId, places: Range<u64>) -> u64 {
        let Some(reservation) = self.reservations.by_id.get(&id) else { return 0 };
        reservation.left.runs(places).map(|run| run.end - run.start).sum()
    }

    /// Records a use of the reservation, so that others are broken before it.
    pub fn record_use(&mut self, id: ReservationId) {
        let latest = self.reservations.by_use.last_key_value();
        if latest.is_some_and(|(_, used)| *used == id) {
            return;
        }
        let now = self.reservations.tick();
        if let Some(reservation) = self.reservations.by_id.get_mut(&id) {
            let before = std::mem::replace(&mut reservation.used, now);
            self.reservations.by_use.remove(&before);
            self.reservations.by_use.insert(now, id);
        }
    }

    /// Claims the unclaimed frames at `places` of the reservation's block as data. Returns the claimed
    /// places.
    pub fn claim_reserved(&mut self, id: ReservationId, places: Range<u64>) -> Vec<Range<u64>> {
        let Some(reservation) = self.reservations.by_id.get_mut(&id) else { return Vec::new() };
        let runs: Vec<_> = reservation.left.runs(places).collect();
        for run in &runs {
            for place in run.clone() {
                reservation.left.remove(place);
            }
            let start = reservation.block.plus(run.start);
            self.ledger.change(start, run.end - run.start, Owner::Data);
        }
        if reservation.left.is_empty() {
            self.reservations.remove(id);
        }
        runs
    }

    /// Ends the reservation and frees its unclaimed frames.
    pub fn end_reservation(&mut self, id: ReservationId) {
        if let Some(ended) = self.reservations.remove(id) {
            self.free_left(&ended, 0..ended.left.order().frames());
        }
    }

    /// Removes `places` from the reservation: their unclaimed frames are freed, and the rest is reserved by the
    /// fewest blocks of two or more frames, each a new reservation that counts as used now. Returns the new
    /// reservations with unclaimed frames: first place in the old reservation, order and identifier.
    pub fn split_reservation(
        &mut self,
        id: ReservationId,
        places: Range<u64>,
    ) -> Vec<(u64, Order, ReservationId)> {
        let Some(old) = self.reservations.remove(id) else { return Vec::new() };
        let mut parts = Vec::new();
        for around in [0..places.start, places.end..old.left.order().frames()] {
            let start = FrameNumber::new(around.start);
            for (at, order) in blocks_of(start, around.end - around.start, Order::LARGEST) {
                if order == Order::BASE {
                    self.free_left(&old, at.raw()..at.raw() + 1);
                    continue;
                }
                let left = old.left.part(at.raw(), order);
                if !left.is_empty() {
                    let used = self.reservations.tick();
                    let block = old.block.plus(at.raw());
                    parts.push((at.raw(), order, self.reservations.insert(block, left, used)));
                }
            }
        }
        self.free_left(&old, places);
        parts
    }

    /// Breaks the least recently used reservation. Returns whether there was one.
    pub fn break_oldest_reservation(&mut self) -> bool {
        let Some((_, &id)) = self.reservations.by_use.first_key_value() else { return false };
        let broken = self.reservations.remove(id).expect("it is in both lists");
        self.free_left(&broken, 0..broken.left.order().frames());
        true
    }

    /// Frees the unclaimed frames at `places` of a removed reservation.
    fn free_left(&mut self, reservation: &Reservation, places: Range<u64>) {
        for run in reservation.left.runs(places) {
            self.free_range(reservation.block.plus(run.start), run.end - run.start);
        }
    }
}
