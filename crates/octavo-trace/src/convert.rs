//! Converts a trace to another format.

use octavo_types::{AddressWidth, Consumer, Event, Segment, VirtAddr};
use serde_json::Value;

use crate::job::JobState;
use crate::native::Manifest;
use crate::ring::{Decoder, StreamConsumer};
use crate::sink::{Sink, Written};
use crate::source::{Batch, Facts, Source, Step, TraceError};
use crate::stream::{Ended, StreamEnd};
use std::collections::BTreeMap;

/// How to convert.
#[derive(Clone, Debug, Default)]
pub struct ConvertOptions {
    /// The description that the new trace carries, beside what is known of the old one.
    pub about: Value,
    /// Whether an error in the trace still leaves what came before it written, with the error in
    /// [`Converted::fault`].
    pub keep_partial: bool,
}

/// The result of a conversion.
#[derive(Clone, Debug)]
pub struct Converted {
    /// Facts on the trace that was read.
    pub facts: Facts,
    /// The size and extent of the trace that was written.
    pub written: Written,
    /// The error that ended the trace early, if the part before it was kept.
    pub fault: Option<TraceError>,
}

/// Reads `source` to its end into `sink`.
pub fn convert(
    source: &mut dyn Source,
    mut sink: Box<dyn Sink>,
    options: ConvertOptions,
    state: &JobState,
) -> Result<Converted, TraceError> {
    let mut batch = Batch::default();
    let mut streams: BTreeMap<u32, (Decoder, Count)> = BTreeMap::new();
    let (mut ended, mut fault) = (Count::default(), None);
    loop {
        if state.stopped() {
            return Err(TraceError::whole("the conversion", "was interrupted; nothing is kept"));
        }
        match source.next(&mut batch) {
            Ok(Some(Step::Began(identity))) => {
                sink.begin(&identity)?;
                streams.insert(identity.stream, Default::default());
            }
            Ok(Some(Step::Batch(stream))) => {
                let (decoder, count) = streams.entry(stream).or_default();
                // Before anything is written: an error in the words is the trace's.
                if let Err(error) = decoder.decode(&batch.words, count) {
                    let error = source.undecodable(&error);
                    if !options.keep_partial {
                        return Err(error);
                    }
                    fault = Some(error);
                    break;
                }
                sink.words(stream, &batch.words)?;
                let all = |field: fn(&Count) -> u64| {
                    field(&ended) + streams.values().map(|(_, count)| field(count)).sum::<u64>()
                };
                state.publish(source.progress(), all(|c| c.instructions), all(|c| c.references));
            }
            Ok(Some(Step::Ended(stream, end))) => {
                sink.end(stream, &end)?;
                if let Some((_, count)) = streams.remove(&stream) {
                    ended.instructions += count.instructions;
                    ended.references += count.references;
                }
            }
            Ok(None) => break,
            Err(error) if options.keep_partial => {
                fault = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    for stream in streams.into_keys() {
        // These streams have no end in the part of a broken trace that is kept.
        sink.end(stream, &StreamEnd { ended: Ended::Lost, ..StreamEnd::PLAIN })?;
    }
    let facts = source.facts();
    let about = fault.iter().fold(options.about, kept_before);
    sink.add_manifest(&Manifest::converted(&facts, about))?;
    Ok(Converted { facts, written: sink.finish()?, fault })
}

/// Adds to a trace's description that only the part before `fault` was kept.
fn kept_before(mut about: Value, fault: &TraceError) -> Value {
    if let Some(description) = about.as_object_mut() {
        let reason = format!("only what came before a fault was converted ({fault})");
        description.insert("partial_reason".to_owned(), reason.into());
    }
    about
}

/// Counts instructions and references.
#[derive(Default)]
struct Count {
    instructions: u64,
    references: u64,
}

impl Consumer for Count {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.instructions += u64::from(segment.instructions());
        self.references += segment.references(addresses);
    }

    fn event(&mut self, _: &Event) {}
}

impl StreamConsumer for Count {
    fn width(&self) -> Option<AddressWidth> {
        None
    }
}
