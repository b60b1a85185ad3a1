//! One stream's slot: its complete chunks, and the draft of the next one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::Duration;

use super::format::{self, slot};
use super::session::Session;

/// Upper bound on the calls of [`Slot::read`] that read everything a process had written before the
/// first of them.
pub const MOST_BATCHES: u32 = format::CHUNKS as u32 + 1;

/// How a process has confined the system calls of its own image, and so the tracer's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Seccomp {
    /// `read`, `write`, `exit` and `sigreturn` only; any other kills with SIGKILL.
    Strict,
    /// By a filter; a forbidden call may kill with SIGSYS.
    Filter,
}

/// The consumer's end of a slot.
pub struct Slot {
    session: Arc<Session>,
    number: usize,
    /// The chunk being read, counted from the stream's beginning, and the next word in it.
    chunk: u64,
    word: usize,
    /// Words copied from a draft, which may be overwritten at any time.
    draft: Vec<u64>,
}

impl Slot {
    /// The consumer's end of the session's slot `number`.
    pub fn new(session: Arc<Session>, number: usize) -> Self {
        Slot { session, number, chunk: 0, word: 0, draft: Vec::new() }
    }

    /// The process whose image writes here, by its identifier in our PID namespace; `None` once
    /// that image is gone.
    pub fn holder(&self) -> Option<u32> {
        self.session.holder(self.number)
    }

    /// The traced process, by its identifier in its own PID namespace.
    pub fn pid(&self) -> u32 {
        self.u32(slot::PID).load(Ordering::Relaxed)
    }

    /// The stream's number: the order in which streams began.
    pub fn stream(&self) -> u32 {
        self.u32(slot::STREAM).load(Ordering::Relaxed)
    }

    /// The stream that forked this one; `None` for a fresh image.
    pub fn parent_stream(&self) -> Option<u32> {
        let parent = self.u32(slot::PARENT_STREAM).load(Ordering::Relaxed);
        (parent != format::NO_PARENT).then_some(parent)
    }

    /// The signal that ended the process, once it has.
    pub fn fatal_signal(&self) -> Option<u32> {
        let signal = self.u32(slot::FATAL_SIGNAL).load(Ordering::Relaxed);
        (signal != 0).then_some(signal)
    }

    /// Processor time that the image's system calls took in the kernel while they were traced,
    /// estimated.
    pub fn kernel_time(&self) -> Duration {
        Duration::from_nanos(self.u64(slot::KERNEL_NANOSECONDS).load(Ordering::Relaxed))
    }

    /// The number of threads that the slot describes: the first ones that have begun in the image.
    pub fn threads(&self) -> usize {
        let begun = self.u32(slot::THREADS_BEGUN).load(Ordering::Relaxed);
        format::THREADS.min(begun as usize)
    }

    /// As [`Slot::kernel_time`], of the calls of one thread.
    pub fn thread_kernel_time(&self, thread: usize) -> Duration {
        Duration::from_nanos(self.thread_word(thread, 0))
    }

    /// The last name known of a thread; empty: that of the program.
    pub fn thread_name(&self, thread: usize) -> String {
        let name = [1, 2].map(|word| self.thread_word(thread, word).to_le_bytes()).concat();
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    fn thread_word(&self, thread: usize, word: usize) -> u64 {
        let at = slot::THREADS + thread * format::THREAD_BYTES + 8 * word;
        self.u64(at).load(Ordering::Relaxed)
    }

    /// Whether the process has confined itself with seccomp, and how.
    pub fn seccomp(&self) -> Option<Seccomp> {
        match self.u32(slot::SECCOMP).load(Ordering::Relaxed) {
            0 => None,
            1 => Some(Seccomp::Strict),
            _ => Some(Seccomp::Filter),
        }
    }

    /// Passes the next words to `take`: the rest of a whole chunk or, if `unpublished`, everything
    /// that the process has written of its current chunk. Returns how many words there were; 0 only
    /// if there is nothing more for now.
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
        let published = self.published();
        if self.is_whole(published) {
            self.read_chunk(take)
        } else if unpublished {
            self.read_draft(published, take)
        } else {
            0
        }
    }

    fn published(&self) -> u64 {
        self.u64(slot::CHUNKS_PUBLISHED).load(Ordering::Acquire)
    }

    /// Whether the current chunk is among the first `published` ones. No tracer of ours is more
    /// than a ring ahead.
    fn is_whole(&self, published: u64) -> bool {
        (1..=format::CHUNKS as u64).contains(&published.wrapping_sub(self.chunk))
    }

    /// Reads the rest of the current chunk, which is published.
    fn read_chunk(&mut self, take: &mut impl FnMut(&[u64])) -> usize {
        let index = (self.chunk % format::CHUNKS as u64) as usize;
        let end = self.u32(slot::CHUNK_WORDS + 4 * index).load(Ordering::Relaxed) as usize;
        // A faulty process may have overwritten the header: never read past the chunk.
        let count = end.min(format::CHUNK_WORDS).saturating_sub(self.word);
        if count > 0 {
            let place = (1 + index) * format::CHUNK_BYTES + 8 * self.word;
            // SAFETY: inside the mapped chunk; the tracer does not write there until we say that
            // the chunk is consumed, which happens below.
            take(unsafe { std::slice::from_raw_parts(self.word_at(place), count) });
        }
        self.chunk += 1;
        self.word = 0;
        self.u64(slot::CHUNKS_CONSUMED).store(self.chunk, Ordering::Release);
        count
    }

