//! One process image, read while it runs.

use super::cut::{Cut, Part};
use crate::source::{Batch, Facts, Place, Progress, Source, Step, StreamSource, TraceError};
use crate::stream::{StreamEnd, StreamIdentity};

/// A process image.
pub struct Process {
    /// Its identity, with stream numbers that are unique among all traces.
    pub identity: StreamIdentity,
    /// The index of its trace.
    pub trace: usize,
    state: State,
    /// How much of its trace was read when it was closed.
    read: Progress,
}

enum State {
    /// It has not begun.
    Closed(StreamSource),
    Open(Box<Open>),
    Ended,
}

/// A stream that is read.
struct Open {
    source: Box<dyn Source>,
    /// Its number in its trace.
    stream: u32,
    batch: Batch,
    /// How much of the batch was taken.
    taken: usize,
    cut: Cut,
}

/// The next part of a stream.
pub enum Found {
    /// Some words.
    Words(Part),
    /// Its end, if the trace records it.
    End(Option<StreamEnd>),
}

impl Process {
    /// A process whose stream is opened when it first runs.
    pub fn to_open(stream: StreamSource, trace: usize) -> Self {
        let read = Progress { done: 0, total: Some(stream.bytes) };
        Process { identity: stream.identity.clone(), trace, state: State::Closed(stream), read }
    }

    /// The only process of a trace that can be opened only once; reads its beginning.
    pub fn only(mut source: Box<dyn Source>, trace: usize) -> Result<Self, TraceError> {
        let Some(Step::Began(identity)) = source.next(&mut Batch::default())? else {
            return Err(TraceError::whole(source.name(), "holds no process"));
        };
        let read = source.progress();
        let state = State::Open(Box::new(Open::new(source, identity.stream)));
        Ok(Process { identity, trace, state, read })
    }

    /// Appends the next words to `words`, up to the end of `left_instructions` instructions.
    pub fn take(
        &mut self,
        left_instructions: u64,
        words: &mut Vec<u64>,
    ) -> Result<Found, TraceError> {
        loop {
            match &mut self.state {
                State::Open(open) => return open.take(left_instructions, words),
                State::Ended => return Ok(Found::End(None)),
                State::Closed(_) => {
                    let State::Closed(closed) = std::mem::replace(&mut self.state, State::Ended)
                    else {
                        continue;
                    };
                    let open = Open::new((closed.open)()?, closed.identity.stream);
                    self.state = State::Open(Box::new(open));
                }
            }
        }
    }

    /// Closes the source; only its progress is kept.
    pub fn close(&mut self) {
        self.read = self.progress();
        self.state = State::Ended;
    }

    /// The facts on its trace so far, while it is open.
    pub fn facts(&self) -> Option<Facts> {
        match &self.state {
            State::Open(open) => Some(open.source.facts()),
            _ => None,
        }
    }

    /// How much of it was read.
    pub fn progress(&self) -> Progress {
        match &self.state {
            State::Open(open) => open.source.progress(),
            _ => self.read,
        }
    }

    /// The place of the last batch.
    pub fn place(&self) -> Place {
        match &self.state {
            State::Open(open) => open.source.place(),
            _ => Place::Whole,
        }
    }
}

impl Open {
    fn new(source: Box<dyn Source>, stream: u32) -> Self {
        Open { source, stream, batch: Batch::default(), taken: 0, cut: Cut::default() }
    }

    fn take(&mut self, left_instructions: u64, words: &mut Vec<u64>) -> Result<Found, TraceError> {
        while self.taken == self.batch.words.len() {
            self.taken = 0;
            self.batch.clear();
            match self.source.next(&mut self.batch)? {
                Some(Step::Batch(stream)) if stream == self.stream => {}
                Some(Step::Began(identity)) if identity.stream == self.stream => {}
                Some(Step::Ended(stream, end)) if stream == self.stream => {
                    let behind = self.source.next(&mut self.batch)?;
                    return match behind {
                        None => Ok(Found::End(Some(end))),
                        Some(_) => Err(self.several()),
                    };
                }
                Some(_) => return Err(self.several()),
                None => return Ok(Found::End(None)),
            }
        }
        let rest = &self.batch.words[self.taken..];
        let part = self.cut.part(rest, left_instructions);
        words.extend_from_slice(&rest[..part.words]);
        self.taken += part.words;
        Ok(Found::Words(part))
    }

    fn several(&self) -> TraceError {
        let what = "holds several processes, and only a native trace in a file of its own, not \
                    compressed, can be read at each of them";
        TraceError::whole(self.source.name(), what)
    }
}
