//! The watcher: sees streams begin and the program end.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::command::{start_lackey, start_octavo};
use super::desk::{Desk, Followed, Seat};
use super::log::Log;
use super::process::{Pid, Process};
use super::stream::{StreamState, follow_lackey, follow_ring};
use super::{LiveError, LiveOptions, PeriodicWindows, Tracer};
use crate::observer::{ExitReason, Observer, RunExit, RunProgress, RunResult};
use crate::ring::{Seccomp, Session, Slot};
use crate::stream::{Began, Ended, StreamIdentity};
use crate::threads;
use crate::window::Limits;

/// Bounds of the interval at which slots and processes are examined; the interval grows with the
/// length of the run. A stream that waits loses nothing: its ring holds megabytes.
const INTERVALS: (Duration, Duration) = (Duration::from_micros(500), Duration::from_millis(2));
/// How long the end of a run waits for a forked child to begin its stream, after all streams have
/// ended: on a busy machine a daemon's first process may end before its child has run at all.
const CHILD_SECONDS: Duration = Duration::from_secs(10);
/// Valgrind's message before it ends a program for an instruction that it does not know. The
/// message is shorter for an instruction that is invalid on every processor, such as `ud2`, with
/// which compilers abort a program.
const UNKNOWN_INSTRUCTION: &str = "unhandled instruction bytes";

/// State shared by the watcher and the owner of the run.
pub struct Shared {
    pub stop: AtomicBool,
    pub interrupted: AtomicBool,
    /// The program's own process has ended; its children may run on.
    root_ended: AtomicBool,
    /// Children that run untraced.
    pub untraced: AtomicU32,
    pub limits: Arc<Limits>,
    windows: Option<PeriodicWindows>,
    session: OnceLock<Arc<Session>>,
    /// When the first stream began: windows by time begin there.
    began: OnceLock<Instant>,
    /// Held from reading whether anything is to be traced until the tracer's flag is set.
    pausing: Mutex<()>,
    /// Each stream, and its process while the stream is followed.
    streams: Mutex<Vec<(Weak<Process>, Arc<StreamState>)>>,
    done: Mutex<bool>,
    ended: Condvar,
}

impl Shared {
    pub fn new(limits: Arc<Limits>, windows: Option<PeriodicWindows>) -> Self {
        Shared {
            stop: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            root_ended: AtomicBool::new(false),
            untraced: AtomicU32::new(0),
            limits,
            windows,
            session: OnceLock::new(),
            began: OnceLock::new(),
            pausing: Mutex::default(),
            streams: Mutex::default(),
            done: Mutex::new(false),
            ended: Condvar::new(),
        }
    }

    /// Lets the tracer know whether anything is to be traced now.
    pub fn set_paused(&self) {
        let Some(session) = self.session.get() else { return };
        let elapsed = self.began.get().map(Instant::elapsed).unwrap_or_default();
        let _turn = self.pausing.lock().unwrap_or_else(PoisonError::into_inner);
        let is_gap = self.windows.is_some_and(|windows| windows.is_gap(elapsed));
        session.set_elapsed(elapsed);
        session.set_paused(is_gap || !self.limits.is_open());
    }

    pub fn wait(&self, timeout: Duration) {
        let done = self.done.lock().expect("not poisoned");
        drop(self.ended.wait_timeout_while(done, timeout, |done| !*done).expect("not poisoned"));
    }

    pub fn progress(&self, elapsed: Duration) -> RunProgress {
        let streams = self.streams.lock().expect("not poisoned");
        let mut progress = RunProgress {
            running: !*self.done.lock().expect("not poisoned"),
            elapsed,
            streams_total: streams.len(),
            ..RunProgress::default()
        };
        for (_, state) in streams.iter() {
            let stream = state.progress();
            progress.total.references += stream.references;
            progress.total.instructions += stream.instructions;
            progress.total.resident_bytes += stream.resident_bytes;
            progress.processes_total += usize::from(!state.superseded.load(Ordering::Relaxed));
            if !state.finished.load(Ordering::Relaxed) {
                progress.streams_live += 1;
                progress.programs.extend(state.program.get().cloned());
            }
        }
        progress.over = self.limits.is_over();
        progress.counting = self.limits.is_open()
            && (self.limits.is_whole_run() || progress.total.instructions > 0);
        progress
    }

