//! Blocks of inputs that are slow, interrupted or broken.

use std::io::{self, Cursor, ErrorKind, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::blocks::HERE_BYTES;
use super::{Blocks, Input, InputOptions, MAX_REST_BYTES};

/// How long the thread may take to end, on a machine that is busy.
const LONG: Duration = Duration::from_secs(300);

/// Returns bytes in pieces of `sizes`, over and over; a size of 0 is an interruption. Fails at the
/// end if `fails`.
struct Pieces {
    bytes: Cursor<Vec<u8>>,
    sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
    fails: bool,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes.next().expect("they go on for ever").min(buffer.len());
        if size == 0 && !buffer.is_empty() {
            return Err(ErrorKind::Interrupted.into());
        }
        match self.bytes.read(&mut buffer[..size])? {
            0 if self.fails => Err(io::Error::other("the pipe broke")),
            read => Ok(read),
        }
    }
}

/// Waits for bytes that are sent, and returns them.
struct Pipe {
    bytes_sent: Receiver<Vec<u8>>,
    current: Cursor<Vec<u8>>,
    /// Dropped with the pipe.
    _held: Sender<()>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.current.position() == self.current.get_ref().len() as u64 {
            let Ok(bytes) = self.bytes_sent.recv() else { return Ok(0) };
            self.current = Cursor::new(bytes);
        }
        self.current.read(buffer)
    }
}

fn blocks(reader: impl Read + Send + 'static) -> Blocks {
    let input = Input::from_reader("bytes", Box::new(reader), InputOptions::default());
    Blocks::new(input.expect("its head can be read"))
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// Reads to the end or an error, and leaves the next number of bytes in `rests` unconsumed each
/// time.
fn read(blocks: &mut Blocks, rests: &[usize]) -> (Vec<u8>, Option<String>) {
    let mut all = Vec::new();
    for rest in rests.iter().cycle() {
        let more = blocks.more();
        let rest = if matches!(more, Ok(1..)) { *rest } else { 0 };
        let text = blocks.text();
        let used = text.len().saturating_sub(rest);
        all.extend_from_slice(&text[..used]);
        blocks.consume(used);
        match more {
            Ok(0) => return (all, None),
            Ok(_) => {}
            Err(error) => return (all, Some(error.to_string())),
        }
    }
    unreachable!("there are rests")
}

/// A pipe that is silent after the part that is read without a thread: its writing end, a channel
/// that is disconnected when its reading end is dropped, and the blocks.
fn silent() -> (Sender<Vec<u8>>, Receiver<()>, Blocks) {
    let (send, bytes_sent) = channel();
    let (held, dropped) = channel();
    for _ in 0..HERE_BYTES.div_ceil(4096) {
        send.send(bytes(4096)).unwrap();
    }
    let pipe = Pipe { bytes_sent, current: Cursor::default(), _held: held };
    let mut blocks = blocks(pipe);
    let mut left = HERE_BYTES;
    while left > 0 {
        let read = blocks.more().unwrap();
        blocks.consume(read);
        left = left.saturating_sub(read);
    }
    (send, dropped, blocks)
}

#[test]
fn a_slow_writers_data_is_delivered_at_once() {
    let (send, _, mut blocks) = silent();
    for length in [1, 4000, 3] {
        send.send(bytes(length)).unwrap();
        assert_eq!(blocks.more().unwrap(), length);
        assert_eq!(blocks.text(), bytes(length));
        blocks.consume(length);
    }
    drop(send);
    assert_eq!(blocks.more().unwrap(), 0);
    assert_eq!(blocks.more().unwrap(), 0);
}

/// Whether the thread drops its end of the pipe once it has tried to hand over what it read.
fn ends(send: &Sender<Vec<u8>>, dropped: &Receiver<()>) -> bool {
    // The thread may be waiting for this byte, or may have ended before.
    drop(send.send(bytes(1)));
    dropped.recv_timeout(LONG) == Err(RecvTimeoutError::Disconnected)
}

#[test]
fn blocks_are_dropped_while_their_thread_waits() {
    let (send, dropped, mut blocks) = silent();
    send.send(bytes(1)).unwrap();
    assert_eq!(blocks.more().unwrap(), 1);
    drop(blocks);
    assert!(ends(&send, &dropped), "the thread still reads");
}

/// A thread that waits for room ends, too.
#[test]
fn blocks_are_dropped_while_their_thread_is_ahead() {
    let (send, dropped, mut blocks) = silent();
    for _ in 0..20 {
        send.send(bytes(1)).unwrap();
    }
    assert_eq!(blocks.more().unwrap(), 1);
    drop(blocks);
    assert!(ends(&send, &dropped), "the thread still waits");
}

#[test]
fn short_inputs_need_no_thread() {
    let bytes = bytes(HERE_BYTES - 1);
    let mut blocks = blocks(Cursor::new(bytes.clone()));
    assert_eq!(read(&mut blocks, &[7]), (bytes, None));
    assert!(!blocks.is_ahead());
}

#[test]
fn progress_is_current_while_a_thread_reads() {
    let length = 10 * HERE_BYTES;
    let mut blocks = blocks(Cursor::new(bytes(length)));
    read(&mut blocks, &[0]);
    assert_eq!(blocks.progress().done, length as u64);
    assert_eq!(blocks.name(), "bytes");
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    /// All bytes come, in order, and then an error if there is one.
    #[test]
    fn all_bytes_come(
        length in 0..20 * HERE_BYTES,
        mut sizes in vec(0usize..600_000, 0..4),
        rests in vec(0..=MAX_REST_BYTES / 2, 1..4),
        fails in any::<bool>(),
    ) {
        sizes.push(5000);
        let bytes = bytes(length);
        let reader = Pieces { bytes: Cursor::new(bytes.clone()), sizes: sizes.into_iter().cycle(), fails };
        let mut blocks = blocks(reader);
        let (read, error) = read(&mut blocks, &rests);
        prop_assert!(read == bytes);
        prop_assert_eq!(error.as_deref(), fails.then_some("the pipe broke"));
    }
}
