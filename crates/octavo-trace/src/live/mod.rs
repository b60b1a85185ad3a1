//! A program under a tracer, consumed while it runs.
//!
//! One thread watches the processes and the slots of the session; each stream has a thread of its
//! own. A stream ends when its *process* does (or when an exec begins another in its place), never
//! by a flag: a process may be killed at any moment.

mod command;
mod desk;
mod log;
mod present;
mod process;
mod stream;
mod watch;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::observer::{ExitReason, Observer, RunExit, RunProgress, RunResult};
use crate::resource_limits;
use crate::ring::SessionError;
use crate::stream::StreamIdentity;
use crate::threads;
use crate::window::Limits;
use desk::Desk;
use process::Pid;
use watch::{Shared, Watch};

/// Which tracer follows the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracer {
    /// Our own tool, through the ring.
    Octavo,
    /// Valgrind's Lackey, as text through a pipe.
    Lackey,
}

/// How to run a program.
#[derive(Clone, Debug)]
pub struct LiveOptions {
    /// The program's path and arguments.
    pub argv: Vec<OsString>,
    /// The executable: our tool, or Valgrind's launcher for Lackey.
    pub valgrind: PathBuf,
    /// The private `VALGRIND_LIB` that holds our tool.
    pub tool_dir: PathBuf,
    /// Which tracer.
    pub tracer: Tracer,
    /// Whether forked and executed children are traced too.
    pub follow_children: bool,
    /// The part of the run that is counted.
    pub limits: Arc<Limits>,
    /// The windows of that part that are traced; without windows, all of it. For our own tool only.
    pub windows: Option<PeriodicWindows>,
    /// How many callers are recorded with each block that the program allocates; 0: no blocks are
    /// recorded. For our own tool only.
    pub allocation_frames: u32,
}

/// Periodic windows, and the gaps between them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PeriodicWindows {
    /// By the instructions of each process, counted on from its parent's.
    Instructions {
        /// The length of a window.
        traced: u64,
        /// From its end to the beginning of the next one.
        gap: u64,
    },
    /// By the time since the program's first process was traced.
    Time {
        /// The length of a window.
        traced: Duration,
        /// From its end to the beginning of the next one.
        gap: Duration,
    },
}

impl PeriodicWindows {
    /// Whether windows go by time and none is open.
    fn is_gap(self, elapsed: Duration) -> bool {
        match self {
            PeriodicWindows::Time { traced, gap } => {
                elapsed.as_nanos() % (traced + gap).as_nanos().max(1) >= traced.as_nanos()
            }
            PeriodicWindows::Instructions { .. } => false,
        }
    }
}

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// The session could not be created.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// Valgrind did not start.
    #[error("cannot start {valgrind}: {source}{}", resource_limits::explain(source))]
    Start {
        /// The executable.
        valgrind: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The limit of open files is too low.
    #[error("{0}")]
    TooFewOpenFiles(String),
    /// It ended without a single stream.
    #[error("nothing was traced: {said}{}", resource_limits::explain_failed_start(), said = .0)]
    NothingTraced(String),
    /// The thread that watches the program could not be started.
    #[error("{0}")]
    NoThread(String),
    /// A thread of the run panicked.
    #[error("the reading of what was traced failed: a bug in Octavo")]
    Bug,
}

/// A program under a tracer.
pub struct Live<C: Observer> {
    shared: Arc<Shared>,
    desk: Arc<Desk<C>>,
    root: Pid,
    watcher: JoinHandle<RunResult<C>>,
    started: Instant,
}