    fn add(&self, process: &Arc<Process>) -> Arc<StreamState> {
        let state = Arc::new(StreamState::default());
        self.streams.lock().expect("not poisoned").push((Arc::downgrade(process), state.clone()));
        state
    }

    /// Sends a signal to the program; if its own process has ended, as a daemon's does, to all its
    /// processes that are left.
    pub fn signal(&self, root: Pid, signal: i32) {
        if self.root_ended.load(Ordering::Relaxed) {
            self.signal_all(signal);
        } else {
            root.signal(signal);
        }
    }

    fn signal_all(&self, signal: i32) {
        for (process, state) in self.streams.lock().expect("not poisoned").iter() {
            if !state.finished.load(Ordering::Acquire) {
                process.upgrade().inspect(|process| process.signal(signal));
            }
        }
    }

    fn finish(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.ended.notify_all();
    }
}

/// Ends the waiting for a run, also when its watcher panics.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.finish();
    }
}

enum Source {
    Ring(Arc<Session>, Log),
    Pipe(Option<OwnedFd>),
}

/// The program under the tracer. Killed and reaped if the run ends first, since a zombie counts
/// against the user's limit of processes.
struct Traced(Child);

impl Drop for Traced {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            drop(self.0.kill().and_then(|()| self.0.wait()));
        }
    }
}

/// The watcher of one run.
pub struct Watch<C, F> {
    options: LiveOptions,
    shared: Arc<Shared>,
    observer: F,
    child: Traced,
    source: Source,
    desk: Arc<Desk<C>>,
    followers: Vec<JoinHandle<()>>,
    /// Why a stream has no follower, so that the run is at an end.
    no_thread: Option<String>,
    started: Instant,
}

