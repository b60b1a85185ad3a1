//! Observers of streams, live or from a trace, and their results.

use std::time::Duration;

use crate::ring::{Decoder, FoldedReferences, WordConsumer};
use crate::stream::{Ended, NamedThread, StreamEnd, StreamIdentity};
use crate::window_log::WindowLog;

/// An observer of a stream: an engine, or a recorder.
pub trait Observer: WordConsumer + Send + 'static {
    /// The stream has ended: only results are read from now on. Results are kept until the run is
    /// over, for every process, so an engine should drop its working state here.
    fn ended(&mut self, identity: &StreamIdentity, end: &StreamEnd) {
        let _ = (identity, end);
    }

    /// Called now and then while a program runs, whether or not words came.
    fn tick(&mut self) {}

    /// The results so far, in the form that they have once a stream has ended; `None` for an engine
    /// that has results at the end only.
    fn snapshot(&self) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// From now on references warm the state and do not count, or they count again; events count
    /// always. Returns whether the engine can do that.
    fn set_warming(&mut self, warming: bool) -> bool {
        let _ = warming;
        false
    }

    /// The counts so far of which an interval is estimated where an execution is traced in windows:
    /// equally many on each call; empty for an engine without such counts.
    fn window_counts(&self) -> Vec<u64> {
        Vec::new()
    }

    /// Its progress, for the live line.
    fn progress(&self) -> StreamProgress;
}

/// The progress of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamProgress {
    /// Fetches, loads and stores counted.
    pub references: u64,
    /// Instructions counted.
    pub instructions: u64,
    /// Memory touched and still mapped.
    pub resident_bytes: u64,
}

/// One stream, consumed.
#[derive(Debug)]
pub struct StreamResult<C> {
    /// Its identity.
    pub identity: StreamIdentity,
    /// How it ended.
    pub ended: Ended,
    /// The exit code, if it exited.
    pub exit_code: Option<i32>,
    /// Segments defined.
    pub segments: usize,
    /// xxh3-128 of its words.
    pub hash: u128,
    /// References whose addresses were folded, as they are not canonical.
    pub folded: FoldedReferences,
    /// The error that ended its reading early.
    pub fault: Option<String>,
    /// The windows that were traced, if not the whole stream was.
    pub windows: WindowLog,
    /// Processor time that its system calls took in the kernel while they were traced, estimated;
    /// for our tracer only.
    pub kernel_time: Option<Duration>,
    /// Its first threads, as [`StreamEnd::threads`].
    pub threads: Vec<NamedThread>,
    /// The engine with its counts.
    pub consumer: C,
}

impl<C> StreamResult<C> {
    /// The result of a stream whose words `decoder` has decoded.
    pub(crate) fn of(
        identity: StreamIdentity,
        decoder: &Decoder,
        end: &StreamEnd,
        fault: Option<String>,
        (consumer, windows): (C, WindowLog),
    ) -> Self {
        StreamResult {
            identity,
            ended: end.ended,
            exit_code: end.exit_code,
            segments: decoder.segments(),
            hash: decoder.hash(),
            folded: decoder.folded(),
            fault,
            windows,
            kernel_time: end.kernel_time,
            threads: end.threads.clone(),
            consumer,
        }
    }
}

/// A snapshot of a run.
#[derive(Clone, Debug, Default)]
pub struct RunProgress {
    /// Whether a traced process or its consumer still runs.
    pub running: bool,
    /// Since the start.
    pub elapsed: Duration,
    /// All streams together; resident memory of the live ones only.
    pub total: StreamProgress,
    /// Streams whose process runs.
    pub streams_live: usize,
    /// Streams that ever began.
    pub streams_total: usize,
    /// Processes that ever began; a program that a process executes begins only a stream.
    pub processes_total: usize,
    /// The paths of the executables of live processes, as far as they are known; of a live run.
    pub programs: Vec<String>,
    /// Whether instructions count now.
    pub counting: bool,
    /// Whether the region of interest is over, whatever the program does.
    pub over: bool,
}

/// Why the run ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExitReason {
    /// The program exited.
    Exited,
    /// A signal killed it.
    Signalled,
    /// The user interrupted it.
    Interrupted,
    /// The region of interest was over.
    Limit,
    /// Valgrind or the tracer gave up.
    TracerFailed,
    /// The trace could not be read to its end.
    TraceBroken,
    /// The run goes on, in a snapshot.
    Running,
}

/// How the program ended.
#[derive(Clone, Debug)]
pub struct RunExit {
    /// Its exit code.
    pub code: Option<i32>,
    /// The signal that killed it.
    pub signal: Option<i32>,
    /// Why the run ended.
    pub reason: ExitReason,
    /// Valgrind's messages.
    pub diagnostics: String,
}

/// A whole run.
#[derive(Debug)]
pub struct RunResult<C> {
    /// How the program ended.
    pub exit: RunExit,
    /// From the start to the last stream's end.
    pub elapsed: Duration,
    /// The streams in the order in which they began.
    pub streams: Vec<StreamResult<C>>,
    /// Children that ran on untraced for lack of a slot.
    pub untraced: u32,
}
