//! Replays: a trace runs through an engine as a live program does.

mod audiences;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::job::{Job, JobProgress, JobState};
use crate::observer::{
    ExitReason, Observer, RunExit, RunProgress, RunResult, StreamProgress, StreamResult,
};
use crate::ring::{DecodeError, Decoder, SegmentRoom};
use crate::source::{Batch, Facts, Progress, ReadAhead, Source, Step, TraceError};
use crate::stream::{Began, Ended, StreamEnd, StreamIdentity};
use crate::time_slicing::TimeSlicedConsumer;
use crate::window::Limits;
use crate::window_log::WindowLog;
use audiences::{Apart, Together};

/// The results of a replay.
pub struct Replayed<C, S = ()> {
    /// As of a live run.
    pub run: RunResult<C>,
    /// Facts on the trace that was read.
    pub facts: Facts,
    /// The engine on which all processes took turns, if they did.
    pub shared: S,
}

/// A trace that is being consumed, with a result `C` for each process and `S` for all together.
pub struct Replay<C, S = ()> {
    job: Job<Replayed<C, S>>,
    totals: Arc<Totals>,
    limits: Arc<Limits>,
}

/// Progress of all streams together, for the live line.
#[derive(Default)]
struct Totals {
    interrupted: AtomicBool,
    resident_bytes: AtomicU64,
    streams_live: AtomicU64,
    streams_total: AtomicU64,
    processes_total: AtomicU64,
}

impl<C: Observer> Replay<C> {
    /// Begins to read `source`; `observer` makes the engine of each stream.
    pub fn start(
        source: Box<dyn Source>,
        limits: Arc<Limits>,
        observer: impl Fn(&StreamIdentity) -> C + Send + 'static,
    ) -> Self {
        let audience = Apart::new(observer, limits.clone());
        Replay::play(source, limits, audience)
    }
}

impl<C: TimeSlicedConsumer> Replay<C::Process, C> {
    /// Begins to read `source`, whose processes take turns on one engine.
    pub fn start_together(source: Box<dyn Source>, limits: Arc<Limits>, engine: C) -> Self {
        let audience = Together::new(engine, limits.clone());
        Replay::play(source, limits, audience)
    }
}

impl<C: Send + 'static, S: Send + 'static> Replay<C, S> {
    fn play(
        mut source: Box<dyn Source>,
        limits: Arc<Limits>,
        audience: impl Audience<Process = C, Shared = S> + Send + 'static,
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
                audience,
                streams: BTreeMap::new(),
                results: Vec::new(),
                skipped: 0,
                part_words: LEAST_PART_WORDS,
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
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
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
            processes_total: load(&self.totals.processes_total) as usize,
            counting: self.limits.is_whole_run() || instructions > 0,
            over: false,
            programs: Vec::new(),
        };
        (progress, read)
    }

    /// Ends it early, also while it waits for a silent pipe. All references passed so far are
    /// counted.
    pub fn stop(&self) {
        self.totals.interrupted.store(true, Ordering::Relaxed);
        self.job.stop();
    }

    /// The result, once [`Replay::wait`] has reported that nothing runs.
    pub fn finish(self) -> Result<Replayed<C, S>, TraceError> {
        self.job.finish()
    }
}

/// The consumer of a trace's streams.
trait Audience {
    /// The engine's result for each process.
    type Process;
    /// The engine's result for all processes together.
    type Shared;

    /// A stream begins.
    fn begin(&mut self, identity: &StreamIdentity);

    /// Words of a stream that has begun. Takes about `most` of them, and returns the others.
    fn words<'w>(
        &mut self,
        stream: u32,
        words: &'w [u64],
        most: usize,
        decoder: &mut Decoder,
    ) -> Result<&'w [u64], DecodeError>;

    /// Ends a stream that has begun: returns its result, and the windows that it was traced in.
    fn end(&mut self, identity: &StreamIdentity, end: &StreamEnd) -> (Self::Process, WindowLog);

    /// The progress of all streams, and the memory of the live ones.
    fn progress(&self) -> StreamProgress;

    /// All streams have ended.
    fn finish(self) -> Self::Shared;
}