impl<C: Observer> Live<C> {
    /// Starts the program; `observer` makes the engine of each stream.
    ///
    /// The traced program dies with the calling *thread*: call from one that outlives the run.
    pub fn start(
        options: LiveOptions,
        observer: impl Fn(&StreamIdentity) -> C + Send + 'static,
    ) -> Result<Self, LiveError> {
        if let Some(why) = resource_limits::too_few_open_files() {
            return Err(LiveError::TooFewOpenFiles(why));
        }
        let shared = Arc::new(Shared::new(options.limits.clone(), options.windows));
        let desk = Arc::new(Desk::new());
        let watch = Watch::start(options, shared.clone(), desk.clone(), observer)?;
        let root = watch.root();
        let watcher = threads::start("watch", move || watch.run()).map_err(LiveError::NoThread)?;
        Ok(Live { shared, desk, root, watcher, started: Instant::now() })
    }

    /// The traced program's process identifier.
    pub fn pid(&self) -> u32 {
        self.root.0
    }

    /// Waits until the run has ended or `timeout` has passed.
    pub fn wait(&self, timeout: Duration) -> RunProgress {
        self.shared.wait(timeout);
        self.shared.progress(self.started.elapsed())
    }

    /// Sends `signal` to the program and notes that the run was interrupted.
    pub fn interrupt(&self, signal: i32) {
        self.note_interrupted();
        self.shared.signal(self.root, signal);
    }

    /// Notes that the user interrupted the run; the terminal has already signalled the program.
    pub fn note_interrupted(&self) {
        self.shared.interrupted.store(true, Ordering::Relaxed);
    }

    /// Opens or closes the region of interest: everything that the program had done before the call
    /// counts, or not, by the state before the call.
    ///
    /// While the region is closed the program runs without instrumentation: each process from its
    /// next time slice on, and a waiting one before its next instruction.
    pub fn set_open(&self, open: bool) {
        self.shared.limits.set_open(open);
        if open {
            self.shared.set_paused();
        }
        self.desk.announce();
    }

    /// Ends the region of interest for good, and sends `signal` to the program.
    pub fn end_region(&self, signal: i32) {
        self.shared.limits.set_over();
        self.desk.announce();
        self.shared.signal(self.root, signal);
    }

    /// A snapshot of the counts, while the program goes on; each stream hands in its part when it
    /// has read everything written so far. `None` for an engine without snapshots, and once the run
    /// is over.
    pub fn snapshot(&self) -> Option<RunResult<C>> {
        let streams = self.desk.snapshot().filter(|streams| !streams.is_empty())?;
        let reason = ExitReason::Running;
        Some(RunResult {
            exit: RunExit { code: None, signal: None, reason, diagnostics: String::new() },
            elapsed: self.started.elapsed(),
            streams,
            untraced: self.shared.untraced.load(Ordering::Relaxed),
        })
    }

    /// Kills the program and its traced children. All references up to that point are counted.
    pub fn stop(&self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }

    /// The result, once [`Live::wait`] has reported that nothing runs.
    pub fn finish(self) -> Result<RunResult<C>, LiveError> {
        let result = self.watcher.join().map_err(|_| LiveError::Bug)?;
        if result.streams.is_empty() {
            return Err(LiveError::NothingTraced(in_a_sentence(&result.exit.diagnostics)));
        }
        Ok(result)
    }
}

/// Valgrind's message on one line, without the `==pid==` before each of its lines.
fn in_a_sentence(message: &str) -> String {
    let bare = message.lines().map(|line| {
        let rest = line.strip_prefix("==").and_then(|rest| rest.split_once("=="));
        rest.map_or(line, |(_, rest)| rest).trim()
    });
    let words: Vec<&str> = bare.filter(|line| !line.is_empty()).collect();
    if words.is_empty() { "Valgrind ended without a message".to_owned() } else { words.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::in_a_sentence;

    #[test]
    fn valgrinds_words_become_one_line() {
        assert_eq!(
            in_a_sentence("==12== octavo tracer: no\n==12==\nvalgrind: oh\n"),
            "octavo tracer: no; valgrind: oh"
        );
        assert_eq!(in_a_sentence("==12== \n"), "Valgrind ended without a message");
    }
}
