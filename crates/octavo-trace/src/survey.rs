//! The contents of a trace, stream by stream.

use std::collections::BTreeMap;

use octavo_types::{AddressWidth, Consumer, Event, Segment, VirtAddr};

use crate::job::JobState;
use crate::native::Manifest;
use crate::ring::{Decoder, SegmentRoom, Start, StreamConsumer};
use crate::source::{Batch, Facts, Source, Step, TraceError};
use crate::stream::{StreamEnd, StreamIdentity};

/// One stream.
#[derive(Clone, Debug)]
pub struct StreamSurvey {
    /// Its identity.
    pub identity: StreamIdentity,
    /// How it ended; `None` if the trace ends before.
    pub end: Option<StreamEnd>,
    /// Its contents. If executions were left out, only the totals that the trace states.
    pub counts: StreamCounts,
    /// Segments defined.
    pub segments: usize,
    /// xxh3-128 of its words, if all of them were read.
    pub hash: u128,
}

/// The contents of a stream.
#[derive(Clone, Debug, Default)]
pub struct StreamCounts {
    /// Instructions.
    pub instructions: u64,
    /// Fetches, loads and stores.
    pub references: u64,
    /// Loads, including those of modifies.
    pub loads: u64,
    /// Events by name.
    pub events: BTreeMap<&'static str, u64>,
    /// Threads that were started, and the one of a fork.
    pub threads: u64,
    /// Every mapping that was made, in order, up to [`MAX_MAPPINGS`].
    pub mappings: Vec<Event>,
}

/// How many mappings of a stream are kept.
pub const MAX_MAPPINGS: usize = 1 << 16;

/// The contents of a whole trace.
#[derive(Clone, Debug)]
pub struct Survey {
    /// The facts on it.
    pub facts: Facts,
    /// Its description.
    pub manifest: Option<Manifest>,
    /// Each stream.
    pub streams: Vec<StreamSurvey>,
    /// Why it could not be read to its end.
    pub fault: Option<TraceError>,
    /// Whether it was stopped early.
    pub stopped: bool,
}

/// Reads `source` to its end.
pub fn survey(source: &mut dyn Source, state: &JobState) -> Survey {
    let mut batch = Batch::default();
    let room = SegmentRoom::default();
    let mut streams: BTreeMap<u32, (StreamSurvey, Decoder)> = BTreeMap::new();
    let (mut fault, mut stopped) = (None, false);
    while fault.is_none() {
        stopped = state.stopped();
        if stopped {
            break;
        }
        match source.next(&mut batch) {
            Ok(Some(Step::Began(identity))) => {
                let threads = identity.initial_threads();
                let survey = StreamSurvey {
                    end: None,
                    counts: StreamCounts { threads, ..StreamCounts::default() },
                    segments: 0,
                    hash: 0,
                    identity,
                };
                streams.insert(survey.identity.stream, (survey, Decoder::sharing(&room)));
            }
            Ok(Some(Step::Batch(stream))) => {
                let Some((survey, decoder)) = streams.get_mut(&stream) else { continue };
                let mut counter = Counter { survey };
                let decoded = decoder.decode(&batch.words, &mut counter);
                fault = decoded.err().map(|error| source.undecodable(&error));
                let sum = |field: fn(&StreamCounts) -> u64| {
                    streams.values().map(|(survey, _)| field(&survey.counts)).sum()
                };
                state.publish(source.progress(), sum(|c| c.instructions), sum(|c| c.references));
            }
            Ok(Some(Step::Ended(stream, end))) => {
                if let Some((survey, decoder)) = streams.get_mut(&stream) {
                    survey.end = Some(end);
                    close(survey, decoder);
                }
            }
            Ok(None) => break,
            Err(error) => fault = Some(error),
        }
    }
    for (survey, decoder) in streams.values_mut().filter(|(survey, _)| survey.end.is_none()) {
        close(survey, decoder);
    }
    let streams = streams.into_values().map(|(survey, _)| survey).collect();
    Survey { facts: source.facts(), manifest: source.manifest(), streams, fault, stopped }
}

fn close(survey: &mut StreamSurvey, decoder: &mut Decoder) {
    let decoder = std::mem::take(decoder);
    (survey.segments, survey.hash) = (decoder.segments(), decoder.hash());
}

struct Counter<'a> {
    survey: &'a mut StreamSurvey,
}

impl Consumer for Counter<'_> {
    #[inline]
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let counts = &mut self.survey.counts;
        counts.instructions += u64::from(segment.instructions());
        counts.references += segment.references(addresses);
        counts.loads += u64::from(segment.loads());
    }

    fn event(&mut self, event: &Event) {
        let counts = &mut self.survey.counts;
        counts.threads += u64::from(matches!(event, Event::ThreadStart { .. }));
        if let Some(name) = event.name() {
            *counts.events.entry(name).or_default() += 1;
        }
        if matches!(event, Event::Map { .. }) && counts.mappings.len() < MAX_MAPPINGS {
            counts.mappings.push(event.clone());
        }
    }
}

impl StreamConsumer for Counter<'_> {
    fn width(&self) -> Option<AddressWidth> {
        None
    }

    fn started(&mut self, start: &Start) {
        if !start.program.is_empty() {
            start.program.clone_into(&mut self.survey.identity.program);
        }
    }
}
