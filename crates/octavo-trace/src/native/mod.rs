//! The native trace format: ring words in chunks, each predicted, compressed and checked on its
//! own. docs/trace-format.md describes it for those who write another reader.

mod bytes;
pub mod codec;
mod frame;
mod index;
mod manifest;
mod overview;
mod reader;
mod streams;
mod writer;

pub use index::{Index, IndexEntry};
pub use manifest::{Manifest, StreamTotals};
pub use overview::{Overview, StreamOverview};
pub use reader::NativeSource;
pub use writer::{NativeFile, NativeSink, StreamWriter};

/// Words as the bytes that they are in memory: little-endian on all machines that we run on.
fn as_bytes(words: &[u64]) -> &[u8] {
    // SAFETY: any bytes of a slice of words may be read as bytes.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 8 * words.len()) }
}
