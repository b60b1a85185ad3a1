//! Sinks of reference streams: trace files of all writable formats.

#[cfg(test)]
pub(crate) mod memory;
mod native_layout;
mod output;
mod plain;

pub use native_layout::NativeLayout;
pub use output::Output;
pub use plain::PlainSink;

use octavo_types::{Event, Segment, VirtAddr};

use crate::native::Manifest;
use crate::source::TraceError;
use crate::stream::{StreamEnd, StreamIdentity};

/// A trace that is being written. Words are ring words, whole items only, as a
/// [`crate::source::Source`] gives them.
pub trait Sink: Send {
    /// A stream begins. Nothing by default.
    fn begin(&mut self, identity: &StreamIdentity) -> Result<(), TraceError> {
        let _ = identity;
        Ok(())
    }

    /// More words of a stream.
    fn words(&mut self, stream: u32, words: &[u64]) -> Result<(), TraceError>;

    /// A stream ends. Nothing by default.
    fn end(&mut self, stream: u32, end: &StreamEnd) -> Result<(), TraceError> {
        let _ = (stream, end);
        Ok(())
    }

    /// Adds a description of the trace, if the format has a place for one.
    fn add_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceError> {
        let _ = manifest;
        Ok(())
    }

    /// Completes the trace and gives the file its final name.
    fn finish(self: Box<Self>) -> Result<Written, TraceError>;
}

/// The size of a written trace, and what its format could not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the file, as stored.
    pub bytes: u64,
    /// Fetches, loads and stores.
    pub references: u64,
    /// Instructions.
    pub instructions: u64,
    /// The losses, a sentence each.
    pub losses: Vec<String>,
}

/// A format that holds the references of one stream.
pub trait ReferenceWriter: Send {
    /// Writes one execution, as [`octavo_types::Consumer::segment`] takes it.
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) -> Result<(), TraceError>;

    /// Writes an event. Returns whether the format can hold it.
    fn event(&mut self, event: &Event) -> Result<bool, TraceError>;

    /// The losses that any stream has in this format, a sentence each.
    fn losses(&self) -> Vec<String>;

    /// Writes the rest, and returns the output.
    fn finish(self: Box<Self>) -> Result<Output, TraceError>;
}
