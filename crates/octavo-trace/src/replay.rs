//! A trace, consumed as a live program is.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::job::{Job, JobProgress, JobState};
use crate::observer::{
    ExitReason, Observer, RunExit, RunProgress, RunResult, StreamProgress, StreamResult,
};
use crate::ring::{Decoder, SegmentRoom};
use crate::source::{Batch, Facts, Progress, ReadAhead, Source, Step, TraceError};
use crate::stream::{Ended, StreamEnd, StreamIdentity};
use crate::window::{Limits, Window};

/// What a replay has when it is over.
pub struct Replayed<C> {
    /// As of a live run.
    pub run: RunResult<C>,
    /// What was read.
    pub facts: Facts,
}

/// A trace that is being consumed.
pub struct Replay<C> {
    job: Job<Replayed<C>>,
    totals: Arc<Totals>,
    limits: Arc<Limits>,
}

/// What is known of all streams together, for the live line.
#[derive(Default)]
struct Totals {
    interrupted: AtomicBool,
    resident_bytes: AtomicU64,
    streams_live: AtomicU64,
    streams_total: AtomicU64,
}

impl<C: Observer> Replay<C> {
    /// Begins to read `source`; `observer` makes the engine of each stream.
    pub fn start(
        mut source: Box<dyn Source>,
        limits: Arc<Limits>,
        observer: impl Fn(&StreamIdentity) -> C + Send + 'static,
    ) -> Self {
        let totals = Arc::new(Totals::default());
        let (shared, bounds) = (totals.clone(), limits.clone());
        let job = Job::start(move |state| {
            if limits.to_skip() > 0 {
                source.skip_instructions(limits.to_skip());
            }
            let source = ReadAhead::new(source, false);
            let player = Player {
                room: SegmentRoom::default(),
                source,
                limits,
                observer,
                streams: BTreeMap::new(),
                results: Vec::new(),
                skipped: 0,
                state,
                totals: &shared,
            };
            Ok(player.play())
        });
        Replay { job, totals, limits: bounds }
    }

    /// Waits until the trace is read or `timeout` has passed.
    pub fn wait(&self, timeout: Duration) -> (RunProgress, Progress) {
        let JobProgress { running, elapsed, read, instructions, references } =
            self.job.wait(timeout);
        let load = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let progress = RunProgress {
            running,
            elapsed,
            total: StreamProgress {
                references,
                instructions,
                resident_bytes: load(&self.totals.resident_bytes),
            },
            streams_live: load(&self.totals.streams_live) as usize,
            streams_total: load(&self.totals.streams_total) as usize,
            counting: self.limits.is_whole_run() || instructions > 0,
        };
        (progress, read)
    }

    /// Ends it early. What was read so far still counts.
    pub fn stop(&self) {
        self.totals.interrupted.store(true, Ordering::Relaxed);
        self.job.stop();
    }

    /// The result, once [`Replay::wait`] has said that nothing runs.
    pub fn finish(self) -> Result<Replayed<C>, TraceError> {
        self.job.finish()
    }
}

struct Player<'a, C, F> {
    room: SegmentRoom,
    source: ReadAhead,
    limits: Arc<Limits>,
    observer: F,
    streams: BTreeMap<u32, Playing<C>>,
    results: Vec<StreamResult<C>>,
    skipped: u64,
    state: &'a JobState,
    totals: &'a Totals,
}

struct Playing<C> {
    identity: StreamIdentity,
    decoder: Decoder,
    window: Window<C>,
}

impl<C: Observer, F: Fn(&StreamIdentity) -> C> Player<'_, C, F> {
    fn play(mut self) -> Replayed<C> {
        let mut batch = Batch::default();
        let mut fault = None;
        while !self.state.stopped() && !self.limits.exhausted() && fault.is_none() {
            match self.source.next(&mut batch) {
                Ok(Some(step)) => fault = self.step(step, &batch).err(),
                Ok(None) => break,
                Err(error) => fault = Some(error),
            }
        }
        let ended = match &fault {
            _ if self.limits.exhausted() => Ended::Limit,
            Some(_) => Ended::Corrupt,
            // Whoever wrote the trace did not see the end.
            None => Ended::Lost,
        };
        for stream in self.streams.keys().copied().collect::<Vec<_>>() {
            let fault = fault.as_ref().map(|fault| fault.to_string());
            self.end(stream, &StreamEnd { ended, ..StreamEnd::PLAIN }, fault);
        }
        self.publish();
        self.results.sort_by_key(|stream| stream.identity.stream);
        let reason = if self.limits.exhausted() {
            ExitReason::Limit
        } else if fault.is_some() {
            ExitReason::TraceBroken
        } else if self.totals.interrupted.load(Ordering::Relaxed) {
            ExitReason::Interrupted
        } else {
            ExitReason::Exited
        };
        let exit = RunExit {
            code: self.results.first().and_then(|stream| stream.exit_code),
            signal: None,
            reason,
            diagnostics: fault.map(|fault| fault.to_string()).unwrap_or_default(),
        };
        let run = RunResult { exit, elapsed: Duration::ZERO, streams: self.results, untraced: 0 };
        Replayed { run, facts: self.source.facts() }
    }

    fn step(&mut self, step: Step, batch: &Batch) -> Result<(), TraceError> {
        match step {
            Step::Began(identity) => {
                let window = Window::new((self.observer)(&identity), self.limits.clone());
                let stream = identity.stream;
                let decoder = Decoder::sharing(&self.room);
                self.streams.insert(stream, Playing { identity, decoder, window });
            }
            Step::Batch(stream) => {
                let skipped = self.source.skipped_instructions();
                self.limits.skipped(skipped - self.skipped);
                self.skipped = skipped;
                let playing = self.streams.get_mut(&stream).expect("a source begins its streams");
                playing
                    .decoder
                    .decode(&batch.words, &mut playing.window)
                    .map_err(|error| self.source.undecodable(&error))?;
            }
            Step::Ended(stream, end) => self.end(stream, &end, None),
        }
        self.publish();
        Ok(())
    }

    fn end(&mut self, stream: u32, end: &StreamEnd, fault: Option<String>) {
        let Some(playing) = self.streams.remove(&stream) else { return };
        let Playing { mut identity, decoder, window } = playing;
        let program = decoder.start().map(|start| start.program.clone());
        if let Some(program) = program.filter(|program| !program.is_empty()) {
            identity.program = program;
        }
        let mut consumer = window.into_inner();
        consumer.ended(&identity, end);
        self.results.push(StreamResult {
            identity,
            ended: end.ended,
            exit_code: end.exit_code,
            segments: decoder.segments(),
            hash: decoder.hash(),
            fault,
            consumer,
        });
    }

    fn publish(&self) {
        let mut total = StreamProgress::default();
        let live = self.streams.values().map(|playing| playing.window.inner().progress());
        let done = self.results.iter().map(|result| result.consumer.progress());
        for progress in live.chain(done) {
            total.references += progress.references;
            total.instructions += progress.instructions;
        }
        let live = self.streams.values().map(|playing| playing.window.inner().progress());
        let resident: u64 = live.map(|progress| progress.resident_bytes).sum();
        self.totals.resident_bytes.store(resident, Ordering::Relaxed);
        let (live, ended) = (self.streams.len() as u64, self.results.len() as u64);
        self.totals.streams_live.store(live, Ordering::Relaxed);
        self.totals.streams_total.store(live + ended, Ordering::Relaxed);
        self.state.publish(self.source.progress(), total.instructions, total.references);
    }
}
