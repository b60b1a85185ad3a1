//! One stream, followed to its end.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use octavo_types::{AddressWidth, Event, Segment};

use super::desk::{Followed, Seat};
use super::present::present_pages;
use super::process::Process;
use crate::formats::lackey_source;
use crate::observer::{Observer, StreamProgress, StreamResult};
use crate::ring::{Decoder, MOST_BATCHES, Segments, Slot, Start, WordConsumer};
use crate::source::{Batch, Input, InputOptions, Source};
use crate::stream::{Ended, NamedThread, StreamEnd, StreamIdentity};
use crate::window::{Limits, Window};
use crate::window_log::WindowLog;

/// After this long without a whole chunk, an unfinished chunk is read too: the progress of an idle
/// program stays current.
const IDLE: Duration = Duration::from_millis(50);

/// Bounds of the sleep when there is nothing to read; the sleep grows with the time without data.
const LEAST_NAP: Duration = Duration::from_micros(50);
const MOST_NAP: Duration = Duration::from_millis(5);

/// Progress of a stream's thread, for the other threads.
#[derive(Default)]
pub struct StreamState {
    references: AtomicU64,
    instructions: AtomicU64,
    resident_bytes: AtomicU64,
    /// The path of the executable, once the stream has named it.
    pub program: OnceLock<String>,
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

    /// How much of the stream was read.
    pub fn progress(&self) -> StreamProgress {
        StreamProgress {
            references: self.references.load(Ordering::Relaxed),
            instructions: self.instructions.load(Ordering::Relaxed),
            resident_bytes: self.resident_bytes.load(Ordering::Relaxed),
        }
    }
}

/// Notes the events that show how a stream ended, on their way to the engine.
struct Witness<C> {
    inner: Window<C>,
    exit_code: Option<i32>,
    executing: bool,
}

impl<C: Observer> Witness<C> {
    /// How the process ended, by its last records.
    fn ended(&self) -> Ended {
        match (self.exit_code, self.executing) {
            (Some(_), _) => Ended::Exit,
            (None, true) => Ended::Exec,
            (None, false) => Ended::Lost,
        }
    }
}

impl<C: Observer> WordConsumer for Witness<C> {
    fn width(&self) -> Option<AddressWidth> {
        self.inner.width()
    }

    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        self.inner.execution(segment, words);
    }

    #[inline(always)]
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        self.inner.executions(segments, words)
    }

    fn record(&mut self, words: &[u64], event: Option<&Event>) {
        match event {
            Some(Event::Exit { code }) => self.exit_code = Some(*code),
            Some(Event::Exec { path }) => self.executing = !path.is_empty(),
            _ => {}
        }
        self.inner.record(words, event);
    }

    fn started(&mut self, start: &Start) {
        self.inner.started(start);
    }
}

/// The time that a stream's system calls took in the kernel while the region of interest was open.
struct KernelTime {
    counted: Duration,
    /// The time of all calls until the last update.
    all: Duration,
    is_open: bool,
}

impl KernelTime {
    fn new(is_open: bool) -> Self {
        KernelTime { counted: Duration::ZERO, all: Duration::ZERO, is_open }
    }

    /// Takes the time of all calls until now, and whether the region is open from now on.
    fn update(&mut self, all: Duration, is_open: bool) {
        if self.is_open {
            self.counted += all.saturating_sub(self.all);
        }
        (self.all, self.is_open) = (all, is_open);
    }
}

/// The kernel time of a stream and of its threads.
struct KernelTimes {
    all: KernelTime,
    threads: Vec<KernelTime>,
}

impl KernelTimes {
    fn new(is_open: bool) -> Self {
        KernelTimes { all: KernelTime::new(is_open), threads: Vec::new() }
    }

    /// As [`KernelTime::update`], for all calls and for those of each thread.
    fn update(&mut self, slot: &Slot, is_open: bool) {
        let was_open = self.all.is_open;
        self.all.update(slot.kernel_time(), is_open);
        self.threads.resize_with(slot.threads(), || KernelTime::new(was_open));
        for (thread, time) in self.threads.iter_mut().enumerate() {
            time.update(slot.thread_kernel_time(thread), is_open);
        }
    }

    /// The threads, with the time of each that counts.
    fn named(&self, slot: &Slot) -> Vec<NamedThread> {
        let named = |(thread, time): (usize, &KernelTime)| NamedThread {
            name: slot.thread_name(thread),
            kernel_time: time.counted,
        };
        self.threads.iter().enumerate().map(named).collect()
    }
}

