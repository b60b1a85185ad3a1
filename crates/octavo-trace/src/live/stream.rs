//! One stream, followed to its end.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use octavo_types::{Consumer, Event, Segment, VirtAddr};

use super::process::Process;
use super::{Began, Ended, Observer, StreamProgress, StreamResult};
use crate::lackey::read_lackey;
use crate::ring::{Decoder, Slot};
use crate::window::{Limits, Window};

/// After so long without a whole chunk, what was begun is read too: an idle program's live line
/// still tells the truth.
const IDLE: Duration = Duration::from_millis(50);

/// What a stream's thread tells the others.
#[derive(Default)]
pub struct StreamState {
    references: AtomicU64,
    instructions: AtomicU64,
    resident_bytes: AtomicU64,
    /// The process has executed another program, which has a stream of its own by now.
    pub superseded: AtomicBool,
    /// The stream is read to its end.
    pub finished: AtomicBool,
}

impl StreamState {
    fn publish(&self, progress: StreamProgress) {
        self.references.store(progress.references, Ordering::Relaxed);
        self.instructions.store(progress.instructions, Ordering::Relaxed);
        self.resident_bytes.store(progress.resident_bytes, Ordering::Relaxed);
    }

    /// How far the stream is.
    pub fn progress(&self) -> StreamProgress {
        StreamProgress {
            references: self.references.load(Ordering::Relaxed),
            instructions: self.instructions.load(Ordering::Relaxed),
            resident_bytes: self.resident_bytes.load(Ordering::Relaxed),
        }
    }
}

/// What the watcher knows of a stream when it begins.
pub struct Identity {
    pub stream: u32,
    pub parent: Option<u32>,
    pub pid: u32,
    pub began: Began,
    /// The program asked for, until the stream itself says what was loaded.
    pub program: String,
}

/// Notes the events that tell how a stream ended, on their way to the engine.
struct Witness<C> {
    inner: Window<C>,
    exit_code: Option<i32>,
    executing: bool,
}

impl<C: Observer> Consumer for Witness<C> {
    #[inline(always)]
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.inner.segment(segment, addresses);
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Exit { code } => self.exit_code = Some(*code),
            Event::Exec { path } => self.executing = !path.is_empty(),
            _ => {}
        }
        self.inner.event(event);
    }
}

/// Follows a stream of the ring until its process ends.
pub fn follow_ring<C: Observer>(
    identity: Identity,
    mut slot: Slot,
    process: Arc<Process>,
    consumer: C,
    limits: Arc<Limits>,
    state: Arc<StreamState>,
) -> StreamResult<C> {
    let inner = Window::new(consumer, limits.clone());
    let mut witness = Witness { inner, exit_code: None, executing: false };
    let mut decoder = Decoder::default();
    let mut fault = None;
    let mut idle_since = Instant::now();
    loop {
        // In this order: what was written before the end is there once the end is seen.
        let ended = process.ended() || state.superseded.load(Ordering::Relaxed);
        let read = slot.read(ended || idle_since.elapsed() > IDLE, |words| {
            if fault.is_none() && !limits.exhausted() {
                let started = |witness: &mut Witness<C>, start: &_| {
                    witness.inner.inner_mut().started(start);
                };
                fault = decoder.decode(words, &mut witness, started).err();
            }
        });
        if read > 0 {
            idle_since = Instant::now();
            state.publish(witness.inner.inner().progress());
        } else if ended {
            break;
        } else {
            std::thread::sleep(Duration::from_micros(if idle_since.elapsed() > IDLE {
                1000
            } else {
                50
            }));
        }
    }
    let ended = if fault.is_some() {
        Ended::Corrupt
    } else if limits.exhausted() {
        Ended::Limit
    } else if slot.fatal_signal().is_some() {
        Ended::Signal
    } else if witness.exit_code.is_some() {
        Ended::Exit
    } else if witness.executing {
        Ended::Exec
    } else {
        Ended::Lost
    };
    let exit_code = witness.exit_code.filter(|_| ended == Ended::Exit);
    slot.release();
    let program = decoder.start().map(|start| start.program.clone());
    finish(
        &state,
        StreamResult {
            stream: identity.stream,
            parent: identity.parent,
            pid: identity.pid,
            program: program.filter(|p| !p.is_empty()).unwrap_or(identity.program),
            began: identity.began,
            ended,
            exit_code,
            segments: decoder.segments(),
            hash: decoder.hash(),
            fault: fault.map(|fault| fault.to_string()),
            consumer: witness.inner.into_inner(),
        },
    )
}

/// Reads Lackey's text to its end. Returns what Valgrind said besides.
pub fn follow_lackey<C: Observer>(
    identity: Identity,
    pipe: OwnedFd,
    consumer: C,
    limits: Arc<Limits>,
    state: Arc<StreamState>,
) -> (StreamResult<C>, String) {
    let mut window =
        Publishing { inner: Window::new(consumer, limits.clone()), state: &state, due: 0 };
    let read = read_lackey(std::fs::File::from(pipe), &mut window, |_| limits.exhausted());
    let window = window.inner;
    let ended = if limits.exhausted() { Ended::Limit } else { Ended::Exit };
    let (messages, fault) = match read {
        Ok(summary) => (summary.messages.join("\n"), None),
        Err(error) => (String::new(), Some(error.to_string())),
    };
    state.publish(window.inner().progress());
    let result = StreamResult {
        stream: identity.stream,
        parent: None,
        pid: identity.pid,
        program: identity.program,
        began: identity.began,
        ended: if fault.is_some() { Ended::Corrupt } else { ended },
        exit_code: None,
        segments: 0,
        hash: 0,
        fault,
        consumer: window.into_inner(),
    };
    (finish(&state, result), messages)
}

fn finish<C: Observer>(state: &StreamState, mut result: StreamResult<C>) -> StreamResult<C> {
    result.consumer.ended();
    state.resident_bytes.store(0, Ordering::Relaxed);
    state.finished.store(true, Ordering::Release);
    result
}

/// Publishes progress every so often; Lackey's reader has no chunks to do it by.
struct Publishing<'a, C> {
    inner: Window<C>,
    state: &'a StreamState,
    due: u32,
}

impl<C: Observer> Consumer for Publishing<'_, C> {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.inner.segment(segment, addresses);
        self.due += 1;
        if self.due == 1 << 14 {
            self.due = 0;
            self.state.publish(self.inner.inner().progress());
        }
    }

    fn event(&mut self, event: &Event) {
        self.inner.event(event);
    }
}