/// A batch is played in parts. After each, the progress is published, and the replay may be stopped. A part is longer than
/// the one before if that took less than this time, since an engine may need milliseconds for each reference.
const PART_TIME: Duration = Duration::from_millis(1);
const LEAST_PART_WORDS: usize = 1 << 6;
const MOST_PART_WORDS: usize = 1 << 16;

struct Player<'a, A: Audience> {
    room: SegmentRoom,
    source: ReadAhead,
    limits: Arc<Limits>,
    audience: A,
    streams: BTreeMap<u32, Playing>,
    results: Vec<StreamResult<A::Process>>,
    skipped: u64,
    /// About how many words of a batch the next part has.
    part_words: usize,
    state: &'a JobState,
    totals: &'a Totals,
}

struct Playing {
    identity: StreamIdentity,
    decoder: Decoder,
}

impl<A: Audience> Player<'_, A> {
    fn play(mut self) -> Replayed<A::Process, A::Shared> {
        let mut batch = Batch::default();
        let mut fault = None;
        while !self.limits.exhausted() && fault.is_none() {
            match self.source.next_unless(&mut batch, || self.state.stopped()) {
                Ok(Some(step)) => fault = self.step(step, &batch).err(),
                Ok(None) => break,
                Err(error) => fault = Some(error),
            }
        }
        let ended = match &fault {
            _ if self.limits.exhausted() => Ended::Limit,
            Some(_) => Ended::Corrupt,
            // The trace was cut off before the stream's end.
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
        Replayed { run, facts: self.source.facts(), shared: self.audience.finish() }
    }

    fn step(&mut self, step: Step, batch: &Batch) -> Result<(), TraceError> {
        match step {
            Step::Began(identity) => {
                self.audience.begin(&identity);
                let (stream, decoder) = (identity.stream, Decoder::sharing(&self.room));
                self.streams.insert(stream, Playing { identity, decoder });
            }
            Step::Batch(stream) => {
                let skipped = self.source.skipped_instructions();
                self.limits.skipped(skipped - self.skipped);
                self.skipped = skipped;
                let mut words = &batch.words[..];
                loop {
                    let began = Instant::now();
                    let playing = self.streams.get_mut(&stream);
                    let decoder = &mut playing.expect("a source begins its streams").decoder;
                    words = self
                        .audience
                        .words(stream, words, self.part_words, decoder)
                        .map_err(|error| self.source.undecodable(&error))?;
                    self.publish_counts();
                    self.part_words = match began.elapsed() < PART_TIME {
                        true => (2 * self.part_words).min(MOST_PART_WORDS),
                        false => (self.part_words / 2).max(LEAST_PART_WORDS),
                    };
                    if words.is_empty() || self.state.stopped() {
                        break;
                    }
                }
            }
            Step::Ended(stream, end) => self.end(stream, &end, None),
        }
        self.publish();
        Ok(())
    }

    fn end(&mut self, stream: u32, end: &StreamEnd, fault: Option<String>) {
        let Some(playing) = self.streams.remove(&stream) else { return };
        let Playing { mut identity, decoder } = playing;
        identity.name(&decoder);
        let consumer = self.audience.end(&identity, end);
        self.results.push(StreamResult::of(identity, &decoder, end, fault, consumer));
    }

    /// Publishes what has been counted.
    fn publish_counts(&self) {
        let StreamProgress { references, instructions, resident_bytes } = self.audience.progress();
        self.totals.resident_bytes.store(resident_bytes, Ordering::Relaxed);
        self.state.publish(self.source.progress(), instructions, references);
    }

    fn publish(&self) {
        self.publish_counts();
        let (live, ended) = (self.streams.len() as u64, self.results.len() as u64);
        self.totals.streams_live.store(live, Ordering::Relaxed);
        self.totals.streams_total.store(live + ended, Ordering::Relaxed);
        let live = self.streams.values().map(|playing| &playing.identity);
        let all = live.chain(self.results.iter().map(|result| &result.identity));
        let processes = all.filter(|identity| identity.began != Began::Exec).count();
        self.totals.processes_total.store(processes as u64, Ordering::Relaxed);
    }
}