impl<C: Observer, F: Fn(&StreamIdentity) -> C + Send + 'static> Watch<C, F> {
    /// Starts the program.
    pub fn start(
        options: LiveOptions,
        shared: Arc<Shared>,
        desk: Arc<Desk<C>>,
        observer: F,
    ) -> Result<Self, LiveError> {
        let started = Instant::now();
        let failed = |source| LiveError::Start { valgrind: options.valgrind.clone(), source };
        let (child, source) = match options.tracer {
            Tracer::Octavo => {
                let session = Session::create()?;
                if let Some(PeriodicWindows::Instructions { traced, gap }) = options.windows {
                    session.set_windows(traced, gap);
                }
                shared.session.get_or_init(|| session.clone());
                shared.set_paused();
                let (log, ring) = (Log::create().map_err(failed)?, session.descriptor());
                let writer = log.writer().map_err(failed)?;
                let child = start_octavo(&options, ring.map_err(failed)?, writer);
                (child.map_err(failed)?, Source::Ring(session, log))
            }
            Tracer::Lackey => {
                let (read, write) = std::io::pipe().map_err(failed)?;
                let child = start_lackey(&options, write.into()).map_err(failed)?;
                (child, Source::Pipe(Some(read.into())))
            }
        };
        let followers = Vec::new();
        let no_thread = None;
        let child = Traced(child);
        Ok(Watch { options, shared, observer, child, source, desk, followers, no_thread, started })
    }

    fn program(&self) -> String {
        self.options.argv[0].to_string_lossy().into_owned()
    }

    /// The program's process.
    pub fn root(&self) -> Pid {
        Pid(self.child.0.id())
    }

    /// Watches until the program has ended and every stream is read.
    pub fn run(mut self) -> RunResult<C> {
        let _end = End(self.shared.clone());
        let mut seen = Seen::default();
        let mut status = None;
        let mut killed = false;
        let mut idle_since = None;
        loop {
            // In this order: a stream that began before the end is seen once the end is.
            if status.is_none() {
                status = self.child.0.try_wait().ok().flatten();
            }
            let ended = status.is_some();
            self.shared.root_ended.store(ended, Ordering::Relaxed);
            self.look_for_streams(&mut seen);
            self.shared.set_paused();
            if !killed
                && (self.shared.stop.load(Ordering::Relaxed)
                    || self.shared.limits.exhausted()
                    || self.no_thread.is_some())
            {
                killed = true;
                self.root().signal(libc::SIGKILL);
            }
            if killed {
                self.shared.signal_all(libc::SIGKILL);
            }
            if !ended || !self.followers.iter().all(JoinHandle::is_finished) {
                idle_since = None;
            } else if killed
                || !self.may_begin_streams()
                || idle_since.get_or_insert_with(Instant::now).elapsed() > CHILD_SECONDS
            {
                break;
            }
            std::thread::sleep((self.started.elapsed() / 1000).clamp(INTERVALS.0, INTERVALS.1));
        }
        self.collect(status)
    }

    /// Whether a process is left that may begin a stream.
    fn may_begin_streams(&self) -> bool {
        match &self.source {
            Source::Ring(session, _) => self.options.follow_children && session.has_processes(),
            Source::Pipe(_) => false,
        }
    }

    fn look_for_streams(&mut self, seen: &mut Seen) {
        let fresh: Vec<_> = match &mut self.source {
            Source::Pipe(pipe) => {
                if let Some(pipe) = pipe.take() {
                    self.follow_pipe(pipe);
                }
                return;
            }
            Source::Ring(session, _) => {
                self.shared.untraced.store(session.untraced(), Ordering::Relaxed);
                let open = session.open_slots();
                let mut slots: Vec<_> = open.map(|n| Slot::new(session.clone(), n)).collect();
                slots.retain(|slot| !seen.streams.contains_key(&slot.stream()));
                slots.sort_by_key(|slot| slot.stream());
                slots
            }
        };
        for slot in fresh {
            self.shared.began.get_or_init(Instant::now);
            let pid = seen.pid_of(&slot);
            let process = Arc::new(pid.map_or(Process::Gone, |pid| Process::open(Pid(pid))));
            let state = self.shared.add(&process);
            let identity = seen.identify(&slot, pid, state.clone(), &self.program());
            let (consumer, limits) = ((self.observer)(&identity), self.options.limits.clone());
            self.follow(identity.stream, move |seat| {
                follow_ring(identity, slot, process, consumer, limits, state, seat)
            });
        }
    }

    fn follow_pipe(&mut self, pipe: OwnedFd) {
        let pid = self.root();
        let state = self.shared.add(&Arc::new(Process::Gone));
        let program = self.program();
        let identity =
            StreamIdentity { stream: 0, parent: None, pid: pid.0, began: Began::Start, program };
        let (consumer, limits) = ((self.observer)(&identity), self.options.limits.clone());
        self.follow(0, move |seat| {
            // The follower may wait for the program at any time, so it answers no calls.
            seat.leave();
            follow_lackey(identity, pipe, consumer, limits, state)
        });
    }

    /// Reads a stream on a thread; where the system gives none, the run fails.
    fn follow(
        &mut self,
        stream: u32,
        work: impl FnOnce(&mut Seat<C>) -> Followed<C> + Send + 'static,
    ) {
        let mut seat = Seat::take(&self.desk, stream);
        let thread = threads::start("stream", move || {
            let followed = work(&mut seat);
            seat.finish(followed);
        });
        match thread {
            Ok(follower) => self.followers.push(follower),
            Err(why) => self.no_thread = Some(why),
        }
    }

    fn collect(self, status: Option<ExitStatus>) -> RunResult<C> {
        let (mut diagnostics, untraced) = match &self.source {
            Source::Ring(session, log) => (log.text(), session.untraced()),
            Source::Pipe(_) => (String::new(), 0),
        };
        let root = self.root().0;
        let mut streams = Vec::new();
        let mut confined = false;
        if let Some(why) = &self.no_thread {
            diagnostics += &format!("{why}\n");
        }
        for follower in self.followers {
            follower.join().expect("a follower does not panic");
        }
        let mut finished = self.desk.take_finished();
        finished.sort_by_key(|followed| followed.result.identity.stream);
        for Followed { result: stream, messages, seccomp } in finished {
            let of_root = stream.identity.pid == root;
            let died = |mode| stream.ended == Ended::Lost && (!of_root || may_kill(mode, status));
            if let Some(mode) = seccomp.filter(|mode| died(*mode)) {
                confined |= of_root;
                diagnostics += &confinement(mode, &stream.identity.program);
            }
            if let Some(fault) = &stream.fault {
                diagnostics += &format!("stream {}: {fault}\n", stream.identity.stream);
            }
            // Lackey always ends with statistics of its own.
            if status.is_none_or(|status| !status.success()) || stream.fault.is_some() {
                diagnostics += &messages;
            }
            streams.push(stream);
        }
        let (code, signal) = status.map_or((None, None), |s| (s.code(), s.signal()));
        // Natively the program may well have gone on.
        let unknown_instruction =
            signal == Some(libc::SIGILL) && diagnostics.contains(UNKNOWN_INSTRUCTION);
        let failed = unknown_instruction
            || confined
            || self.no_thread.is_some()
            || streams.is_empty()
            || streams.iter().any(|stream| stream.fault.is_some());
        let reason = if self.shared.limits.exhausted() || self.shared.limits.is_over() {
            ExitReason::Limit
        } else if self.shared.interrupted.load(Ordering::Relaxed)
            || self.shared.stop.load(Ordering::Relaxed)
        {
            ExitReason::Interrupted
        } else if failed {
            ExitReason::TracerFailed
        } else if signal.is_some() {
            ExitReason::Signalled
        } else {
            ExitReason::Exited
        };
        let elapsed = self.started.elapsed();
        RunResult {
            exit: RunExit { code, signal, reason, diagnostics },
            elapsed,
            streams,
            untraced,
        }
    }
}

