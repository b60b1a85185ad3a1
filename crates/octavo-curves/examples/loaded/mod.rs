//! The beginning of a trace in memory, decoded, so that an analysis of it can be timed alone.

#![allow(dead_code, reason = "each example uses its part")]

#[path = "../../../octavo-trace/examples/timing/mod.rs"]
pub mod timing;

use std::collections::HashMap;
use std::sync::Arc;

use octavo_curves::Stream;
use octavo_trace::formats::{OpenOptions, open};
use octavo_trace::source::{Batch, Step};
use octavo_trace::{Decoder, Observer, StreamConsumer, StreamEnd, StreamIdentity};
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

/// The executions of the first process image of a trace, up to some number of references.
#[derive(Default)]
pub struct Loaded {
    segments: Vec<Arc<Segment>>,
    /// Each execution, as an index into `segments`. Their addresses are consecutive in `addresses`.
    executed: Vec<u32>,
    addresses: Vec<VirtAddr>,
    references: u64,
    wanted: u64,
    /// The number of the segment by its address in the decoder, which may have replaced it since.
    known: HashMap<usize, u32>,
}

impl Loaded {
    /// Reads `wanted` references of a trace, or all if there are fewer. The last segment is complete, so that
    /// there may be a few more.
    pub fn read(trace: &str, wanted: u64) -> Self {
        let mut source = open(trace, &OpenOptions::default()).expect("a trace");
        let mut loaded = Loaded { wanted, ..Loaded::default() };
        let (mut batch, mut decoder) = (Batch::default(), Decoder::default());
        while loaded.references < wanted {
            match source.next(&mut batch).expect("a whole trace") {
                Some(Step::Batch(0)) => {
                    decoder.decode(&batch.words, &mut loaded).expect("sound words")
                }
                Some(_) => {}
                None => break,
            }
        }
        loaded
    }

    /// Number of references.
    pub fn references(&self) -> u64 {
        self.references
    }

    /// Feeds all executions to a consumer.
    pub fn play(&self, consumer: &mut impl Consumer) {
        let mut addresses = &self.addresses[..];
        for segment in &self.executed {
            let segment = &self.segments[*segment as usize];
            let (own, rest) = addresses.split_at(segment.data().len());
            consumer.segment(segment, own);
            addresses = rest;
        }
    }

    /// Feeds all executions to an engine, and ends its stream.
    pub fn run<O: Observer + Consumer>(&self, mut engine: O) -> O {
        self.play(&mut engine);
        engine.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
        engine
    }
}

impl Consumer for Loaded {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        if self.references >= self.wanted {
            return;
        }
        let place = std::ptr::from_ref(segment).addr();
        let known = self.known.get(&place).copied();
        let number = known.filter(|number| *self.segments[*number as usize] == *segment);
        let number = number.unwrap_or_else(|| {
            self.segments.push(Arc::new(segment.clone()));
            self.segments.len() as u32 - 1
        });
        self.known.insert(place, number);
        self.executed.push(number);
        self.addresses.extend_from_slice(addresses);
        self.references += segment.references(addresses);
    }

    fn event(&mut self, _: &Event) {}
}

impl StreamConsumer for Loaded {}
