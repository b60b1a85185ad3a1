//! The recorder: writes a stream's words to a native trace as they arrive.

use octavo_types::{AddressWidth, Event, Segment};

use crate::native::{NativeFile, StreamTotals, StreamWriter};
use crate::observer::{Observer, StreamProgress};
use crate::ring::{Segments, Start, WordConsumer};
use crate::source::TraceError;
use crate::stream::{StreamEnd, StreamIdentity};

/// Writes one stream to a native trace, and counts it.
pub struct Recorder {
    file: NativeFile,
    writer: Option<StreamWriter>,
    /// The progress when the writer was done.
    progress: StreamProgress,
}

impl Recorder {
    /// A recorder of the stream `identity` into `file`.
    pub fn new(file: &NativeFile, identity: &StreamIdentity) -> Self {
        Recorder {
            file: file.clone(),
            writer: Some(file.stream(identity)),
            progress: StreamProgress::default(),
        }
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
        self.progress = self.progress();
        self.file.fail(error);
        self.writer = None;
    }
}

fn progress(totals: StreamTotals) -> StreamProgress {
    let StreamTotals { instructions, references } = totals;
    StreamProgress { references, instructions, resident_bytes: 0 }
}

impl WordConsumer for Recorder {
    fn width(&self) -> Option<AddressWidth> {
        None
    }

    #[inline]
    fn execution(&mut self, _: &Segment, words: &[u64]) {
        self.put(words);
    }

    fn executions(&mut self, _: &Segments, words: &[u64]) -> usize {
        let Some(writer) = &mut self.writer else { return 0 };
        match writer.put_executions(words) {
            Ok(taken) => taken,
            Err(error) => {
                self.fail(error);
                0
            }
        }
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
        self.progress = self.progress();
        match self.writer.take().map(|writer| writer.end(end)) {
            Some(Ok(totals)) => self.progress = progress(totals),
            Some(Err(error)) => self.fail(error),
            None => {}
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
        self.writer.as_ref().map_or(self.progress, |writer| progress(writer.totals()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::native::Manifest;
    use crate::sink::Output;

    #[test]
    fn a_stream_that_cannot_be_encoded_fails_the_trace() {
        let output = Output::to_writer("t.oct", Box::new(std::io::sink()));
        let manifest = Manifest::recorded(serde_json::Value::Null);
        let file = NativeFile::create(output, &manifest).unwrap();
        let mut recorder = Recorder::new(&file, &StreamIdentity::only());
        recorder.record(&[77], None);
        recorder.ended(&StreamIdentity::only(), &StreamEnd::PLAIN);
        let sentence = file.failed().unwrap().to_string();
        assert!(sentence.starts_with("`t.oct`: a chunk cannot be encoded: "), "{sentence}");
        assert_eq!(file.finish().unwrap_err().to_string(), sentence);
    }
}
