//! Sources of reference streams without a running program: trace files of all formats, and
//! synthetic traces.
//!
//! A source gives *batches* of ring words ([`crate::ring`] describes them): executions of segments
//! and records, whole items only, each batch of one stream. So the consumers are the same for every
//! format, at one virtual call per batch.

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
pub use error::{Place, STANDARD_OUTPUT, TraceError};
pub(crate) use input::Counted;
pub use input::{Input, InputOptions};

use serde_json::Value;

use crate::native::Manifest;
use crate::ring::DecodeError;
use crate::stream::{StreamEnd, StreamIdentity};

/// The approximate size of a batch in words: it fits in a second-level cache.
pub const BATCH_WORDS: usize = 32 * 1024;

/// A step of a source.
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
    /// Whether the place of each execution is wanted: only the checker sets this, since it costs
    /// time. The same for all batches of a source.
    pub wants_places: bool,
}

impl Batch {
    /// Makes it empty, to be filled again.
    pub fn clear(&mut self) {
        self.words.clear();
        self.places.clear();
    }
}

/// The facts on a trace, as far as its format holds them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The format's name, as `--format` takes it.
    pub format: &'static str,
    /// Every reference of the program is there.
    pub exact: bool,
    /// The references are samples far apart, whose order is not the program's: exact counts are
    /// refused for them.
    pub samples: bool,
    /// Instruction fetches are there, so that instructions can be counted.
    pub has_instructions: bool,
    /// Sizes of data references are there; else each is taken to be [`ASSUMED_BYTES`] long.
    pub has_sizes: bool,
    /// Addresses are physical.
    pub physical: bool,
    /// Further notes for the user, a sentence each.
    pub notes: Vec<String>,
    /// The sample that it was shrunk to, with the sampling error; complete at its end.
    pub sample: Option<Value>,
}

impl Facts {
    /// Facts on a trace whose format holds every reference, with instructions and sizes.
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

/// The size assumed for a data reference if the format has none: one byte, so that each is looked
/// up once. A longer one would span pages now and then without evidence.
pub const ASSUMED_BYTES: u16 = 1;

/// How much of a source was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the stored trace, or references of a synthetic one.
    pub done: u64,
    /// The total; `None` if unknown (a pipe).
    pub total: Option<u64>,
}

/// A trace that can be read at each of its streams.
pub struct Streams {
    /// All of them.
    pub streams: Vec<StreamSource>,
    /// All facts on the trace.
    pub facts: Facts,
    /// Its description, the last one if there are several.
    pub manifest: Option<Manifest>,
    /// An error behind the last stream's end.
    pub fault: Option<TraceError>,
}

/// One stream of a trace, not opened yet.
pub struct StreamSource {
    /// Its identity.
    pub identity: StreamIdentity,
    /// Its size in the trace.
    pub bytes: u64,
    /// Opens it: a source of this stream alone.
    pub open: Box<dyn FnOnce() -> Result<Box<dyn Source>, TraceError> + Send>,
}

/// A trace that is being read.
///
/// Hostile bytes may make it fail, never panic, hang, or hold more memory than the limits that its
/// format states.
pub trait Source: Send {
    /// The facts on the trace. Complete only when it has been read to its end.
    fn facts(&self) -> Facts;

    /// Clears `batch` and fills it with the next words; `None` at the end of the trace. All batches
    /// before an error are complete.
    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError>;

    /// The trace's description, if its format has one. Complete only when it
    /// has been read to its end.
    fn manifest(&self) -> Option<Manifest> {
        None
    }

    /// Its progress.
    fn progress(&self) -> Progress;

    /// Where the last batch came from.
    fn place(&self) -> Place;

    /// The trace's name, in messages. A source that generates its words needs none: it has no
    /// errors.
    fn name(&self) -> &str {
        "the trace"
    }

    /// Why the last batch cannot be used.
    fn undecodable(&self, error: &DecodeError) -> TraceError {
        TraceError::at(self.name(), self.place(), error.to_string())
    }

    /// The streams of the trace, each of which can be opened separately; `None` if they can only be
    /// read in the order of the trace.
    fn streams(&self) -> Result<Option<Streams>, TraceError> {
        Ok(None)
    }

    /// A hint that the executions of the first `instructions` instructions are not needed: a source
    /// that can skip them quickly may do so, in part or wholly. All records come nevertheless. With
    /// `u64::MAX` no execution is needed.
    fn skip_instructions(&mut self, instructions: u64) {
        let _ = instructions;
    }

    /// How many instructions were left out so far.
    fn skipped_instructions(&self) -> u64 {
        0
    }
}