/// Whether seccomp may have ended a process with this status: by the signal of its mode, or because
/// the tracer gave up when a system call failed.
fn may_kill(mode: Seccomp, status: Option<ExitStatus>) -> bool {
    let signal = status.and_then(|status| status.signal());
    match mode {
        Seccomp::Strict => signal == Some(libc::SIGKILL),
        Seccomp::Filter => signal.is_none_or(|signal| signal == libc::SIGSYS),
    }
}

/// The message about a death by seccomp, in the form of the tool's own messages.
fn confinement(mode: Seccomp, program: &str) -> String {
    let mode = match mode {
        Seccomp::Strict => "strict mode",
        Seccomp::Filter => "filter",
    };
    format!(
        "octavo tracer: {program} confined its system calls (seccomp {mode}), and was ended by \
         that: the tracer makes system calls of its own in the program's process; alone the \
         program may run on\n"
    )
}

/// The streams seen so far, and the last one of each process.
#[derive(Default)]
struct Seen {
    streams: HashMap<u32, Arc<StreamState>>,
    last_of: HashMap<u32, u32>,
    /// A process was seen that knows itself by another identifier than we do.
    namespaces: bool,
}

impl Seen {
    /// The identifier of a new stream's process; none if it is gone, or if it may already have
    /// executed another program.
    fn pid_of(&mut self, slot: &Slot) -> Option<u32> {
        let (holder, own) = (slot.holder(), slot.pid());
        self.namespaces |= holder.is_some_and(|holder| holder != own);
        let plausible = !self.namespaces && own > 1 && i32::try_from(own).is_ok();
        holder.or_else(|| plausible.then_some(own))
    }

    /// The identity of a new stream. A new image in a known process began with an exec, which ends
    /// the previous stream.
    fn identify(
        &mut self,
        slot: &Slot,
        pid: Option<u32>,
        state: Arc<StreamState>,
        program: &str,
    ) -> StreamIdentity {
        let stream = slot.stream();
        let before = pid.and_then(|pid| self.last_of.insert(pid, stream));
        let pid = pid.unwrap_or_else(|| slot.pid());
        self.streams.insert(stream, state);
        let (parent, began) = match (slot.parent_stream(), before) {
            (Some(parent), _) => (Some(parent), Began::Fork),
            (None, Some(before)) => (Some(before), Began::Exec),
            (None, None) => (None, Began::Start),
        };
        if began == Began::Exec {
            let before = parent.and_then(|parent| self.streams.get(&parent));
            before.inspect(|state| state.superseded.store(true, Ordering::Relaxed));
        }
        StreamIdentity { stream, parent, pid, began, program: program.to_owned() }
    }
}
