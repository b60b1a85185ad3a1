//! Errors of the decoder of words.

use octavo_types::{SegmentError, VirtAddr};

/// How many items the segments of streams that are read together may have, a segment itself
/// counting as six: some two gigabytes of memory. The largest programs stay below a
/// twentieth of it.
pub(super) const MAX_ITEMS: usize = 1 << 25;

/// Words that no tracer of ours writes.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A segment executes that was never defined.
    #[error("segment {0} executes but was never defined")]
    Undefined(u64),
    /// An execution or a record ends outside its chunk.
    #[error("a chunk ends in the middle of an item")]
    Torn,
    /// A definition is out of order.
    #[error("segment {got} is defined where {expected} is the next new one")]
    DefinitionOrder {
        /// The next new number.
        expected: usize,
        /// The number that came.
        got: u64,
    },
    /// A definition is not a segment.
    #[error("segment {id} is not well formed: {source}")]
    Segment {
        /// Its number.
        id: u64,
        /// The error of the definition.
        source: SegmentError,
    },
    /// Addresses would be moved from or to a range that no processor's address space has.
    #[error("addresses from {0} on are moved by {1:#x} bytes, out of the address space")]
    Relocation(VirtAddr, u64),
    /// The definitions exceed the memory for segments.
    #[error("the segments have more than {MAX_ITEMS} items together")]
    TooManyItems,
    /// A record is too short or its kind unknown.
    #[error("a record of kind {kind} with {words} payload words is not known")]
    Record {
        /// Its kind.
        kind: u8,
        /// Its length.
        words: usize,
    },
}
