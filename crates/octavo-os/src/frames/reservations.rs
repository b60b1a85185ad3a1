//! Reservations: blocks set aside for a range of pages, whose frames are claimed one by one (Guvenilir and
//! Patt, ISCA 2020, Section III-B.1, after FreeBSD and Navarro et al., OSDI 2002).
//!
//! "Reserved frames are neither free nor in use; they can transition to either state depending on system
//! demands." A reservation owns its unclaimed frames ([`Owner::Reserved`] in the ledger); claimed frames are
//! data of the claimant. A reservation ends when all frames are claimed, when its owner ends it, or when it
//! is *broken*: if a base frame is requested and none is free, the least recently used reservation frees its
//! unclaimed frames. Requests for larger blocks break none, since that would trade one contiguity for
//! another.

use std::collections::BTreeMap;
use std::ops::Range;

use octavo_types::FrameNumber;
use rustc_hash::FxHashMap;

use super::block_set::BlockSet;
use super::ledger::Owner;
use super::memory::Frames;
use super::order::{Order, blocks_of};

/// A reservation. Identifiers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReservationId(u64);

/// Counts of reservations since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ReservationCounts {
    /// Blocks reserved.
    pub made: u64,
    /// Reservations broken for lack of free frames.
    pub broken: u64,
    /// Frames freed by broken reservations.
    pub frames_given_back: u64,
}

#[derive(Clone, Debug)]
struct Reservation {
    block: FrameNumber,
    /// The unclaimed frames; never empty.
    left: BlockSet,
    /// Unique time of its last use.
    used: u64,
}

/// All reservations, with their order of use.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    by_id: FxHashMap<ReservationId, Reservation>,
    by_use: BTreeMap<u64, ReservationId>,
    next: u64,
    counts: ReservationCounts,
}

impl Reservations {
    fn insert(&mut self, block: FrameNumber, left: BlockSet, used: u64) -> ReservationId {
        let id = ReservationId(self.tick());
        self.by_use.insert(used, id);
        self.by_id.insert(id, Reservation { block, left, used });
        id
    }

    fn remove(&mut self, id: ReservationId) -> Option<Reservation> {
        let gone = self.by_id.remove(&id)?;
        self.by_use.remove(&gone.used);
        Some(gone)
    }

    fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}

impl Frames {
    /// Reserves a block of `order`; `None` if none is free.
    pub fn reserve(&mut self, order: Order) -> Option<(ReservationId, FrameNumber)> {
        let block = self.allocate_free(order, Owner::Reserved).ok()?;
        let used = self.reservations.tick();
        self.reservations.counts.made += 1;
        Some((self.reservations.insert(block, BlockSet::all(order), used), block))
    }

    /// Whether the reservation still exists: it has unclaimed frames, and was neither broken nor ended.
    pub fn is_reserved(&self, id: ReservationId) -> bool {
        self.reservations.by_id.contains_key(&id)
    }

    /// Whether the frame at `place` of the reservation's block is unclaimed.
    pub fn has_unclaimed(&self, id: ReservationId, place: u64) -> bool {
        self.reservations.by_id.get(&id).is_some_and(|of| of.left.contains(place))
    }

    /// Records a use of the reservation, so that others are broken before it.
    pub fn record_use(&mut self, id: ReservationId) {
        let latest = self.reservations.by_use.last_key_value();
        if latest.is_some_and(|(_, of)| *of == id) {
            return;
        }
        let now = self.reservations.tick();
        if let Some(of) = self.reservations.by_id.get_mut(&id) {
            let before = std::mem::replace(&mut of.used, now);
            self.reservations.by_use.remove(&before);
            self.reservations.by_use.insert(now, id);
        }
    }

    /// Claims the unclaimed frames at `places` of the reservation's block as data. Returns the claimed
    /// places.
    pub fn claim_reserved(&mut self, id: ReservationId, places: Range<u64>) -> Vec<Range<u64>> {
        let Some(of) = self.reservations.by_id.get_mut(&id) else { return Vec::new() };
        let runs: Vec<_> = of.left.runs(places).collect();
        for run in &runs {
            for place in run.clone() {
                of.left.remove(place);
            }
            let start = of.block.plus(run.start);
            self.ledger.change(start, run.end - run.start, Owner::Data);
        }
        if of.left.is_empty() {
            self.reservations.remove(id);
        }
        runs
    }

    /// Ends the reservation and frees its unclaimed frames.
    pub fn end_reservation(&mut self, id: ReservationId) {
        if let Some(gone) = self.reservations.remove(id) {
            self.free_left(&gone, 0..gone.left.order().frames());
        }
    }

    /// Removes `places` from the reservation: their unclaimed frames are freed, and the rest is reserved by
    /// the fewest blocks of two or more frames, each a new reservation used just now. Returns the new
    /// reservations with unclaimed frames: first place in the old one, order and identifier.
    pub fn split_reservation(
        &mut self,
        id: ReservationId,
        places: Range<u64>,
    ) -> Vec<(u64, Order, ReservationId)> {
        let Some(gone) = self.reservations.remove(id) else { return Vec::new() };
        let mut parts = Vec::new();
        for around in [0..places.start, places.end..gone.left.order().frames()] {
            let start = FrameNumber::new(around.start);
            for (at, order) in blocks_of(start, around.end - around.start, Order::LARGEST) {
                if order == Order::BASE {
                    self.free_left(&gone, at.raw()..at.raw() + 1);
                    continue;
                }
                let left = gone.left.part(at.raw(), order);
                if !left.is_empty() {
                    let used = self.reservations.tick();
                    let block = gone.block.plus(at.raw());
                    parts.push((at.raw(), order, self.reservations.insert(block, left, used)));
                }
            }
        }
        self.free_left(&gone, places);
        parts
    }

    /// Counts of reservations since the start.
    pub fn reservation_counts(&self) -> ReservationCounts {
        self.reservations.counts
    }

    /// Breaks the least recently used reservation. Returns whether there was one.
    pub fn break_oldest_reservation(&mut self) -> bool {
        let Some((_, &id)) = self.reservations.by_use.first_key_value() else { return false };
        let gone = self.reservations.remove(id).expect("it is in both lists");
        self.reservations.counts.broken += 1;
        self.reservations.counts.frames_given_back += gone.left.len();
        self.free_left(&gone, 0..gone.left.order().frames());
        true
    }

    fn free_left(&mut self, of: &Reservation, places: Range<u64>) {
        for run in of.left.runs(places) {
            self.free_range(of.block.plus(run.start), run.end - run.start);
        }
    }
}
