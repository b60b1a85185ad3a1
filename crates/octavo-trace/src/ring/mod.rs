//! The consumer's side of the tracer's ring (`tracer/ring.h`).

mod decode;
mod encode;
mod error;
#[cfg(test)]
mod folding_tests;
pub(crate) mod format;
mod record;
mod session;
mod slot;

pub use decode::{Decoder, FoldedReferences, SegmentRoom, Segments, StreamConsumer, WordConsumer};
pub use encode::{Encoder, WordWriter};
pub use error::DecodeError;
pub use format::THREADS as MOST_NAMED_THREADS;
pub use record::Start;
pub(crate) use record::read_start;
pub use session::{Session, SessionError};
pub use slot::{MOST_BATCHES, Seccomp, Slot};
