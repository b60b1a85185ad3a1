//! The recorder: writes a stream's words to a native trace as they arrive.

use octavo_types::{AddressWidth, Event, Segment};

use crate::native::{NativeFile, StreamWriter};
use crate::observer::{Observer, StreamProgress};
use crate::ring::{Start, WordConsumer};
use crate::source::TraceError;
use crate::stream::{StreamEnd, StreamIdentity};

/// Writes one stream to a native trace, and counts it.
pub struct Recorder {
    writer: Option<StreamWriter>,
    progress: StreamProgress,
    failed: Option<TraceError>,
}

impl Recorder {
    /// A recorder of the stream `identity` into `file`.
    pub fn new(file: &NativeFile, identity: &StreamIdentity) -> Self {
        Recorder {
            writer: Some(file.stream(identity)),
            progress: StreamProgress::default(),
            failed: None,
        }
    }

    /// Why not all was written.
    pub fn failed(&self) -> Option<&TraceError> {
        self.failed.as_ref()
    }

    #[inline]
    fn put(&mut self, words: &[u64]) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.put(words)
        {
            self.fail(error);
        }
    }

    #[cold]
    fn fail(&mut self, error: TraceError) {
        self.failed = Some(error);
        self.writer = None;
    }
}

impl WordConsumer for Recorder {
    fn width(&self) -> Option<AddressWidth> {
        None
    }

    #[inline]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        self.progress.instructions += u64::from(segment.instructions());
        self.progress.references += segment.references_by_group(&words[1..]);
        self.put(words);
    }

    fn record(&mut self, words: &[u64], _: Option<&Event>) {
        self.put(words);
    }

    fn started(&mut self, start: &Start) {
        if let Some(writer) = &mut self.writer {
            writer.name_program(&start.program);
        }
    }
}

impl Observer for Recorder {
    fn ended(&mut self, _: &StreamIdentity, end: &StreamEnd) {
        if let Some(writer) = self.writer.take()
            && let Err(error) = writer.end(end)
        {
            self.fail(error);
        }
    }

    fn tick(&mut self) {
        if let Some(writer) = &mut self.writer
            && let Err(error) = writer.tick()
        {
            self.fail(error);
        }
    }

    fn progress(&self) -> StreamProgress {
        self.progress
    }
}
