//! One process image, read when it has its turn.

use super::cut::{Cut, Part};
use crate::source::{Batch, Facts, Place, Progress, Source, Step, StreamSource, TraceError};
use crate::stream::{StreamEnd, StreamIdentity};

/// A process.
pub struct Process {
    /// Who it is, by numbers of our own.
    pub identity: StreamIdentity,
    /// Which trace it is of.
    pub trace: usize,
    state: State,
    /// How much of its trace was read when it was closed.
    read: Progress,
}

enum State {
    /// It has not come yet.
    Closed(StreamSource),
    Open(Box<Open>),
    Ended,
}

/// A stream that is read.
struct Open {
    source: Box<dyn Source>,
    /// What its trace calls it.
    stream: u32,
    batch: Batch,
    /// How much of the batch was taken.
    taken: usize,
    cut: Cut,
}

/// What comes next.
pub enum Found {
    /// Some words.
    Words(Part),
    /// Its end, and what the trace says of that.
    End(Option<StreamEnd>),
}

impl Process {
    /// Of a stream that is opened when its turn comes.
    pub fn to_open(stream: StreamSource, trace: usize) -> Self {
        let read = Progress { done: 0, total: Some(stream.bytes) };
        Process { identity: stream.identity.clone(), trace, state: State::Closed(stream), read }
    }

    /// The only one of a trace, which tells of it first.
    pub fn only(mut source: Box<dyn Source>, trace: usize) -> Result<Self, TraceError> {
        let Some(Step::Began(identity)) = source.next(&mut Batch::default())? else {
            return Err(TraceError::whole(source.name(), "holds no process"));
        };
        let read = source.progress();
        let state = State::Open(Box::new(Open::new(source, identity.stream)));
        Ok(Process { identity, trace, state, read })
    }

    /// Takes up to so many instructions' words.
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

    /// Nothing more is asked of it.
    pub fn close(&mut self) {
        self.read = self.progress();
        self.state = State::Ended;
    }

    /// What is known of its trace by now, while it is read.
    pub fn facts(&self) -> Option<Facts> {
        match &self.state {
            State::Open(open) => Some(open.source.facts()),
            _ => None,
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress {
        match &self.state {
            State::Open(open) => open.source.progress(),
            _ => self.read,
        }
    }

    /// Where it is.
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
