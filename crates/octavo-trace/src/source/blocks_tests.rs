//! Blocks, whatever the input does.

use std::io::{self, Cursor, ErrorKind, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::blocks::HERE_BYTES;
use super::{Blocks, Input, InputOptions, MAX_REST_BYTES};

/// Gives as many bytes at a time as `sizes` says, over and over, interrupted for each 0; fails at
/// the end if it `fails`.
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

/// Gives what is sent, and waits for it.
struct Pipe(Receiver<Vec<u8>>, Cursor<Vec<u8>>);

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.1.position() == self.1.get_ref().len() as u64 {
            let Ok(bytes) = self.0.recv() else { return Ok(0) };
            self.1 = Cursor::new(bytes);
        }
        self.1.read(buffer)
    }
}

fn blocks(reader: impl Read + Send + 'static) -> Blocks {
    let input = Input::from_reader("bytes", Box::new(reader), InputOptions::default());
    Blocks::new(input.expect("its head can be read"))
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

/// Reads to the end or an error, each time leaving of what is at hand what `rests` says.
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

/// What has been read without a thread, and a pipe that is silent from then on.
fn silent() -> (Sender<Vec<u8>>, Blocks) {
    let (send, pipe) = channel();
    for _ in 0..HERE_BYTES.div_ceil(4096) {
        send.send(bytes(4096)).unwrap();
    }
    let mut blocks = blocks(Pipe(pipe, Cursor::default()));
    let mut left = HERE_BYTES;
    while left > 0 {
        let read = blocks.more().unwrap();
        blocks.consume(read);
        left = left.saturating_sub(read);
    }
    (send, blocks)
}

#[test]
fn what_a_slow_writer_writes_comes_at_once() {
    let (send, mut blocks) = silent();
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

/// Whether the pipe's other end hears, with one of its next writes, that nobody reads any more.
fn hears(send: &Sender<Vec<u8>>) -> bool {
    (0..1000).any(|_| {
        let gone = send.send(bytes(1)).is_err();
        if !gone {
            std::thread::sleep(Duration::from_millis(10));
        }
        gone
    })
}

#[test]
fn blocks_are_dropped_while_their_thread_waits() {
    let (send, mut blocks) = silent();
    send.send(bytes(1)).unwrap();
    assert_eq!(blocks.more().unwrap(), 1);
    drop(blocks);
    assert!(hears(&send), "the thread still reads");
}

/// Nor does one stay that waits for room.
#[test]
fn blocks_are_dropped_while_their_thread_is_ahead() {
    let (send, mut blocks) = silent();
    for _ in 0..20 {
        send.send(bytes(1)).unwrap();
    }
    assert_eq!(blocks.more().unwrap(), 1);
    drop(blocks);
    assert!(hears(&send), "the thread still waits");
}

#[test]
fn short_inputs_need_no_thread() {
    let bytes = bytes(HERE_BYTES - 1);
    let mut blocks = blocks(Cursor::new(bytes.clone()));
    assert_eq!(read(&mut blocks, &[7]), (bytes, None));
    assert!(!blocks.is_ahead());
}

#[test]
fn progress_is_told_while_a_thread_reads() {
    let length = 10 * HERE_BYTES;
    let mut blocks = blocks(Cursor::new(bytes(length)));
    read(&mut blocks, &[0]);
    assert_eq!(blocks.progress().done, length as u64);
    assert_eq!(blocks.name(), "bytes");
}

proptest! {
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
