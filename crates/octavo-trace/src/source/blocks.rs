//! An input in blocks, which a thread of their own reads (and expands, if compressed) a few ahead
//! of the parser, which parses them in place.
//!
//! The copy from the system costs a fast parser as much as parsing does. So the system copies into
//! a block, and that block is handed over; the parser's unfinished rest of the block before is put
//! in front of it, and nothing else is copied. Short inputs are read without a thread.

use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

use super::{Input, Meter, Progress};

/// The most that a parser may leave for the next block.
pub(crate) const MAX_REST_BYTES: usize = 8 << 10;
/// How much is read at once as long as there is no thread: a small block stays in the nearest
/// cache.
const SMALL_BLOCK_BYTES: usize = 1 << 15;
/// How much is read before there is a thread.
pub(super) const HERE_BYTES: usize = if cfg!(test) { 1 << 14 } else { 1 << 19 };
/// How much is read at once on the thread: all blocks together fit into a second-level cache.
const BLOCK_BYTES: usize = 1 << 18;
/// How many blocks may wait; one more is being filled, and one read.
const WAITING: usize = 2;

/// A message of the thread: a block, and how much was read into it or the error.
type Message = (Vec<u8>, io::Result<usize>);

/// An input, some of which is in memory.
pub(crate) struct Blocks {
    name: String,
    meter: Meter,
    feed: Feed,
    /// How much was read without a thread.
    read_here: usize,
    /// New data begins at [`MAX_REST_BYTES`]; the rest of the block before ends there.
    block: Vec<u8>,
    /// The part of the block that is not yet consumed.
    filled: Range<usize>,
}

enum Feed {
    Here(Input),
    Ahead { full: Receiver<Message>, used: Sender<Vec<u8>> },
    End,
}

impl Blocks {
    /// Reads `input`. Nothing is in memory before [`Blocks::more`].
    pub(crate) fn new(input: Input) -> Self {
        Blocks {
            name: input.name().to_owned(),
            meter: input.meter(),
            feed: Feed::Here(input),
            read_here: 0,
            block: vec![0; MAX_REST_BYTES + SMALL_BLOCK_BYTES],
            filled: MAX_REST_BYTES..MAX_REST_BYTES,
        }
    }

    /// The input's name, in messages.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// How much of the input, as stored, has been read: somewhat more than was returned.
    pub(crate) fn progress(&self) -> Progress {
        self.meter.progress()
    }

    /// The text that is available without reading.
    pub(crate) fn text(&self) -> &[u8] {
        &self.block[self.filled.clone()]
    }

    /// Consumes the first `bytes` bytes of the text.
    pub(crate) fn consume(&mut self, bytes: usize) {
        self.filled.start = (self.filled.start + bytes).min(self.filled.end);
    }

    /// The most that the last call of [`Blocks::more`] could have read.
    pub(crate) fn room_bytes(&self) -> usize {
        self.block.len() - MAX_REST_BYTES
    }

    /// Reads more, behind the text in memory, which must not be longer than [`MAX_REST_BYTES`].
    /// Returns how much was read; 0 at the end. Everything that was read before an error is
    /// returned before the error.
    pub(crate) fn more(&mut self) -> io::Result<usize> {
        if matches!(self.feed, Feed::Here(_)) && self.read_here >= HERE_BYTES {
            self.read_ahead()?;
        }
        let (start, rest) = (MAX_REST_BYTES - self.filled.len(), self.filled.clone());
        let read = match &mut self.feed {
            Feed::Here(input) => {
                self.block.copy_within(rest, start);
                self.filled = start..MAX_REST_BYTES;
                let read = read_once(input, &mut self.block[MAX_REST_BYTES..])?;
                self.read_here += read;
                read
            }
            Feed::Ahead { full, used } => {
                // The thread's last message is an end or an error.
                let failed = |_| io::Error::other("its reader failed: a bug in Octavo");
                let (mut block, read) = full.recv().map_err(failed)?;
                block[start..MAX_REST_BYTES].copy_from_slice(&self.block[rest]);
                self.filled = start..MAX_REST_BYTES;
                // The thread may be gone.
                drop(used.send(std::mem::replace(&mut self.block, block)));
                if !matches!(read, Ok(1..)) {
                    self.feed = Feed::End;
                }
                read?
            }
            Feed::End => 0,
        };
        self.filled.end += read;
        Ok(read)
    }

    #[cfg(test)]
    pub(super) fn is_ahead(&self) -> bool {
        !matches!(self.feed, Feed::Here(_))
    }

    /// Goes on reading on a thread. The thread is not joined: it may wait for ever for a silent
    /// pipe. It ends when the receiver is dropped.
    fn read_ahead(&mut self) -> io::Result<()> {
        let Feed::Here(input) = std::mem::replace(&mut self.feed, Feed::End) else { return Ok(()) };
        let (send, full) = sync_channel(WAITING);
        let (used, free) = channel();
        std::thread::Builder::new()
            .name("octavo-blocks".to_owned())
            .spawn(move || read_all(input, &send, &free))?;
        self.feed = Feed::Ahead { full, used };
        Ok(())
    }
}

/// Reads until the input ends or the receiver is gone. The bytes of one system call are handed over
/// at once: bytes of a pipe's slow writer arrive promptly, and a fast writer fills the pipe while
/// the parser is busy, so that a call reads many.
fn read_all(mut input: Input, send: &SyncSender<Message>, free: &Receiver<Vec<u8>>) {
    loop {
        let mut block = free.try_recv().unwrap_or_default();
        block.resize(MAX_REST_BYTES + BLOCK_BYTES, 0);
        let read = read_once(&mut input, &mut block[MAX_REST_BYTES..]);
        let last = !matches!(read, Ok(1..));
        if send.send((block, read)).is_err() || last {
            return;
        }
    }
}

/// Reads once; a call that a signal interrupts is repeated.
fn read_once(input: &mut Input, block: &mut [u8]) -> io::Result<usize> {
    loop {
        match input.read(block) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}
