//! Where a reference stream goes: a trace file, in whatever format.

mod output;
mod plain;

pub use output::Output;
pub use plain::PlainSink;

use octavo_types::{Event, Segment, VirtAddr};

use crate::native::Manifest;
use crate::source::TraceError;
use crate::stream::{StreamEnd, StreamIdentity};

/// A trace that is being written. Words are ring words, whole items only, as a
/// [`crate::source::Source`] gives them.
pub trait Sink: Send {
    /// A stream begins.
    fn begin(&mut self, identity: &StreamIdentity) -> Result<(), TraceError>;

    /// More words of a stream.
    fn words(&mut self, stream: u32, words: &[u64]) -> Result<(), TraceError>;

    /// A stream ends.
    fn end(&mut self, stream: u32, end: &StreamEnd) -> Result<(), TraceError>;

    /// Says what the trace is, where the format has a place for that.
    fn add_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceError> {
        let _ = manifest;
        Ok(())
    }

    /// The trace is complete: only now does it stand under its name.
    fn finish(self: Box<Self>) -> Result<Written, TraceError>;
}

/// What was written, and what the format could not hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Bytes of the file, as stored.
    pub bytes: u64,
    /// Fetches, loads and stores.
    pub references: u64,
    /// Instructions.
    pub instructions: u64,
    /// What was left out, a sentence each.
    pub losses: Vec<String>,
}

/// A format that holds the references of one stream.
pub trait ReferenceWriter: Send {
    /// One execution, as [`octavo_types::Consumer::segment`] has it.
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) -> Result<(), TraceError>;

    /// An event. Says whether the format could hold it.
    fn event(&mut self, event: &Event) -> Result<bool, TraceError>;

    /// What the format cannot hold whatever the stream, a sentence each.
    fn losses(&self) -> Vec<String>;

    /// Writes what is still to be written, and gives the output back.
    fn finish(self: Box<Self>) -> Result<Output, TraceError>;
}
