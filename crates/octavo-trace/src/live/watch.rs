//! The watcher: sees streams begin and the program end.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::command::{start_lackey, start_octavo};
use super::process::{Pid, Process};
use super::stream::{StreamState, follow_lackey, follow_ring};
use super::{LiveError, LiveOptions, Tracer};
use crate::observer::{ExitReason, Observer, RunExit, RunProgress, RunResult, StreamResult};
use crate::ring::{Session, Slot};
use crate::stream::{Began, StreamIdentity};
use crate::window::Limits;

/// How often slots and processes are looked at. A stream that waits loses nothing: its ring holds
/// megabytes.
const INTERVAL: Duration = Duration::from_micros(500);
/// How much of Valgrind's logs is kept.
const DIAGNOSTICS_BYTES: usize = 4096;
/// What Valgrind says before it ends a program for an instruction that it does not know.
const UNKNOWN_INSTRUCTION: &str = "Unrecognised instruction";

/// What the watcher shares with whoever holds the run.
pub struct Shared {
    pub stop: AtomicBool,
    pub interrupted: AtomicBool,
    limits: Arc<Limits>,
    /// Each stream, and its process while the stream is followed.
    streams: Mutex<Vec<(Weak<Process>, Arc<StreamState>)>>,
    done: Mutex<bool>,
    ended: Condvar,
}

impl Shared {
    pub fn new(limits: Arc<Limits>) -> Self {
        Shared {
            stop: AtomicBool::new(false),
            interrupted: AtomicBool::new(false),
            limits,
            streams: Mutex::default(),
            done: Mutex::new(false),
            ended: Condvar::new(),
        }
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
            progress.streams_live += usize::from(!state.finished.load(Ordering::Relaxed));
        }
        progress.counting = self.limits.is_whole_run() || progress.total.instructions > 0;
        progress
    }

    fn add(&self, process: &Arc<Process>) -> Arc<StreamState> {
        let state = Arc::new(StreamState::default());
        self.streams.lock().expect("not poisoned").push((Arc::downgrade(process), state.clone()));
        state
    }

    fn kill_all(&self) {
        for (process, state) in self.streams.lock().expect("not poisoned").iter() {
            if !state.finished.load(Ordering::Acquire) {
                process.upgrade().inspect(|process| process.signal(libc::SIGKILL));
            }
        }
    }

    fn finish(&self) {
        *self.done.lock().expect("not poisoned") = true;
        self.ended.notify_all();
    }
}

enum Source {
    Ring(Arc<Session>),
    Pipe(Option<OwnedFd>),
}

/// The watcher of one run.
pub struct Watch<C, F> {
    options: LiveOptions,
    shared: Arc<Shared>,
    observer: F,
    child: Child,
    source: Source,
    followers: Vec<JoinHandle<(StreamResult<C>, String)>>,
    started: Instant,
}

