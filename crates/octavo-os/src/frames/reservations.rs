//! Reservations: blocks reserved for a range of pages, whose frames are claimed one by one (Guvenilir and
//! Patt, ISCA 2020, Section III-B.1, after FreeBSD and Navarro et al., OSDI 2002).
//!
//! "Reserved frames are neither free nor in use; they can transition to either state depending on system
//! demands." A reservation owns its unclaimed frames ([`Owner::Reserved`](super::Owner::Reserved) in the ledger); claimed frames are
//! data of the claimant. A reservation ends when all frames are claimed, when its owner ends it, or when it
//! is *broken*: if a base frame is requested and none is free, the least recently used reservation frees its
//! unclaimed frames. Requests for larger blocks break none, since that would trade one contiguity for
//! another. The operations are those of [`Frames`](super::Frames).

use std::collections::BTreeMap;

use octavo_types::FrameNumber;
use rustc_hash::FxHashMap;

use super::block_set::BlockSet;

/// A reservation. Identifiers are never reused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ReservationId(u64);

/// A block, some frames of which are unclaimed.
#[derive(Clone, Debug)]
pub(super) struct Reservation {
    pub block: FrameNumber,
    /// The unclaimed frames; never empty.
    pub left: BlockSet,
    /// Unique time of its last use.
    pub used: u64,
}

/// All reservations, with their order of use.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations {
    pub by_id: FxHashMap<ReservationId, Reservation>,
    pub by_use: BTreeMap<u64, ReservationId>,
    next: u64,
}

impl Reservations {
    pub fn insert(&mut self, block: FrameNumber, left: BlockSet, used: u64) -> ReservationId {
        let id = ReservationId(self.tick());
        self.by_use.insert(used, id);
        self.by_id.insert(id, Reservation { block, left, used });
        id
    }

    pub fn remove(&mut self, id: ReservationId) -> Option<Reservation> {
        let removed = self.by_id.remove(&id)?;
        self.by_use.remove(&removed.used);
        Some(removed)
    }

    pub fn tick(&mut self) -> u64 {
        self.next += 1;
        self.next
    }
}
