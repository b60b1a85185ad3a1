//! One stream's slot: its complete chunks, and at the end the unfinished one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::format::{self, slot};
use super::session::Session;

/// Upper bound on the calls of [`Slot::read`] that drain all that a process had written when the
/// first of them began.
pub const MOST_BATCHES: u32 = format::CHUNKS as u32 + 1;

/// How a process has confined the system calls of its own image, and so the tracer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seccomp {
    /// `read`, `write`, `exit` and `sigreturn` only; any other kills with SIGKILL.
    Strict,
    /// By a filter; what it forbids may kill with SIGSYS.
    Filter,
}

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

    /// The process whose image writes here, as we know it; none once that image is gone.
    pub fn holder(&self) -> Option<u32> {
        self.session.holder(self.number)
    }

    /// The traced process, as it knows itself.
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

    /// Whether the process has confined itself with seccomp, and how.
    pub fn seccomp(&self) -> Option<Seccomp> {
        match self.u32(slot::SECCOMP).load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Seccomp::Strict),
            _ => Some(Seccomp::Filter),
        }
    }

    /// Hands the next words to `take`: the rest of a whole chunk, or, where `unpublished`, what the
    /// process has written of the chunk it is at. Returns how many words there were; 0 only where
    /// there is nothing more for now.
    pub fn read(&mut self, unpublished: bool, mut take: impl FnMut(&[u64])) -> usize {
        for _ in 0..format::CHUNKS {
            let chunk = self.chunk;
            let count = self.read_once(unpublished, &mut take);
            // A whole chunk may hold nothing that was not read before, when the process was idle.
            if count > 0 || self.chunk == chunk {
                return count;
            }
        }
        0
    }

    fn read_once(&mut self, unpublished: bool, take: &mut impl FnMut(&[u64])) -> usize {
        let published = self.u64(slot::CHUNKS_PUBLISHED).load(Ordering::Acquire);
        let index = (self.chunk % format::CHUNKS as u64) as usize;
        // More than a ring ahead is no tracer of ours.
        let whole = (1..=format::CHUNKS as u64).contains(&published.wrapping_sub(self.chunk));
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
        // A chunk is never filled to its last word: that address is the next chunk's beginning, which
        // the process has entered since we asked what is published.
        if bytes < format::CHUNK_BYTES as u64 { bytes as usize / 8 } else { 0 }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Where the tracer of these tests has its chunks.
    const CHUNKS_AT: u64 = 0x10_0000;

    fn slot() -> Slot {
        let slot = Slot::new(Session::create().unwrap(), 3);
        slot.u64(slot::FIRST_CHUNK_ADDRESS).store(CHUNKS_AT, Ordering::Relaxed);
        slot.u64(slot::WRITE_ADDRESS).store(CHUNKS_AT, Ordering::Relaxed);
        slot
    }

    fn write_up_to(slot: &Slot, chunk: u64, words: u64) {
        let address = CHUNKS_AT + chunk * format::CHUNK_BYTES as u64 + 8 * words;
        slot.u64(slot::WRITE_ADDRESS).store(address, Ordering::Release);
    }

    fn publish(slot: &Slot, chunk: u64, words: u32) {
        slot.u32(slot::CHUNK_WORDS + 4 * chunk as usize).store(words, Ordering::Relaxed);
        slot.u64(slot::CHUNKS_PUBLISHED).store(chunk + 1, Ordering::Release);
    }

    #[test]
    fn a_chunk_that_was_read_before_it_was_whole_hides_no_other() {
        let mut slot = slot();
        write_up_to(&slot, 0, 32_000);
        assert_eq!(slot.read(false, |_| {}), 0);
        assert_eq!(slot.read(true, |_| {}), 32_000);
        publish(&slot, 0, 32_000);
        write_up_to(&slot, 1, 5);
        assert_eq!(slot.read(true, |_| {}), 5);
        assert_eq!(slot.u64(slot::CHUNKS_CONSUMED).load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_process_at_the_next_chunk_has_written_nothing_into_this_one() {
        let mut slot = slot();
        write_up_to(&slot, 1, 0);
        assert_eq!(slot.read(true, |_| {}), 0);
    }

    #[test]
    fn more_chunks_than_there_are_are_none() {
        let mut slot = slot();
        slot.u64(slot::CHUNKS_PUBLISHED).store(u64::MAX, Ordering::Relaxed);
        assert_eq!(slot.read(true, |_| {}), 0);
    }

    #[test]
    fn an_unlocked_slot_has_no_holder() {
        assert_eq!(slot().holder(), None);
    }
}
