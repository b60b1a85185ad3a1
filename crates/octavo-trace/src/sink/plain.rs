//! Any format that holds the references of one stream, as a sink.

use octavo_types::{AddressWidth, Consumer, Event, Segment, VirtAddr};

use super::{ReferenceWriter, Sink, Written};
use crate::ring::{Decoder, StreamConsumer};
use crate::source::TraceError;
use crate::stream::StreamIdentity;

/// Decodes words for a [`ReferenceWriter`].
pub struct PlainSink {
    name: String,
    decoder: Decoder,
    /// The stream that is written, once it has begun.
    stream: Option<u32>,
    tally: Tally,
}

impl PlainSink {
    /// Writes the trace `name` by `writer`. A second stream is an error.
    pub fn new(name: &str, writer: Box<dyn ReferenceWriter>) -> Self {
        let tally = Tally { writer, written: Written::default(), events_lost: 0, failed: None };
        PlainSink { name: name.to_owned(), decoder: Decoder::default(), stream: None, tally }
    }
}

impl Sink for PlainSink {
    fn begin(&mut self, identity: &StreamIdentity) -> Result<(), TraceError> {
        if self.stream.is_some() {
            let what = "this format holds a single process, and there are several: choose one \
                        with --process";
            return Err(TraceError::whole(&self.name, what));
        }
        self.stream = Some(identity.stream);
        Ok(())
    }

    fn words(&mut self, stream: u32, words: &[u64]) -> Result<(), TraceError> {
        if Some(stream) != self.stream {
            return Ok(());
        }
        let decoded = self.decoder.decode(words, &mut self.tally);
        if let Some(error) = self.tally.failed.take() {
            return Err(error);
        }
        decoded.map_err(|error| TraceError::whole(&self.name, error.to_string()))
    }

    fn finish(self: Box<Self>) -> Result<Written, TraceError> {
        let Tally { writer, mut written, events_lost, .. } = self.tally;
        written.losses = writer.losses();
        if events_lost > 0 {
            written.losses.push(format!("{events_lost} events, which this format cannot hold"));
        }
        written.bytes = writer.finish()?.finish()?;
        Ok(written)
    }
}

/// Passes decoded executions and events on, and keeps the first error.
struct Tally {
    writer: Box<dyn ReferenceWriter>,
    written: Written,
    events_lost: u64,
    failed: Option<TraceError>,
}

impl StreamConsumer for Tally {
    fn width(&self) -> Option<AddressWidth> {
        None
    }
}

impl Consumer for Tally {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        if self.failed.is_some() {
            return;
        }
        self.failed = self.writer.segment(segment, addresses).err();
        self.written.instructions += u64::from(segment.instructions());
        self.written.references += segment.references(addresses);
    }

    fn event(&mut self, event: &Event) {
        if self.failed.is_some() {
            return;
        }
        match self.writer.event(event) {
            Ok(held) => self.events_lost += u64::from(!held),
            Err(error) => self.failed = Some(error),
        }
    }
}
