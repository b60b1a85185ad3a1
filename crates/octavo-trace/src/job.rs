//! Long work on a thread of its own, with progress and cancellation.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::source::{Progress, TraceError};
use crate::threads;

/// The progress of a job.
#[derive(Clone, Copy, Debug, Default)]
pub struct JobProgress {
    /// Whether it still runs.
    pub running: bool,
    /// The time since it began.
    pub elapsed: Duration,
    /// How much of its input it has read.
    pub read: Progress,
    /// Instructions passed.
    pub instructions: u64,
    /// References passed.
    pub references: u64,
}

/// State shared by a job and the thread that waits for it.
#[derive(Default)]
pub struct JobState {
    stop: AtomicBool,
    done: AtomicU64,
    /// 0 if unknown.
    total: AtomicU64,
    instructions: AtomicU64,
    references: AtomicU64,
    ended: Mutex<bool>,
    end: Condvar,
}

impl JobState {
    /// Whether the job is to stop.
    pub fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Publishes its progress.
    pub fn publish(&self, read: Progress, instructions: u64, references: u64) {
        self.done.store(read.done, Ordering::Relaxed);
        self.total.store(read.total.unwrap_or(0), Ordering::Relaxed);
        self.instructions.store(instructions, Ordering::Relaxed);
        self.references.store(references, Ordering::Relaxed);
    }
}

/// Work under way, with its result to come.
pub struct Job<T> {
    state: Arc<JobState>,
    thread: Result<JoinHandle<Result<T, TraceError>>, TraceError>,
    started: Instant,
}

impl<T: Send + 'static> Job<T> {
    /// Starts `work`.
    pub fn start(work: impl FnOnce(&JobState) -> Result<T, TraceError> + Send + 'static) -> Self {
        let state = Arc::new(JobState::default());
        let shared = state.clone();
        // Dropped also when `work` panics or has no thread to run on: `wait` returns then too.
        let end = End(shared);
        let thread = threads::start("job", move || work(&end.0))
            .map_err(|why| TraceError::whole("the trace", &why));
        Job { state, thread, started: Instant::now() }
    }

    /// Waits until it has ended or `timeout` has passed.
    pub fn wait(&self, timeout: Duration) -> JobProgress {
        let ended = self.state.ended.lock().unwrap_or_else(PoisonError::into_inner);
        let (ended, _) = self
            .state
            .end
            .wait_timeout_while(ended, timeout, |ended| !*ended)
            .unwrap_or_else(PoisonError::into_inner);
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let total = load(&self.state.total);
        JobProgress {
            running: !*ended,
            elapsed: self.started.elapsed(),
            read: Progress { done: load(&self.state.done), total: (total > 0).then_some(total) },
            instructions: load(&self.state.instructions),
            references: load(&self.state.references),
        }
    }

    /// Asks the job to stop soon; the job decides how it ends.
    pub fn stop(&self) {
        self.state.stop.store(true, Ordering::Relaxed);
    }

    /// Its result.
    pub fn finish(self) -> Result<T, TraceError> {
        let failed = || TraceError::whole("the trace", "the work on it failed: a bug in Octavo");
        self.thread?.join().unwrap_or_else(|_| Err(failed()))
    }
}

struct End(Arc<JobState>);

impl Drop for End {
    fn drop(&mut self) {
        *self.0.ended.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.end.notify_all();
    }
}
