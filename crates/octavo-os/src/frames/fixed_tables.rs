//! Tables that hardware finds at a fixed location instead of by pointers: hole and chunk bitmaps, and tables
//! of translation designs. When a machine starts, they are reserved in the last frames of local memory if they fit
//! there, otherwise of all memory. (Bitmaps of a memory with faulty frames are always at the end of all memory.)

use octavo_types::FrameNumber;

use super::chunks::{CHUNKS_OF_FRAME, ChunkBitmaps, FRAMES_OF_CHUNK};
use super::hole_bitmaps::{FRAMES_OF_FRAME, HoleBitmaps};
use super::ledger::Owner;
use super::memory::Frames;
use super::order::Order;

/// Maximum frames at the end of a memory of `frames` that such tables may take. This part of memory is never
/// [faulty](super::fragmentation::Faults).
pub(super) fn frames_of_tables(frames: u64) -> u64 {
    frames.div_ceil(FRAMES_OF_FRAME) + frames.div_ceil(FRAMES_OF_CHUNK * CHUNKS_OF_FRAME)
}

impl Frames {
    /// Reserves the last `frames` frames not yet reserved for tables, regardless of their owners. Returns the
    /// first of them.
    pub(super) fn reserve_at_end(&mut self, frames: u64) -> FrameNumber {
        let all = self.shape().frames();
        let local = self.local_frames();
        let fits = frames_of_tables(all) <= local && self.used_frames(Owner::Faulty) == 0;
        let end = if fits { local } else { all } - self.used_frames(Owner::HoleBitmap);
        let start = FrameNumber::new(end - frames);
        for frame in (start.raw()..end).map(FrameNumber::new) {
            if self.owner(frame).is_some() {
                self.change_owner(frame, Order::BASE, Owner::HoleBitmap);
            } else {
                self.allocate_at(frame, Order::BASE, Owner::HoleBitmap);
            }
        }
        start
    }

    /// Reserves the last frames of memory for the hole bitmap, regardless of their owners. Called once, at
    /// the start.
    pub fn reserve_hole_bitmaps(&mut self) {
        if self.holes.are_reserved() {
            return;
        }
        let frames = self.shape().frames().div_ceil(FRAMES_OF_FRAME);
        self.holes.start = Some(self.reserve_at_end(frames));
    }

    /// The hole bitmap.
    pub fn hole_bitmaps(&self) -> &HoleBitmaps {
        &self.holes
    }

    /// Reserves the frames of the chunk bitmaps. Called once.
    pub fn reserve_chunk_bitmaps(&mut self) {
        if !self.chunks.are_reserved() {
            let chunks = self.shape().frames().div_ceil(FRAMES_OF_CHUNK);
            self.chunks.start = Some(self.reserve_at_end(chunks.div_ceil(CHUNKS_OF_FRAME)));
        }
    }

    /// The chunk bitmaps.
    pub fn chunk_bitmaps(&self) -> &ChunkBitmaps {
        &self.chunks
    }

    /// Reserves the last `frames` frames that are not faulty for the tables of a design, regardless of their
    /// owners, for [`Frames::of_design`]. Must be called before any page is mapped.
    ///
    /// # Panics
    /// If memory has fewer frames.
    pub fn reserve_for_design(&mut self, frames: u64) {
        let (local, all) = (self.local_frames(), self.shape().frames());
        let mut next = (0..local).rev().chain((local..all).rev());
        while (self.of_design.len() as u64) < frames {
            let frame = FrameNumber::new(next.next().expect("memory holds the tables"));
            match self.owner(frame) {
                Some(Owner::Faulty) => continue,
                Some(_) => self.change_owner(frame, Order::BASE, Owner::DesignTable),
                None => drop(self.allocate_at(frame, Order::BASE, Owner::DesignTable)),
            }
            self.of_design.push(frame);
        }
    }

    /// The number of frames of local memory.
    fn local_frames(&self) -> u64 {
        self.buddy().tiers().next().map_or(0, |local| local.end)
    }

    /// The frames reserved for tables of the design, the last of memory first.
    pub fn of_design(&self) -> &[FrameNumber] {
        &self.of_design
    }
}
