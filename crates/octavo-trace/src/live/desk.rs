//! Requests to the threads that follow streams: for the result at the end, for a copy of it for a
//! snapshot, and to open or close the region of interest. A stream answers a request once it has
//! read all that its process had written when the request was made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::observer::{Observer, StreamResult};
use crate::ring::Seccomp;

/// A stream that has ended.
pub struct Followed<C> {
    pub result: StreamResult<C>,
    /// The messages in Lackey's text.
    pub messages: String,
    /// How the process had confined its system calls, if it had.
    pub seccomp: Option<Seccomp>,
}

/// The shared state of a run's streams and of the thread that calls them.
pub struct Desk<C> {
    /// How many calls there were. A stream compares this with the number that it has answered.
    calls: AtomicU64,
    /// Whether the last call wants the streams' parts of a snapshot.
    wants_parts: AtomicBool,
    /// One call at a time.
    turn: Mutex<()>,
    trays: Mutex<Trays<C>>,
    changed: Condvar,
}

struct Trays<C> {
    live: BTreeSet<u32>,
    /// The answer of each stream; `None` for an engine without snapshots.
    given: BTreeMap<u32, Option<StreamResult<C>>>,
    finished: Vec<Followed<C>>,
}

impl<C: Observer> Desk<C> {
    /// Without streams.
    pub fn new() -> Self {
        let trays = Trays { live: BTreeSet::new(), given: BTreeMap::new(), finished: Vec::new() };
        Desk {
            calls: AtomicU64::new(0),
            wants_parts: AtomicBool::new(false),
            turn: Mutex::new(()),
            trays: Mutex::new(trays),
            changed: Condvar::new(),
        }
    }

    fn trays(&self) -> MutexGuard<'_, Trays<C>> {
        // A thread that panicked has left nothing half done: each step is one insertion or removal.
        self.trays.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes all streams that have ended.
    pub fn take_finished(&self) -> Vec<Followed<C>> {
        std::mem::take(&mut self.trays().finished)
    }

    /// Notifies all streams of a change, and returns once they have applied it.
    pub fn announce(&self) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.call(false));
    }

    /// A snapshot: the counts of every stream that has begun, each at a moment of its own since the
    /// call. `None` if the engine has no snapshots.
    pub fn snapshot(&self) -> Option<Vec<StreamResult<C>>> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut trays = self.call(true);
        let given = std::mem::take(&mut trays.given);
        let ended = trays.finished.iter().map(|followed| &followed.result);
        let ended = ended.filter(|ended| !given.contains_key(&ended.identity.stream));
        let mut parts = ended.map(copy).collect::<Option<Vec<_>>>()?;
        drop(trays);
        parts.extend(given.into_values().collect::<Option<Vec<_>>>()?);
        parts.sort_by_key(|part| part.identity.stream);
        Some(parts)
    }

    /// Waits until every stream has answered or ended.
    fn call(&self, wants_parts: bool) -> MutexGuard<'_, Trays<C>> {
        let mut trays = self.trays();
        trays.given.clear();
        let asked = trays.live.clone();
        self.wants_parts.store(wants_parts, Ordering::Relaxed);
        self.calls.fetch_add(1, Ordering::Release);
        let owes = |trays: &mut Trays<C>| {
            let owed = |stream| trays.live.contains(stream) && !trays.given.contains_key(stream);
            asked.iter().any(owed)
        };
        self.changed.wait_while(trays, owes).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream's place at the desk, which it leaves also when its thread does not start or panics.
pub struct Seat<C: Observer> {
    desk: Arc<Desk<C>>,
    stream: u32,
    /// The calls that the stream has answered, or that came before it began.
    answered: u64,
}

impl<C: Observer> Seat<C> {
    /// Adds a stream, which begins.
    pub fn take(desk: &Arc<Desk<C>>, stream: u32) -> Self {
        let mut trays = desk.trays();
        trays.live.insert(stream);
        Seat { answered: desk.calls.load(Ordering::Relaxed), desk: desk.clone(), stream }
    }

    /// Whether there was a call.
    #[inline]
    pub fn is_called(&self) -> bool {
        self.desk.calls.load(Ordering::Acquire) != self.answered
    }

    /// The stream answers; `part` makes its part of a snapshot.
    pub fn answer(&mut self, part: impl FnOnce() -> Option<StreamResult<C>>) {
        self.answered = self.desk.calls.load(Ordering::Acquire);
        let part = if self.desk.wants_parts.load(Ordering::Relaxed) { part() } else { None };
        self.desk.trays().given.insert(self.stream, part);
        self.desk.changed.notify_all();
    }

    /// The stream has ended.
    pub fn finish(&self, followed: Followed<C>) {
        let mut trays = self.desk.trays();
        trays.live.remove(&self.stream);
        trays.finished.push(followed);
        self.desk.changed.notify_all();
    }

    /// The stream answers no more calls.
    pub fn leave(&self) {
        self.desk.trays().live.remove(&self.stream);
        self.desk.changed.notify_all();
    }
}

impl<C: Observer> Drop for Seat<C> {
    fn drop(&mut self) {
        self.leave();
    }
}

fn copy<C: Observer>(result: &StreamResult<C>) -> Option<StreamResult<C>> {
    Some(StreamResult {
        identity: result.identity.clone(),
        ended: result.ended,
        exit_code: result.exit_code,
        segments: result.segments,
        hash: result.hash,
        folded: result.folded,
        fault: result.fault.clone(),
        windows: result.windows.clone(),
        kernel_time: result.kernel_time,
        threads: result.threads.clone(),
        consumer: result.consumer.snapshot()?,
    })
}
