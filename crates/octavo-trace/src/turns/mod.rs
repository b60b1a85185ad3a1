//! Processes that take turns on one core: several streams of references, of one trace or of
//! several, as one.
//!
//! Each trace is read at all of its streams at once, which is to open it once a stream; a format
//! that cannot be read so holds one process. [`Round`] says whose turn it is, [`Cut`] ends a turn
//! within a batch. What comes out is the words of the streams, so that whoever takes them needs to
//! know no more than which stream has its turn: the one that the batch is of.

mod cut;
mod process;
mod round;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::native::Manifest;
use crate::observer::Observer;
use crate::source::{Batch, Facts, Place, Progress, Source, Step, Streams, TraceError};
use crate::stream::{Began, StreamEnd, StreamIdentity};
use process::Process;
use round::{Came, Round};

/// The most process images that take turns, all traces together: fewer than an x86-64 core can tell
/// apart.
pub const MAX_PROCESSES: usize = 4000;

/// An engine on which several process images take turns.
pub trait TurnConsumer: Observer {
    /// What is kept of an image that is no more.
    type Process: Send + 'static;

    /// A stream has begun: a process of its own, or one that its parent has forked just now.
    fn begun(&mut self, identity: &StreamIdentity) {
        let _ = identity;
    }

    /// What follows is of this stream, until the next turn. The stream may be the one before.
    fn turn(&mut self, stream: u32);

    /// A stream has ended, whether or not it was its turn. What it had is the result.
    fn process_ended(&mut self, identity: &StreamIdentity, end: &StreamEnd) -> Self::Process;

    /// All streams have ended: only results are asked for from now on.
    fn all_ended(&mut self);
}

/// Several processes taking turns, as a source.
///
/// Turns are of so many instructions each: a turn ends with the straight run of instructions that
/// completes them, or with the process. The round begins with the first process of each trace, in
/// the order in which the traces are given. A forked child comes in behind all others where its
/// parent tells of the fork; where the parent does not (it runs in a namespace of its own, or the
/// parent's stream is cut off), when the parent's image ends. A program that a process executes
/// goes on in its place, with what is left of its turn.
pub struct Turns {
    traces: Vec<Trace>,
    processes: Vec<Process>,
    round: Round,
    /// Steps that come before anything more is read.
    steps: VecDeque<Step>,
    /// The words of the process that was read last.
    reading: Option<usize>,
}

/// A trace that takes part.
struct Trace {
    name: String,
    facts: Facts,
    /// Whether these facts are of the whole trace; else they are known once it is read.
    is_known: bool,
    manifest: Option<Manifest>,
    /// What is wrong behind all that its processes hold.
    fault: Option<TraceError>,
}

impl Turns {
    /// Of at least one trace, with turns of so many instructions, at least one. Fails where there
    /// are too many processes, or where a trace cannot be read.
    pub fn new(
        traces: Vec<Box<dyn Source>>,
        quantum_instructions: u64,
    ) -> Result<Self, TraceError> {
        let mut turns = Turns {
            traces: Vec::new(),
            processes: Vec::new(),
            round: Round::new(quantum_instructions),
            steps: VecDeque::new(),
            reading: None,
        };
        for source in traces {
            turns.add(source)?;
        }
        for number in turns.round.begin() {
            turns.begin(number);
        }
        Ok(turns)
    }

