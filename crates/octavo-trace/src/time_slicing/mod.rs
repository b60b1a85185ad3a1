//! Time slicing: several streams of references, of one trace or of several, as one stream of
//! processes that share a core.
//!
//! Each trace is opened once per stream and read at all of its streams at once; a trace whose
//! format does not allow this holds one process. [`RoundRobin`] schedules, [`cut::Cut`] ends a
//! quantum within a batch. The result is the words of the streams: a reader only needs to know
//! which stream a batch belongs to.

mod cut;
mod process;
mod round_robin;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use crate::native::Manifest;
use crate::observer::Observer;
use crate::source::{Batch, Facts, Place, Progress, Source, Step, Streams, TraceError};
use crate::stream::{Began, StreamEnd, StreamIdentity};
use process::Process;
use round_robin::{Arrival, RoundRobin};

/// Upper bound on the process images of all traces together: an x86-64 core distinguishes 4096 by
/// their process context identifiers.
pub const MAX_PROCESSES: usize = 4000;

/// An engine that several process images share, one quantum after another.
pub trait TimeSlicedConsumer: Observer {
    /// The result of an image that has ended.
    type Process: Send + 'static;

    /// A stream has begun: a process of its own, or one that its parent has forked just now.
    fn begun(&mut self, identity: &StreamIdentity) {
        let _ = identity;
    }

    /// The following events are of this stream, until the next switch. The stream may be the same
    /// as before.
    fn switch_to(&mut self, stream: u32);

    /// A stream has ended, whether or not it was running. Returns its result.
    fn process_ended(&mut self, identity: &StreamIdentity, end: &StreamEnd) -> Self::Process;

    /// All streams have ended: only results are read from now on.
    fn all_ended(&mut self);
}

/// Several processes that share a core round robin, as a source.
///
/// A quantum ends with the segment that completes its instructions, or with the process. The round
/// begins with the first process of each trace, in the order of the traces; their first turns may
/// have another length, so that each starts up before they alternate. A forked child joins at the
/// end of the round when its parent records the fork; if the parent does not (it runs in a PID
/// namespace of its own, or its stream is cut off), when the parent's image ends. A program that a
/// process executes takes its place, with the rest of its quantum.
pub struct TimeSlicing {
    traces: Vec<Trace>,
    processes: Vec<Process>,
    round: RoundRobin,
    /// Steps to return before anything more is read.
    steps: VecDeque<Step>,
    /// The process that was read last.
    reading: Option<usize>,
}

/// A trace that takes part.
struct Trace {
    name: String,
    facts: Facts,
    /// Whether these facts are of the whole trace; else they are known once it is read.
    is_known: bool,
    manifest: Option<Manifest>,
    /// An error behind the ends of all its processes.
    fault: Option<TraceError>,
}

impl TimeSlicing {
    /// Opens traces, of which there is at least one. `first_quantum_instructions` is the length of
    /// first turns; both lengths are at least 1. Fails if there are too many processes, or if a
    /// trace cannot be read.
    pub fn new(
        traces: Vec<Box<dyn Source>>,
        quantum_instructions: u64,
        first_quantum_instructions: u64,
    ) -> Result<Self, TraceError> {
        let mut slicing = TimeSlicing {
            traces: Vec::new(),
            processes: Vec::new(),
            round: RoundRobin::new(quantum_instructions, first_quantum_instructions),
            steps: VecDeque::new(),
            reading: None,
        };
        for source in traces {
            slicing.add(source)?;
        }
        for number in slicing.round.begin() {
            slicing.begin(number);
        }
        Ok(slicing)
    }

    /// Adds a trace with its streams. The streams of the first trace keep the numbers that they
    /// have in the trace.
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
            let what = format!(
                "brings the number of process images above {MAX_PROCESSES}, the most that share a core"
            );
            return Err(TraceError::whole(&name, what));
        }
        self.traces.push(Trace { name, facts, is_known, manifest, fault });
        let first = self.processes.len();
        let next =
            self.processes.iter().map(|process| process.identity.stream + 1).max().unwrap_or(0);
        let in_trace: Vec<u32> = processes.iter().map(|process| process.identity.stream).collect();
        let place = |stream: u32| in_trace.iter().position(|number| *number == stream);
        for mut process in processes {
            let StreamIdentity { stream, parent, began, pid, .. } = &mut process.identity;
            let parent_place = parent.and_then(place);
            let arrival = match (*began, parent_place) {
                (_, None) | (Began::Start, _) => Arrival::AtOnce,
                (Began::Fork, Some(parent)) => {
                    Arrival::Forked { parent: first + parent, pid: *pid }
                }
                (Began::Exec, Some(parent)) => Arrival::Executed { before: first + parent },
            };
            if trace > 0 {
                *stream = next + place(*stream).unwrap_or(0) as u32;
                *parent = parent_place.map(|place| next + place as u32);
            }
            self.round.add(arrival);
            self.processes.push(process);
        }
        Ok(())
    }

    /// Announces a process, which joins the round.
    fn begin(&mut self, number: usize) {
        self.steps.push_back(Step::Began(self.processes[number].identity.clone()));
    }

    /// Ends a process; `end` is `None` if its trace does not record how.
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

impl Source for TimeSlicing {
    /// The facts that hold for all traces.
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
            let one = process.progress();
            Progress { done: sum.done + one.done, total: add(sum.total, one.total) }
        })
    }

    fn place(&self) -> Place {
        self.reading.map_or(Place::Whole, |number| self.processes[number].place())
    }

    fn name(&self) -> &str {
        &self.trace().name
    }
}
