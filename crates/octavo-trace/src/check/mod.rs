//! Checks a trace for contradictions: on Linux, for example, no program can load from memory that
//! it has not mapped.
//!
//! The checker follows each stream's mappings and threads and checks every reference against them.
//! Everything that real programs do must pass, so the checker allows for:
//!
//! - stacks, which grow when they are touched; the trace records their growth late or not at all;
//! - faults that a program expects (a guard page, a null pointer that its signal handler turns into
//!   an exception): an access that SIGSEGV or SIGBUS follows at once is not a finding;
//! - the page of system calls (vsyscall) that old kernels map into every program, and the code with
//!   which Valgrind replaces it and some functions of the loader;
//! - `munmap` of memory that was never mapped, which Linux allows;
//! - memory that the processor cannot protect as requested: writable or executable memory is also
//!   readable.
//!
//! References outside mappings are findings only in traces that record the first mappings before
//! anything executes. Three calls change mappings without an event: `mremap` with
//! `MREMAP_DONTUNMAP`, `pkey_mprotect`, and `io_setup`.

mod finding;
mod rights;
mod stream;

pub use finding::{Finding, FindingKind};
pub use stream::StreamChecker;

use std::collections::BTreeMap;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::ring::{Decoder, SegmentRoom};
use crate::source::{Batch, Place, Progress, Source, Step, TraceError};
use crate::stream::{Began, StreamEnd};

/// How many findings of each kind are kept.
pub const KEPT_OF_A_KIND: u64 = 20;

/// The results of a check.
#[derive(Debug, Default)]
pub struct Report {
    /// The first few findings of each kind, in the order in which they stand in the trace.
    pub findings: Vec<Finding>,
    /// How many there are of each kind.
    pub counts: BTreeMap<FindingKind, u64>,
    /// How many streams began.
    pub streams: u64,
    /// How many of them record mappings; references of the others are not checked against any.
    pub streams_mapped: u64,
    /// Instructions of all streams.
    pub instructions: u64,
    /// Fetches, loads and stores of all streams.
    pub references: u64,
    /// The caller stopped it before the trace's end.
    pub stopped: bool,
    /// The trace could not be read on.
    pub error: Option<TraceError>,
}

impl Report {
    /// Keeps a finding if it is among the first of its kind.
    fn keep(&mut self, finding: Finding) {
        let alike = self.findings.iter().filter(|kept| kept.kind == finding.kind).count();
        if (alike as u64) < KEPT_OF_A_KIND {
            self.findings.push(finding);
        }
    }
}

/// Checks one trace.
#[derive(Default)]
pub struct Checker {
    room: SegmentRoom,
    streams: FxHashMap<u32, Checked>,
    ended: FxHashSet<u32>,
    report: Report,
}

/// A stream that is being checked.
#[derive(Default)]
struct Checked {
    decoder: Decoder,
    checker: StreamChecker,
    /// Its words could not be decoded; later ones are skipped.
    corrupt: bool,
}

impl Checker {
    /// A checker that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads `source` to its end. `go_on` is asked after each step.
    pub fn check(
        mut self,
        source: &mut dyn Source,
        mut go_on: impl FnMut(Progress) -> bool,
    ) -> Report {
        let mut batch = Batch { wants_places: true, ..Batch::default() };
        loop {
            match source.next(&mut batch) {
                Ok(Some(step)) => self.step(step, &batch, source.place()),
                Ok(None) => break,
                Err(error) => {
                    self.report.error = Some(error);
                    break;
                }
            }
            if !go_on(source.progress()) {
                self.report.stopped = true;
                break;
            }
        }
        let mut left: Vec<u32> = self.streams.keys().copied().collect();
        left.sort_unstable();
        left.into_iter().for_each(|stream| self.end(stream, None));
        self.report
    }

    fn step(&mut self, step: Step, batch: &Batch, place: Place) {
        match step {
            Step::Began(identity) => {
                let stream = identity.stream;
                if self.streams.contains_key(&stream) || self.ended.contains(&stream) {
                    self.wrong(stream, place, FindingKind::StreamOrder, "the stream begins again");
                    return;
                }
                self.report.streams += 1;
                let checker = StreamChecker::new(stream, identity.began == Began::Fork);
                let (decoder, corrupt) = (Decoder::sharing(&self.room), false);
                self.streams.insert(stream, Checked { decoder, checker, corrupt });
            }
            Step::Batch(stream) => {
                let Some(checked) = self.streams.get_mut(&stream) else {
                    let what = "words of a stream that has not begun or has ended";
                    self.wrong(stream, place, FindingKind::StreamOrder, what);
                    return;
                };
                if checked.corrupt {
                    return;
                }
                let decoded = checked.decoder.decode(&batch.words, &mut checked.checker);
                checked.checker.locate_findings(&batch.places, place);
                if let Err(error) = decoded {
                    checked.corrupt = true;
                    checked.checker.undecodable(place, error.to_string());
                }
                checked.checker.take().for_each(|finding| self.report.keep(finding));
            }
            Step::Ended(stream, end) => self.end(stream, Some(&end)),
        }
    }

    fn end(&mut self, stream: u32, end: Option<&StreamEnd>) {
        let Some(mut checked) = self.streams.remove(&stream) else {
            let what = "the end of a stream that has not begun or has ended";
            self.wrong(stream, Place::Whole, FindingKind::StreamOrder, what);
            return;
        };
        self.ended.insert(stream);
        let stated = end.and_then(|end| end.instructions);
        checked.checker.end(end.map(|end| end.ended), stated);
        checked.checker.take().for_each(|finding| self.report.keep(finding));
        for (kind, count) in checked.checker.counts() {
            *self.report.counts.entry(*kind).or_default() += count;
        }
        self.report.streams_mapped += u64::from(checked.checker.has_mappings());
        self.report.instructions += checked.checker.instructions();
        self.report.references += checked.checker.references();
    }

    fn wrong(&mut self, stream: u32, place: Place, kind: FindingKind, what: &str) {
        let (instruction, addr) = (0, None);
        *self.report.counts.entry(kind).or_default() += 1;
        self.report.keep(Finding { kind, stream, instruction, addr, place, what: what.to_owned() });
    }
}