impl<C: Observer, F: Fn(&StreamIdentity) -> C + Send + 'static> Watch<C, F> {
    /// Starts the program.
    pub fn start(
        options: LiveOptions,
        shared: Arc<Shared>,
        observer: F,
    ) -> Result<Self, LiveError> {
        let started = Instant::now();
        let (child, source) = match options.tracer {
            Tracer::Octavo => {
                let session = Session::create(&options.scratch_dir)?;
                (start_octavo(&options, &session.path())?, Source::Ring(session))
            }
            Tracer::Lackey => {
                let (read, write) = std::io::pipe().map_err(|source| LiveError::Start {
                    valgrind: options.valgrind.clone(),
                    source,
                })?;
                (start_lackey(&options, write.into())?, Source::Pipe(Some(read.into())))
            }
        };
        let followers = Vec::new();
        Ok(Watch { options, shared, observer, child, source, followers, started })
    }

    fn program(&self) -> String {
        self.options.argv[0].to_string_lossy().into_owned()
    }

    /// The program's process.
    pub fn root(&self) -> Pid {
        Pid(self.child.id())
    }

    /// Watches until the program has ended and every stream is read.
    pub fn run(mut self) -> RunResult<C> {
        let mut seen = Seen::default();
        let mut status = None;
        let mut killed = false;
        loop {
            // In this order: a stream that began before the end is seen once the end is.
            if status.is_none() {
                status = self.child.try_wait().ok().flatten();
            }
            let ended = status.is_some();
            self.look_for_streams(&mut seen);
            if !killed
                && (self.shared.stop.load(Ordering::Relaxed) || self.shared.limits.exhausted())
            {
                killed = true;
                self.root().signal(libc::SIGKILL);
            }
            if killed {
                self.shared.kill_all();
            }
            if ended && self.followers.iter().all(JoinHandle::is_finished) {
                break;
            }
            std::thread::sleep(INTERVAL);
        }
        self.collect(status)
    }

    fn look_for_streams(&mut self, seen: &mut Seen) {
        let fresh: Vec<_> = match &mut self.source {
            Source::Pipe(pipe) => {
                if let Some(pipe) = pipe.take() {
                    self.follow_pipe(pipe);
                }
                return;
            }
            Source::Ring(session) => {
                let open = session.open_slots();
                let mut slots: Vec<_> = open.map(|n| Slot::new(session.clone(), n)).collect();
                slots.retain(|slot| !seen.streams.contains_key(&slot.stream()));
                slots.sort_by_key(|slot| slot.stream());
                slots
            }
        };
        for slot in fresh {
            let pid = seen.pid_of(&slot);
            let process = Arc::new(pid.map_or(Process::Gone, |pid| Process::open(Pid(pid))));
            let state = self.shared.add(&process);
            let identity = seen.identify(&slot, pid, state.clone(), &self.program());
            let (consumer, limits) = ((self.observer)(&identity), self.options.limits.clone());
            self.followers.push(spawn(move || {
                (follow_ring(identity, slot, process, consumer, limits, state), String::new())
            }));
        }
    }

    fn follow_pipe(&mut self, pipe: OwnedFd) {
        let pid = self.root();
        let state = self.shared.add(&Arc::new(Process::Gone));
        let program = self.program();
        let identity =
            StreamIdentity { stream: 0, parent: None, pid: pid.0, began: Began::Start, program };
        let (consumer, limits) = ((self.observer)(&identity), self.options.limits.clone());
        self.followers.push(spawn(move || follow_lackey(identity, pipe, consumer, limits, state)));
    }

    fn collect(self, status: Option<ExitStatus>) -> RunResult<C> {
        let mut diagnostics = read_logs(&self.options.session_dir);
        let mut streams = Vec::new();
        for follower in self.followers {
            let (stream, said) = follower.join().expect("a follower does not panic");
            if let Some(fault) = &stream.fault {
                diagnostics += &format!("stream {}: {fault}\n", stream.identity.stream);
            }
            // Lackey always ends with statistics of its own.
            if status.is_none_or(|status| !status.success()) || stream.fault.is_some() {
                diagnostics += &said;
            }
            streams.push(stream);
        }
        streams.sort_by_key(|stream| stream.identity.stream);
        let (code, signal) = status.map_or((None, None), |s| (s.code(), s.signal()));
        // Natively the program may well have gone on.
        let unknown_instruction =
            signal == Some(libc::SIGILL) && diagnostics.contains(UNKNOWN_INSTRUCTION);
        let failed = unknown_instruction
            || streams.is_empty()
            || streams.iter().any(|stream| stream.fault.is_some());
        let reason = if self.shared.limits.exhausted() {
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
        let untraced = match &self.source {
            Source::Ring(session) => session.untraced(),
            Source::Pipe(_) => 0,
        };
        let elapsed = self.started.elapsed();
        self.shared.finish();
        RunResult {
            exit: RunExit { code, signal, reason, diagnostics },
            elapsed,
            streams,
            untraced,
        }
    }
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
    /// The identifier of a new stream's process; none where it is gone, or has executed another
    /// program already, and nobody can tell which one it was.
    fn pid_of(&mut self, slot: &Slot) -> Option<u32> {
        let (holder, own) = (slot.holder(), slot.pid());
        self.namespaces |= holder.is_some_and(|holder| holder != own);
        let plausible = !self.namespaces && own > 1 && i32::try_from(own).is_ok();
        holder.or_else(|| plausible.then_some(own))
    }

    /// Who a new stream is. A fresh image in a known process has come by an exec, which ends the
    /// stream before it.
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

fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new()
        .name("octavo-stream".to_owned())
        .spawn(work)
        .expect("the system has threads to give")
}

/// What Valgrind wrote to its logs, cut where it grows long.
fn read_logs(directory: &Path) -> String {
    let mut said = String::new();
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "log"));
    paths.sort();
    for path in paths {
        said += &String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default());
    }
    if said.len() > DIAGNOSTICS_BYTES {
        let cut = (0..=DIAGNOSTICS_BYTES).rev().find(|&at| said.is_char_boundary(at)).unwrap_or(0);
        said.truncate(cut);
        said.push_str("…\n");
    }
    said
}
