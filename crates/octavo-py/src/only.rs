//! A sink that passes on the stream of one process only.

use octavo_trace::sink::{Sink, Written};
use octavo_trace::source::TraceError;
use octavo_trace::{Manifest, StreamEnd, StreamIdentity};

/// Passes a single stream on.
pub struct Only {
    sink: Box<dyn Sink>,
    /// The name of the trace that is read, for errors.
    name: String,
    stream: u32,
    began: bool,
}

impl Only {
    /// Passes `stream` on to `sink`; a trace without it is an error.
    pub fn new(sink: Box<dyn Sink>, name: &str, stream: u32) -> Self {
        Only { sink, name: name.to_owned(), stream, began: false }
    }
}

impl Sink for Only {
    fn begin(&mut self, identity: &StreamIdentity) -> Result<(), TraceError> {
        if identity.stream != self.stream {
            return Ok(());
        }
        self.began = true;
        self.sink.begin(identity)
    }

    fn words(&mut self, stream: u32, words: &[u64]) -> Result<(), TraceError> {
        if stream == self.stream { self.sink.words(stream, words) } else { Ok(()) }
    }

    fn end(&mut self, stream: u32, end: &StreamEnd) -> Result<(), TraceError> {
        if stream == self.stream { self.sink.end(stream, end) } else { Ok(()) }
    }

    fn add_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceError> {
        self.sink.add_manifest(manifest)
    }

    fn finish(self: Box<Self>) -> Result<Written, TraceError> {
        if !self.began {
            let message = format!("has no process {}", self.stream);
            return Err(TraceError::whole(&self.name, message));
        }
        self.sink.finish()
    }
}