    /// Reads what has been added to the draft of the current chunk, or the chunk if it is published
    /// meanwhile.
    fn read_draft(&mut self, published: u64, take: &mut impl FnMut(&[u64])) -> usize {
        let end = self.drafted_words();
        self.draft.clear();
        for word in self.word..end {
            // SAFETY: inside the mapped draft, whose words are written whole; aligned.
            self.draft.push(unsafe { self.word_at(8 * word).read_volatile() });
        }
        fence(Ordering::Acquire);
        let published_since = self.published();
        if published_since != published {
            return if self.is_whole(published_since) { self.read_chunk(take) } else { 0 };
        }
        self.word = self.word.max(end);
        if !self.draft.is_empty() {
            take(&self.draft);
        }
        self.draft.len()
    }

    /// Frees the slot, once its process has ended and everything is read.
    pub fn release(self) {
        self.session.release(self.number);
    }

    /// How many words the draft has. A faulty process may have overwritten the header.
    fn drafted_words(&self) -> usize {
        let write = self.u64(slot::WRITE_ADDRESS).load(Ordering::Acquire);
        let bytes = write.wrapping_sub(self.u64(slot::DRAFT_ADDRESS).load(Ordering::Relaxed));
        (bytes / 8).min(format::CHUNK_WORDS as u64) as usize
    }

    /// The word at `place` bytes from the draft's beginning, which follows the header.
    fn word_at(&self, place: usize) -> *const u64 {
        self.session.at(self.offset() + format::PAGE_BYTES + place).cast()
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

    /// Where the tracer of these tests has its draft.
    const DRAFT_AT: u64 = 0x10_0000;

    fn slot() -> Slot {
        let slot = Slot::new(Session::create().unwrap(), 3);
        slot.u64(slot::DRAFT_ADDRESS).store(DRAFT_AT, Ordering::Relaxed);
        draft(&slot, &[]);
        slot
    }

    fn write(slot: &Slot, place: usize, words: &[u64]) {
        for (number, word) in words.iter().enumerate() {
            // SAFETY: inside the mapping, which nothing else writes to.
            unsafe { slot.word_at(place + 8 * number).cast_mut().write(*word) };
        }
    }

    fn draft(slot: &Slot, words: &[u64]) {
        write(slot, 0, words);
        let address = DRAFT_AT + 8 * words.len() as u64;
        slot.u64(slot::WRITE_ADDRESS).store(address, Ordering::Release);
    }

    fn publish(slot: &Slot, chunk: u64, words: &[u64]) {
        let index = chunk as usize % format::CHUNKS;
        write(slot, (1 + index) * format::CHUNK_BYTES, words);
        slot.u32(slot::CHUNK_WORDS + 4 * index).store(words.len() as u32, Ordering::Relaxed);
        slot.u64(slot::CHUNKS_PUBLISHED).store(chunk + 1, Ordering::Release);
        draft(slot, &[]);
    }

    fn read(slot: &mut Slot, unpublished: bool) -> Vec<u64> {
        let mut all = Vec::new();
        let count = slot.read(unpublished, |words| all.extend_from_slice(words));
        assert_eq!(count, all.len());
        all
    }

    #[test]
    fn a_draft_is_read_where_it_is_asked_for_and_only_once() {
        let mut slot = slot();
        draft(&slot, &[1, 2, 3]);
        assert!(read(&mut slot, false).is_empty());
        assert_eq!(read(&mut slot, true), [1, 2, 3]);
        assert!(read(&mut slot, true).is_empty());
        draft(&slot, &[1, 2, 3, 4]);
        assert_eq!(read(&mut slot, true), [4]);
        publish(&slot, 0, &[1, 2, 3, 4, 5]);
        assert_eq!(read(&mut slot, false), [5]);
    }

    #[test]
    fn a_chunk_whose_draft_was_read_to_its_end_hides_no_other() {
        let mut slot = slot();
        draft(&slot, &[7; 1000]);
        assert_eq!(read(&mut slot, true).len(), 1000);
        publish(&slot, 0, &[7; 1000]);
        draft(&slot, &[8, 9]);
        assert_eq!(read(&mut slot, true), [8, 9]);
        assert_eq!(slot.u64(slot::CHUNKS_CONSUMED).load(Ordering::Relaxed), 1);
    }

    #[test]
    fn of_a_draft_that_is_published_while_it_is_read_the_chunk_is_taken() {
        let mut slot = slot();
        publish(&slot, 0, &[1, 2, 3]);
        draft(&slot, &[4]);
        // The reader had asked when nothing was published.
        let mut taken = Vec::new();
        slot.read_draft(0, &mut |words| taken.extend_from_slice(words));
        assert_eq!(taken, [1, 2, 3]);
        assert_eq!(read(&mut slot, true), [4]);
    }

    #[test]
    fn a_ring_of_chunks_is_read_in_order() {
        let mut slot = slot();
        for chunk in 0..3 * format::CHUNKS as u64 {
            publish(&slot, chunk, &[chunk, chunk + 1]);
            assert_eq!(read(&mut slot, false), [chunk, chunk + 1]);
        }
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
