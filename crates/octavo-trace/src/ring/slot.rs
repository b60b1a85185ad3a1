//! One stream's slot: chunks as they are handed over, and at the end what was begun.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::format::{self, slot};
use super::session::Session;

/// The consumer's end of a slot.
pub struct Slot {
    session: Arc<Session>,
    number: usize,
    /// The chunk being read, counted from the stream's beginning, and how far.
    chunk: u64,
    word: usize,
}

impl Slot {
    /// The consumer's end of the session's slot `number`.
    pub fn new(session: Arc<Session>, number: usize) -> Self {
        Slot { session, number, chunk: 0, word: 0 }
    }

    /// The traced process.
    pub fn pid(&self) -> u32 {
        self.u32(slot::PID).load(Ordering::Relaxed)
    }

    /// The stream's number: the order in which streams began.
    pub fn stream(&self) -> u32 {
        self.u32(slot::STREAM).load(Ordering::Relaxed)
    }

    /// The stream that forked this one; none for a fresh image.
    pub fn parent_stream(&self) -> Option<u32> {
        let parent = self.u32(slot::PARENT_STREAM).load(Ordering::Relaxed);
        (parent != format::NO_PARENT).then_some(parent)
    }

    /// The signal that ended the process, once it has.
    pub fn fatal_signal(&self) -> Option<u32> {
        let signal = self.u32(slot::FATAL_SIGNAL).load(Ordering::Relaxed);
        (signal != 0).then_some(signal)
    }

    /// Hands the next words to `take`: the rest of a whole chunk, or, where `unpublished`, what the
    /// process has written of the chunk it is at. Returns how many words there were.
    pub fn read(&mut self, unpublished: bool, take: impl FnOnce(&[u64])) -> usize {
        let published = self.u64(slot::CHUNKS_PUBLISHED).load(Ordering::Acquire);
        let index = (self.chunk % format::CHUNKS as u64) as usize;
        let whole = self.chunk < published;
        let end = if whole {
            self.u32(slot::CHUNK_WORDS + 4 * index).load(Ordering::Relaxed) as usize
        } else if unpublished {
            self.written_words(index)
        } else {
            return 0;
        };
        // A process gone astray may have overwritten the header: never read past the chunk.
        let end = end.min(format::CHUNK_WORDS);
        let count = end.saturating_sub(self.word);
        if count > 0 {
            let offset =
                self.offset() + format::PAGE_BYTES + index * format::CHUNK_BYTES + 8 * self.word;
            // SAFETY: inside the mapped chunk; the tracer does not touch words before its write
            // address until we say that the chunk is consumed, which happens below.
            let words =
                unsafe { std::slice::from_raw_parts(self.session.at(offset).cast::<u64>(), count) };
            take(words);
        }
        if whole {
            self.chunk += 1;
            self.word = 0;
            self.u64(slot::CHUNKS_CONSUMED).store(self.chunk, Ordering::Release);
        } else {
            self.word = self.word.max(end);
        }
        count
    }

    /// Gives the slot back, once its process is gone and all is read.
    pub fn release(self) {
        self.session.release(self.number);
    }

    /// How many words of chunk `index` lie before the write address, if that is the chunk at hand.
    fn written_words(&self, index: usize) -> usize {
        let write = self.u64(slot::WRITE_ADDRESS).load(Ordering::Acquire);
        let first = self.u64(slot::FIRST_CHUNK_ADDRESS).load(Ordering::Relaxed);
        let start = first.wrapping_add((index * format::CHUNK_BYTES) as u64);
        let bytes = write.wrapping_sub(start);
        if bytes <= format::CHUNK_BYTES as u64 { bytes as usize / 8 } else { 0 }
    }

    fn offset(&self) -> usize {
        format::PAGE_BYTES + self.number * format::SLOT_BYTES
    }

    fn u32(&self, field: usize) -> &AtomicU32 {
        // SAFETY: aligned, inside the mapping, and only ever reached as an atomic.
        unsafe { &*self.session.at(self.offset() + field).cast() }
    }

    fn u64(&self, field: usize) -> &AtomicU64 {
        // SAFETY: as above.
        unsafe { &*self.session.at(self.offset() + field).cast() }
    }
}