/// Follows a stream of the ring until its process ends.
pub fn follow_ring<C: Observer>(
    mut identity: StreamIdentity,
    mut slot: Slot,
    process: Arc<Process>,
    consumer: C,
    limits: Arc<Limits>,
    state: Arc<StreamState>,
    seat: &mut Seat<C>,
) -> Followed<C> {
    // Only where the limits open again: parts by instructions or marks must give the same as in a
    // replay, which cannot ask the kernel.
    let pid = identity.pid;
    let find_present = Box::new(move || present_pages(pid).unwrap_or_default());
    let inner = Window::new(consumer, limits.clone()).finding_present(find_present);
    let mut witness = Witness { inner, exit_code: None, executing: false };
    let mut decoder = Decoder::default();
    let mut fault = None;
    let mut idle_since = Instant::now();
    let mut until_answer = MOST_BATCHES;
    let mut kernel_times = KernelTimes::new(limits.is_open());
    loop {
        // In this order: everything written before the end can be read once the end is seen.
        let ended = process.ended() || state.superseded.load(Ordering::Relaxed);
        let asked = seat.is_called();
        kernel_times.update(&slot, limits.is_open());
        let read = slot.read(ended || asked || idle_since.elapsed() > IDLE, |words| {
            if fault.is_none() && !limits.exhausted() {
                fault = decoder.decode(words, &mut witness).err();
            }
        });
        witness.inner.inner_mut().tick();
        if asked {
            // After this many batches everything written before the request has been read, however
            // fast more is written.
            until_answer -= 1;
            if read == 0 || until_answer == 0 {
                until_answer = MOST_BATCHES;
                identity.name(&decoder);
                witness.inner.refresh();
                seat.answer(|| {
                    let engine = witness.inner.inner().snapshot()?;
                    let fault = fault.as_ref().map(ToString::to_string);
                    let end = StreamEnd {
                        ended: Ended::Running,
                        kernel_time: Some(kernel_times.all.counted),
                        threads: kernel_times.named(&slot),
                        ..StreamEnd::PLAIN
                    };
                    let counts = (engine, witness.inner.log());
                    Some(StreamResult::of(identity.clone(), &decoder, &end, fault, counts))
                });
            }
        }
        if read > 0 {
            idle_since = Instant::now();
            if let Some(start) = decoder.start().filter(|start| !start.program.is_empty()) {
                state.program.get_or_init(|| start.program.clone());
            }
            state.publish(witness.inner.inner().progress());
        } else if ended {
            break;
        } else {
            let idle = idle_since.elapsed();
            let longest = if idle > IDLE { MOST_NAP } else { LEAST_NAP };
            std::thread::sleep((idle / 100).clamp(LEAST_NAP, longest));
        }
    }
    let ended = if fault.is_some() {
        Ended::Corrupt
    } else if limits.exhausted() {
        Ended::Limit
    } else if slot.fatal_signal().is_some() {
        Ended::Signal
    } else {
        witness.ended()
    };
    let exit_code = witness.exit_code.filter(|_| ended == Ended::Exit);
    kernel_times.update(&slot, limits.is_open());
    let kernel_time = Some(kernel_times.all.counted);
    let threads = kernel_times.named(&slot);
    let seccomp = slot.seccomp();
    slot.release();
    identity.name(&decoder);
    let end = StreamEnd { ended, exit_code, instructions: None, kernel_time, threads };
    let fault = fault.map(|fault| fault.to_string());
    let result = StreamResult::of(identity, &decoder, &end, fault, witness.inner.into_parts());
    Followed { result: finish(&state, &end, result), messages: String::new(), seccomp }
}

/// Reads Lackey's text to its end.
pub fn follow_lackey<C: Observer>(
    identity: StreamIdentity,
    pipe: OwnedFd,
    consumer: C,
    limits: Arc<Limits>,
    state: Arc<StreamState>,
) -> Followed<C> {
    state.program.get_or_init(|| identity.program.clone());
    let mut window = Window::new(consumer, limits.clone());
    let mut decoder = Decoder::default();
    let reader = Box::new(std::fs::File::from(pipe));
    let (mut batch, mut fault, mut messages) = (Batch::default(), None, String::new());
    match Input::from_reader("Lackey's text", reader, InputOptions::default()) {
        Ok(input) => {
            let mut source = lackey_source(input);
            while !limits.exhausted() && fault.is_none() {
                match source.next(&mut batch) {
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(error) => fault = Some(error.to_string()),
                }
                window.refresh();
                let decoded = decoder.decode(&batch.words, &mut window);
                fault = fault.or(decoded.err().map(|error| error.to_string()));
                state.publish(window.inner().progress());
            }
            messages = source.reader.messages().collect::<Vec<_>>().join("\n");
        }
        Err(error) => fault = Some(error.to_string()),
    }
    let ended = match fault {
        Some(_) => Ended::Corrupt,
        None if limits.exhausted() => Ended::Limit,
        None => Ended::Exit,
    };
    let end = StreamEnd { ended, ..StreamEnd::PLAIN };
    let counts = (window.into_inner(), WindowLog::default());
    let result = StreamResult::of(identity, &decoder, &end, fault, counts);
    let result = StreamResult { segments: 0, hash: 0, ..result };
    Followed { result: finish(&state, &end, result), messages, seccomp: None }
}

fn finish<C: Observer>(
    state: &StreamState,
    end: &StreamEnd,
    mut result: StreamResult<C>,
) -> StreamResult<C> {
    result.consumer.ended(&result.identity, end);
    state.resident_bytes.store(0, Ordering::Relaxed);
    state.finished.store(true, Ordering::Release);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_time_counts_while_the_region_is_open() {
        let seconds = Duration::from_secs;
        let mut time = KernelTime::new(false);
        let updates =
            [(1, false), (2, true), (5, true), (6, false), (9, false), (10, true), (12, true)];
        let counted = updates.map(|(all, is_open)| {
            time.update(seconds(all), is_open);
            time.counted
        });
        assert_eq!(counted, [0, 0, 3, 4, 4, 4, 6].map(seconds));
    }
}
