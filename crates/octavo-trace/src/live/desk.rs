//! Requests to the threads that follow streams: for the result at the end, for a copy of it for a
//! snapshot, and to open or close the region of interest. A stream answers a request once it has read
//! all that its process had written when the request was made.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::observer::{Observer, StreamResult};
use crate::ring::Seccomp;

/// A stream that has ended.
pub struct Followed<C> {
    pub result: StreamResult<C>,
    /// Lackey's text apart from the references.
    pub said: String,
    /// How the process had confined its system calls, if it had.
    pub seccomp: Option<Seccomp>,
}

/// The shared state of a run's streams and of the thread that calls them.
pub struct Desk<C> {
    /// How many calls there were. A stream compares it with what it has answered.
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
    /// The answer of each stream; None of an engine without snapshots.
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

    /// All that have ended; the desk has none of them then.
    pub fn take_finished(&self) -> Vec<Followed<C>> {
        std::mem::take(&mut self.trays().finished)
    }

    /// Lets all streams know what has changed; when it returns, they go by it.
    pub fn announce(&self) {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.call(false));
    }

    /// A snapshot: what every stream that has begun has counted, each at a moment of its own since
    /// the call. None where the engine gives none.
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
            let owed = |of| trays.live.contains(of) && !trays.given.contains_key(of);
            asked.iter().any(owed)
        };
        self.changed.wait_while(trays, owes).unwrap_or_else(PoisonError::into_inner)
    }
}

/// A stream's place at the desk, which it leaves also when its thread does not start or panics.
pub struct Seat<C: Observer> {
    desk: Arc<Desk<C>>,
    stream: u32,
    /// The calls that are answered, or none of its business.
    answered: u64,
}

impl<C: Observer> Seat<C> {
    /// A stream begins.
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

fn copy<C: Observer>(of: &StreamResult<C>) -> Option<StreamResult<C>> {
    Some(StreamResult {
        identity: of.identity.clone(),
        ended: of.ended,
        exit_code: of.exit_code,
        segments: of.segments,
        hash: of.hash,
        folded: of.folded,
        fault: of.fault.clone(),
        windows: of.windows.clone(),
        kernel_time: of.kernel_time,
        consumer: of.consumer.snapshot()?,
    })
}