    /// Adds a trace with its streams. The numbers of the first one's stay, so that they are those
    /// that the trace is known by.
    fn add(&mut self, source: Box<dyn Source>) -> Result<(), TraceError> {
        let trace = self.traces.len();
        let name = source.name().to_owned();
        let streams = source.streams()?;
        let is_known = streams.is_some();
        let all = match streams {
            Some(streams) => streams,
            None => Streams {
                streams: Vec::new(),
                facts: source.facts(),
                manifest: source.manifest(),
                fault: None,
            },
        };
        let Streams { streams, facts, manifest, fault } = all;
        let mut processes: Vec<Process> =
            streams.into_iter().map(|stream| Process::to_open(stream, trace)).collect();
        if processes.is_empty() {
            processes.push(Process::only(source, trace)?);
        }
        processes.sort_by_key(|process| process.identity.stream);
        if self.processes.len() + processes.len() > MAX_PROCESSES {
            let what = format!("makes more than {MAX_PROCESSES} process images take turns");
            return Err(TraceError::whole(&name, what));
        }
        self.traces.push(Trace { name, facts, is_known, manifest, fault });
        let first = self.processes.len();
        let next = self.processes.iter().map(|of| of.identity.stream + 1).max().unwrap_or(0);
        let told: Vec<u32> = processes.iter().map(|process| process.identity.stream).collect();
        let place = |stream: u32| told.iter().position(|told| *told == stream);
        for mut process in processes {
            let StreamIdentity { stream, parent, began, pid, .. } = &mut process.identity;
            let parent_place = parent.and_then(place);
            let came = match (*began, parent_place) {
                (_, None) | (Began::Start, _) => Came::AtOnce,
                (Began::Fork, Some(parent)) => Came::Forked { parent: first + parent, pid: *pid },
                (Began::Exec, Some(parent)) => Came::Executed { before: first + parent },
            };
            if trace > 0 {
                *stream = next + place(*stream).unwrap_or(0) as u32;
                *parent = parent_place.map(|place| next + place as u32);
            }
            self.round.add(came);
            self.processes.push(process);
        }
        Ok(())
    }

    /// A process comes into the round.
    fn begin(&mut self, number: usize) {
        self.steps.push_back(Step::Began(self.processes[number].identity.clone()));
    }

    /// A process ends; how, if its trace tells.
    fn end(&mut self, number: usize, end: Option<StreamEnd>) {
        let process = &mut self.processes[number];
        let trace = process.trace;
        if let Some(facts) = process.facts().filter(|_| !self.traces[trace].is_known) {
            self.traces[trace].facts = facts;
        }
        process.close();
        let stream = process.identity.stream;
        self.steps.extend(end.map(|end| Step::Ended(stream, end)));
        for next in self.round.ended() {
            self.begin(next);
        }
    }

    fn trace(&self) -> &Trace {
        let process = self.reading.map(|number| &self.processes[number]);
        &self.traces[process.map_or(0, |process| process.trace)]
    }
}

impl Source for Turns {
    /// What holds of all traces.
    fn facts(&self) -> Facts {
        let mut all = self.traces[0].facts.clone();
        for Trace { facts, .. } in &self.traces[1..] {
            all.exact &= facts.exact;
            all.samples |= facts.samples;
            all.has_instructions &= facts.has_instructions;
            all.has_sizes &= facts.has_sizes;
            all.physical |= facts.physical;
            let new = facts.notes.iter().filter(|note| !all.notes.contains(note)).cloned();
            let new: Vec<String> = new.collect();
            all.notes.extend(new);
            all.sample = all.sample.or_else(|| facts.sample.clone());
        }
        all
    }

    fn manifest(&self) -> Option<Manifest> {
        self.traces[0].manifest.clone()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        batch.clear();
        loop {
            if let Some(step) = self.steps.pop_front() {
                return Ok(Some(step));
            }
            let Some(number) = self.round.running() else {
                let fault = self.traces.iter_mut().find_map(|trace| trace.fault.take());
                return fault.map_or(Ok(None), Err);
            };
            self.reading = Some(number);
            let process = &mut self.processes[number];
            let found = process.take(self.round.left_instructions(), &mut batch.words)?;
            match found {
                process::Found::Words(part) => {
                    let stream = process.identity.stream;
                    for pid in part.forked {
                        if let Some(child) = self.round.forked(pid) {
                            self.begin(child);
                        }
                    }
                    self.round.executed(part.instructions);
                    return Ok(Some(Step::Batch(stream)));
                }
                process::Found::End(end) => self.end(number, end),
            }
        }
    }

    fn progress(&self) -> Progress {
        let add = |sum: Option<u64>, total: Option<u64>| Some(sum? + total?);
        self.processes.iter().fold(Progress { done: 0, total: Some(0) }, |sum, process| {
            let of = process.progress();
            Progress { done: sum.done + of.done, total: add(sum.total, of.total) }
        })
    }

    fn place(&self) -> Place {
        self.reading.map_or(Place::Whole, |number| self.processes[number].place())
    }

    fn name(&self) -> &str {
        &self.trace().name
    }
}
