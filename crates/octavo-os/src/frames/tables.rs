//! What hardware finds in memory by its place, and not by pointers: bitmaps. They are reserved when a machine
//! starts, in its last frames.

use octavo_types::FrameNumber;

use super::chunks::SubBlocks;
use super::ledger::Holder;
use super::memory::Frames;
use super::order::Order;

/// Frames whose bits one frame holds: a bit each.
pub(super) const FRAMES_OF_FRAME: u64 = 4096 * 8;
/// Chunks of 4 MiB whose bitmaps one frame holds: eight bytes each.
pub(super) const CHUNKS_OF_FRAME: u64 = 4096 / 8;
/// Frames of a chunk.
pub(super) const FRAMES_OF_CHUNK: u64 = SubBlocks::CHUNK.frames();

/// The most frames at the end of a memory of so many that may be reserved so. A machine keeps such tables in
/// memory that is not [faulty](super::fragmentation::Faults).
pub(super) fn frames_of_tables(frames: u64) -> u64 {
    frames.div_ceil(FRAMES_OF_FRAME) + frames.div_ceil(FRAMES_OF_CHUNK * CHUNKS_OF_FRAME)
}

impl Frames {
    /// Takes the last frames that nobody has taken so before, whoever has them: they are there from the
    /// start. The first of them.
    pub(super) fn reserve_last(&mut self, frames: u64) -> FrameNumber {
        let end = self.shape().frames() - self.used_frames(Holder::HoleBitmap);
        let start = FrameNumber::new(end - frames);
        for frame in (start.raw()..end).map(FrameNumber::new) {
            if self.holder(frame).is_some() {
                self.change_holder(frame, Order::BASE, Holder::HoleBitmap);
            } else {
                self.allocate_at(frame, Order::BASE, Holder::HoleBitmap);
            }
        }
        start
    }
}
