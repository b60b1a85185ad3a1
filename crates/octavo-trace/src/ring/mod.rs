//! The consumer's side of the tracer's ring (`tracer/ring.h`).

mod decode;
mod encode;
pub(crate) mod format;
mod session;
mod slot;

pub use decode::{DecodeError, Decoder, SegmentRoom, Start, WordConsumer};
pub use encode::{Encoder, WordWriter};
pub use session::{Session, SessionError};
pub use slot::{Seccomp, Slot};
