//! Reserved blocks of frames, as a list in the order of their last use.

use std::collections::BTreeSet;

use octavo_types::FrameNumber;

use crate::NaiveBuddy;

/// Memory with reservations, after Guvenilir and Patt, ISCA 2020, Section III-B.1: "reserved frames are
/// neither free nor in use; they can transition to either state depending on system demands".
#[derive(Clone, Debug)]
pub struct NaiveReservations {
    /// The free blocks.
    pub buddy: NaiveBuddy,
    /// The name and the unused frames of each reservation, the least recently used first. A reservation without
    /// unused frames is dropped.
    reservations: Vec<(u64, BTreeSet<u64>)>,
    /// Number of broken reservations.
    pub broken: u64,
}

impl NaiveReservations {
    /// Memory of `frames` frames, all of them free, with blocks of up to `2^largest` frames.
    pub fn new(frames: u64, largest: u8) -> Self {
        let buddy = NaiveBuddy::new(frames, largest);
        NaiveReservations { buddy, reservations: Vec::new(), broken: 0 }
    }

    /// Allocates a free block. If a single frame is requested and none is free, breaks the least recently used
    /// reservation.
    pub fn allocate(&mut self, order: u8) -> Option<FrameNumber> {
        let block = self.buddy.allocate(order);
        if block.is_some() || order > 0 || self.reservations.is_empty() {
            return block;
        }
        let (_, left) = self.reservations.remove(0);
        self.broken += 1;
        left.into_iter().for_each(|frame| self.buddy.free(FrameNumber::new(frame), 0));
        self.buddy.allocate(order)
    }

    /// Reserves a free block under a new name.
    pub fn reserve(&mut self, name: u64, order: u8) -> Option<FrameNumber> {
        let block = self.buddy.allocate(order)?;
        let left = (block.raw()..block.raw() + (1 << order)).collect();
        self.reservations.push((name, left));
        Some(block)
    }

    /// The unused frames of a reservation, if it still exists.
    pub fn left(&self, name: u64) -> Option<&BTreeSet<u64>> {
        self.reservations.iter().find(|(other, _)| *other == name).map(|(_, left)| left)
    }

    /// Makes a reservation the most recently used.
    pub fn record_use(&mut self, name: u64) {
        if let Some(at) = self.reservations.iter().position(|(other, _)| *other == name) {
            let used = self.reservations.remove(at);
            self.reservations.push(used);
        }
    }

    /// Allocates the unused frames of a reservation within a range. The order of use stays.
    pub fn take(&mut self, name: u64, frames: std::ops::Range<u64>) -> Vec<u64> {
        let reservation = self.reservations.iter_mut().find(|(other, _)| *other == name);
        let Some((_, left)) = reservation else { return Vec::new() };
        let taken: Vec<u64> = left.range(frames).copied().collect();
        left.retain(|frame| !taken.contains(frame));
        self.reservations.retain(|(_, left)| !left.is_empty());
        taken
    }

    /// Frees the unused frames of a reservation within a range.
    pub fn give_back(&mut self, name: u64, frames: std::ops::Range<u64>) {
        for frame in self.take(name, frames) {
            self.buddy.free(FrameNumber::new(frame), 0);
        }
    }

    /// Moves the unused frames of a reservation within a range to a new reservation, the most recently used.
    pub fn part(&mut self, name: u64, frames: std::ops::Range<u64>, new: u64) {
        let left: BTreeSet<u64> = self.take(name, frames).into_iter().collect();
        if !left.is_empty() {
            self.reservations.push((new, left));
        }
    }
}
