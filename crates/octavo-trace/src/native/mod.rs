//! The native trace format: ring words in chunks, each predicted, compressed and checked on its
//! own. docs/trace-format.md describes it for authors of other readers.

mod bytes;
mod chunks;
pub mod codec;
mod frame;
mod index;
mod manifest;
mod overview;
mod reader;
mod writer;

pub use index::{Index, IndexEntry};
pub use manifest::{Manifest, StreamTotals};
pub use overview::{Overview, StreamOverview};
pub use reader::NativeSource;
pub use writer::{CHUNK_WORDS, NativeFile, NativeSink, StreamWriter};
