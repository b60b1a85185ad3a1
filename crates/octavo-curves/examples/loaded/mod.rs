//! The beginning of a trace in memory, decoded, so that an analysis of it can be timed alone.

#![allow(dead_code, reason = "each example uses its part")]

#[path = "../../../octavo-trace/examples/timing/mod.rs"]
pub mod timing;

use std::sync::Mutex;

use octavo_curves::Stream;
use octavo_trace::formats::{OpenOptions, open};
use octavo_trace::source::{Batch, Step};
use octavo_trace::{
    Decoder, Encoder, Observer, StreamConsumer, StreamEnd, StreamIdentity, WordConsumer,
};
use octavo_types::{Consumer, Event, ItemKind, Segment, VirtAddr};

/// The streams by name.
pub const STREAMS: [(&str, Stream); 3] =
    [("fetch", Stream::Fetch), ("data", Stream::Data), ("all", Stream::All)];

/// A stream by its name.
pub fn stream(name: &str) -> (&'static str, Stream) {
    *STREAMS.iter().find(|(known, _)| *known == name).expect("fetch, data or all")
}

/// Calls `reference` with the first and the last page (or line) of 2^`log2` bytes of each reference of
/// `stream` in an execution of a segment. A modify makes two references.
#[inline(always)]
pub fn each_reference(
    stream: Stream,
    segment: &Segment,
    addresses: &[VirtAddr],
    log2: u8,
    mut reference: impl FnMut(u64, u64),
) {
    let mut data = addresses.iter();
    for item in segment.items() {
        let is_fetch = item.kind == ItemKind::Fetch;
        let addr = if is_fetch { item.addr } else { *data.next().expect("one each") };
        let absent = item.guarded && addr == VirtAddr::NULL;
        let other = if is_fetch { Stream::Data } else { Stream::Fetch };
        if stream == other || (!is_fetch && absent) {
            continue;
        }
        let last = addr.wrapping_add(u64::from(item.size_bytes) - 1);
        let (first, last) = (addr.raw() >> log2, last.raw() >> log2);
        reference(first, last);
        if item.kind == ItemKind::Modify {
            reference(first, last);
        }
    }
}

/// The words of a batch: as many as a chunk of a trace has.
const BATCH_WORDS: usize = 1 << 15;

/// The executions of the first process image of a trace, up to some number of references, without its events.
pub struct Loaded {
    /// It has the definitions of all segments.
    decoder: Mutex<Decoder>,
    /// The words of the executions.
    batches: Vec<Vec<u64>>,
    references: u64,
}

impl Loaded {
    /// Reads `wanted` references of a trace, or all if there are fewer. The last segment is complete, so that
    /// there may be a few more.
    pub fn read(trace: &str, wanted: u64) -> Self {
        let mut source = open(trace, &OpenOptions::default()).expect("a trace");
        let mut encoding = Encoding { encoder: Encoder::default(), references: 0, wanted };
        let (mut batch, mut decoder) = (Batch::default(), Decoder::default());
        while encoding.references < wanted {
            match source.next(&mut batch).expect("a whole trace") {
                Some(Step::Batch(0)) => {
                    decoder.decode(&batch.words, &mut encoding).expect("sound words")
                }
                Some(_) => {}
                None => break,
            }
        }
        let (mut decoder, mut executions) = (Decoder::default(), Executions(Vec::new()));
        decoder.decode(encoding.encoder.words(), &mut executions).expect("sound words");
        Loaded { decoder: decoder.into(), batches: executions.0, references: encoding.references }
    }

    /// Number of references.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Feeds all executions to a consumer.
    pub fn play(&self, consumer: &mut impl StreamConsumer) {
        let mut decoder = self.decoder.lock().expect("one pass at a time");
        for words in &self.batches {
            decoder.decode(words, consumer).expect("sound words");
        }
    }

    /// Feeds all executions to an engine, and ends its stream.
    pub fn run<O: Observer + StreamConsumer>(&self, mut engine: O) -> O {
        self.play(&mut engine);
        engine.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
        engine
    }
}

/// Encodes executions up to a number of references, so that no segment is defined in place of another.
struct Encoding {
    encoder: Encoder,
    references: u64,
    wanted: u64,
}

impl Consumer for Encoding {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        if self.references < self.wanted {
            self.encoder.segment(segment, addresses);
            self.references += segment.references(addresses);
        }
    }

    fn event(&mut self, _: &Event) {}
}

impl StreamConsumer for Encoding {}

/// The words of executions, without those of definitions.
struct Executions(Vec<Vec<u64>>);

impl WordConsumer for Executions {
    fn execution(&mut self, _: &Segment, words: &[u64]) {
        if self.0.last().is_none_or(|batch| batch.len() >= BATCH_WORDS) {
            self.0.push(Vec::new());
        }
        self.0.last_mut().expect("a batch").extend_from_slice(words);
    }

    fn record(&mut self, _: &[u64], _: Option<&Event>) {}
}
