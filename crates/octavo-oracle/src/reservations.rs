//! Blocks set aside, as a list in the order of their last use.

use std::collections::BTreeSet;

use octavo_types::FrameNumber;

use crate::NaiveBuddy;

/// Memory with reservations, after Guvenilir and Patt, ISCA 2020, Section III-B.1: "reserved frames are
/// neither free nor in use; they can transition to either state depending on system demands".
#[derive(Clone, Debug)]
pub struct NaiveReservations {
    /// The free blocks.
    pub buddy: NaiveBuddy,
    /// The name and the untaken frames of each reservation, the least recently used first.
    /// Reservations without such frames are dropped.
    reservations: Vec<(u64, BTreeSet<u64>)>,
    /// How many were broken.
    pub broken: u64,
}

impl NaiveReservations {
    /// Memory of `frames` frames, all of them free, with blocks of up to `2^largest` frames.
    pub fn new(frames: u64, largest: u8) -> Self {
        let buddy = NaiveBuddy::new(frames, largest);
        NaiveReservations { buddy, reservations: Vec::new(), broken: 0 }
    }

    /// A free block; for a single frame the reservation used longest ago is broken if need be.
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

    /// Sets a free block aside under a new name.
    pub fn reserve(&mut self, name: u64, order: u8) -> Option<FrameNumber> {
        let block = self.buddy.allocate(order)?;
        let left = (block.raw()..block.raw() + (1 << order)).collect();
        self.reservations.push((name, left));
        Some(block)
    }

    /// The frames that a reservation has left, if it is one still.
    pub fn left(&self, name: u64) -> Option<&BTreeSet<u64>> {
        self.reservations.iter().find(|(of, _)| *of == name).map(|(_, left)| left)
    }

    /// A reservation is used now.
    pub fn record_use(&mut self, name: u64) {
        if let Some(at) = self.reservations.iter().position(|(of, _)| *of == name) {
            let used = self.reservations.remove(at);
            self.reservations.push(used);
        }
    }

    /// Takes what a reservation has left of some frames. It keeps its place in the order of use.
    pub fn take(&mut self, name: u64, frames: std::ops::Range<u64>) -> Vec<u64> {
        let of = self.reservations.iter_mut().find(|(of, _)| *of == name);
        let Some((_, left)) = of else { return Vec::new() };
        let taken: Vec<u64> = left.range(frames).copied().collect();
        left.retain(|frame| !taken.contains(frame));
        self.reservations.retain(|(_, left)| !left.is_empty());
        taken
    }

    /// Frees the untaken frames of a reservation within a range.
    pub fn give_back(&mut self, name: u64, frames: std::ops::Range<u64>) {
        for frame in self.take(name, frames) {
            self.buddy.free(FrameNumber::new(frame), 0);
        }
    }

    /// Moves the untaken frames of a reservation within a range to a new reservation, used just now.
    pub fn part(&mut self, name: u64, frames: std::ops::Range<u64>, new: u64) {
        let left: BTreeSet<u64> = self.take(name, frames).into_iter().collect();
        if !left.is_empty() {
            self.reservations.push((new, left));
        }
    }
}
