//! Reading on another thread, a few batches ahead.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::native::Manifest;
use crate::threads;

use super::{Batch, Facts, Place, Progress, Source, Step, TraceError};

/// How many batches may wait.
const BATCHES: usize = 4;
/// How often a consumer that waits for a batch looks whether to stop.
const POLL: Duration = Duration::from_millis(100);

struct Message {
    step: Result<Option<Step>, TraceError>,
    batch: Batch,
    state: State,
}

struct State {
    progress: Progress,
    place: Place,
    skipped: u64,
    /// The facts and the manifest, at the end of the trace.
    known: Option<(Facts, Option<Manifest>)>,
}

/// A source that is read on a thread of its own, while earlier batches are consumed.
pub struct ReadAhead {
    messages: Receiver<Message>,
    used: Sender<Batch>,
    name: String,
    facts: Facts,
    manifest: Option<Manifest>,
    state: State,
    ended: bool,
    /// Never joined, as it may wait for ever for a silent pipe; a message if it could not start.
    thread: Result<JoinHandle<()>, String>,
}

impl ReadAhead {
    /// Reads `source`; with `wants_places` its batches hold the place of each execution.
    pub fn new(source: Box<dyn Source>, wants_places: bool) -> Self {
        let name = source.name().to_owned();
        let (facts, manifest) = (source.facts(), source.manifest());
        let (send, messages) = sync_channel(BATCHES);
        let (used, free) = channel();
        let thread = threads::start("reader", move || read(source, wants_places, &send, &free));
        let state =
            State { progress: Progress::default(), place: Place::Whole, skipped: 0, known: None };
        ReadAhead { messages, used, name, facts, manifest, state, ended: false, thread }
    }

    /// Like [`Source::next`], but returns `None` soon after `stopped` returns true, even while the
    /// reader waits for a silent pipe.
    pub fn next_unless(
        &mut self,
        batch: &mut Batch,
        stopped: impl Fn() -> bool,
    ) -> Result<Option<Step>, TraceError> {
        batch.clear();
        let message = loop {
            if self.ended || stopped() {
                return Ok(None);
            }
            match self.messages.recv_timeout(POLL) {
                Ok(message) => break message,
                Err(RecvTimeoutError::Timeout) => {}
                // The reader's last message is an end or an error.
                Err(RecvTimeoutError::Disconnected) => {
                    let bug = "its reader failed: a bug in Octavo";
                    let why = self.thread.as_ref().err().map_or(bug, String::as_str);
                    return Err(TraceError::whole(&self.name, why));
                }
            }
        };
        // The reader may be gone.
        drop(self.used.send(std::mem::replace(batch, message.batch)));
        self.ended = !matches!(message.step, Ok(Some(_)));
        self.state = message.state;
        if let Some(known) = self.state.known.take() {
            (self.facts, self.manifest) = known;
        }
        message.step
    }
}

/// Reads until the trace ends or the receiver is gone.
fn read(
    mut source: Box<dyn Source>,
    wants_places: bool,
    send: &SyncSender<Message>,
    free: &Receiver<Batch>,
) {
    loop {
        let mut batch = free.try_recv().unwrap_or_default();
        batch.wants_places = wants_places;
        let step = source.next(&mut batch);
        let last = !matches!(step, Ok(Some(_)));
        let state = State {
            progress: source.progress(),
            place: source.place(),
            skipped: source.skipped_instructions(),
            known: last.then(|| (source.facts(), source.manifest())),
        };
        if send.send(Message { step, batch, state }).is_err() || last {
            return;
        }
    }
}

impl Source for ReadAhead {
    fn facts(&self) -> Facts {
        self.facts.clone()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        self.next_unless(batch, || false)
    }

    fn manifest(&self) -> Option<Manifest> {
        self.manifest.clone()
    }

    fn progress(&self) -> Progress {
        self.state.progress
    }

    fn place(&self) -> Place {
        self.state.place
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn skipped_instructions(&self) -> u64 {
        self.state.skipped
    }
}
