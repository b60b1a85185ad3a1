//! Where a reference stream comes from when no program runs: a trace file, in whatever format, or
//! a synthetic one.
//!
//! A source gives *batches* of ring words ([`crate::ring`] describes them): executions of segments
//! and records, whole items only, each batch of one stream. So all that follows is the same for
//! every format, and costs one virtual call a batch.

mod ahead;
mod blocks;
#[cfg(test)]
mod blocks_tests;
mod error;
mod expand;
mod input;
#[cfg(test)]
mod input_tests;

pub(crate) use blocks::{Blocks, MAX_REST_BYTES};
pub(crate) use expand::Compression;
pub(crate) use input::Meter;

pub use ahead::ReadAhead;
pub use error::{Place, TraceError};
pub use input::{Input, InputOptions};

use serde_json::Value;

use crate::native::Manifest;
use crate::ring::DecodeError;
use crate::stream::{StreamEnd, StreamIdentity};

/// About how many words a batch holds: small enough for the second-level cache.
pub const BATCH_WORDS: usize = 32 * 1024;

/// What a source has given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A stream begins: a process image. It comes before any batch of that stream.
    Began(StreamIdentity),
    /// The batch holds words of this stream.
    Batch(u32),
    /// A stream ends: nothing more of it comes.
    Ended(u32, StreamEnd),
}

/// Words of one stream, and where in the trace they stand.
#[derive(Debug, Default)]
pub struct Batch {
    /// Ring words, whole items only.
    pub words: Vec<u64>,
    /// Where each execution in `words` begins in the trace, if [`Batch::wants_places`]; a source
    /// may leave it empty, and then [`Source::place`] says where the whole batch came from.
    pub places: Vec<Place>,
    /// Whether somebody will ask where things stand: only the checker does, since it costs time.
    /// The same for all batches of a source.
    pub wants_places: bool,
}

impl Batch {
    /// Makes it empty, to be filled anew.
    pub fn clear(&mut self) {
        self.words.clear();
        self.places.clear();
    }
}

/// What a trace is, so far as its format tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The format's name, as `--format` takes it.
    pub format: &'static str,
    /// Every reference of the program is there.
    pub exact: bool,
    /// The references are samples far apart, which follow each other by no order of the program's:
    /// exact counts are refused for them.
    pub samples: bool,
    /// Instruction fetches are there, so that instructions can be counted.
    pub has_instructions: bool,
    /// Sizes of data references are there; else each is taken to be [`ASSUMED_BYTES`] long.
    pub has_sizes: bool,
    /// Addresses are physical.
    pub physical: bool,
    /// What else a user of the trace should know, a sentence each.
    pub notes: Vec<String>,
    /// How it was shrunk to a sample, and what error that brings; complete at its end.
    pub sample: Option<Value>,
}

impl Facts {
    /// Of a format that holds every reference, with instructions and sizes.
    pub fn of(format: &'static str) -> Self {
        Facts {
            format,
            exact: true,
            samples: false,
            has_instructions: true,
            has_sizes: true,
            physical: false,
            notes: Vec::new(),
            sample: None,
        }
    }
}

/// The size of a data reference where the format has none: one byte, so that each is looked up
/// once. A longer one would span pages here and there, which nobody knows.
pub const ASSUMED_BYTES: u16 = 1;

/// How far a source has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Of the trace as stored, or references of a synthetic one.
    pub done: u64,
    /// Out of how many; none where nobody knows (a pipe).
    pub total: Option<u64>,
}

/// A trace that can be read at each of its streams.
pub struct Streams {
    /// All of them.
    pub streams: Vec<StreamSource>,
    /// What is known of the trace, all of it.
    pub facts: Facts,
    /// What it says of itself, as last said.
    pub manifest: Option<Manifest>,
    /// What is wrong with it behind all that the streams hold.
    pub fault: Option<TraceError>,
}

/// One stream of a trace, not opened yet.
pub struct StreamSource {
    /// Who it is.
    pub identity: StreamIdentity,
    /// How many bytes of the trace it has.
    pub bytes: u64,
    /// Opens it: a source of this stream alone.
    pub open: Box<dyn FnOnce() -> Result<Box<dyn Source>, TraceError> + Send>,
}

/// A trace that is being read.
///
/// Hostile bytes may make it fail, never panic, hang, or hold more memory than the limits that its
/// format states.
pub trait Source: Send {
    /// What is known of the trace. Complete only when it has been read to its end.
    fn facts(&self) -> Facts;

    /// Fills `batch` anew with what comes next; none at the end of the trace. What came before an
    /// error is whole.
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError>;

    /// What the trace says of itself, where its format has a place for that. Complete only when it
    /// has been read to its end.
    fn manifest(&self) -> Option<Manifest> {
        None
    }

    /// How far it is.
    fn progress(&self) -> Progress;

    /// Where the last batch came from.
    fn place(&self) -> Place;

    /// What the trace is called. A source that makes its words itself need not say it: nobody
    /// will find them wrong.
    fn name(&self) -> &str {
        "the trace"
    }

    /// Why the last batch cannot be used.
    fn undecodable(&self, error: &DecodeError) -> TraceError {
        TraceError::at(self.name(), self.place(), error.to_string())
    }

    /// The streams of the trace, each to be read on its own; none where they can only be had as
    /// they come.
    fn streams(&self) -> Result<Option<Streams>, TraceError> {
        Ok(None)
    }

    /// A hint that nobody asks for the executions of the first so many instructions: a source that
    /// can leave them out quickly may do so, in part or wholly. All records come all the same. With
    /// `u64::MAX` nobody asks for any execution.
    fn skip_instructions(&mut self, instructions: u64) {
        let _ = instructions;
    }

    /// How many instructions were left out so far.
    fn skipped_instructions(&self) -> u64 {
        0
    }
}
