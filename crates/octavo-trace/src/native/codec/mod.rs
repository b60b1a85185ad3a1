//! The body of a chunk of the native trace format: compressed ring words.
//!
//! A stream of ring words (executions: a segment's number and the addresses of its address groups;
//! records: a header with bit 63 set and its payload) is cut into chunks of whole items, a million
//! words or so each. A chunk is decoded from its own bytes alone: no predictor, and not even a
//! definition, is carried over from the chunks before. (To give the words a *meaning* takes the
//! definitions, which are records like others: [`ChunkDecoder::skip`] reads the records and nothing
//! else.) Decoding returns exactly the encoded words, records at their places.
//!
//! # Layout
//!
//! All numbers are little endian. A body has two parts, so that records can be had without the
//! rest: the first is a header of 76 bytes and the section of the records, the second the other
//! nine sections, one after the other. Nothing lies between or behind them.
//!
//! | at | bytes | |
//! | ---: | ---: | --- |
//! | 0 | 8 | instructions that the executions make |
//! | 8 | 8 | references that they make: fetches, loads and stores, a modify being two; a guarded item at NULL is none |
//! | 16 | 4 | *E*, executions |
//! | 20 | 4 | *A*, the addresses of their address groups |
//! | 24 | 4 | *R*, records |
//! | 28 | 4 | *W*, words of the records, headers included |
//! | 32 | 4 | *S*, segments that execute in the chunk |
//! | 36 | 10 × 4 | the stored bytes of each section |
//!
//! *E* + *A* + *W*, the words of the chunk, is at most [`MAX_CHUNK_WORDS`].
//!
//! Each section is one zstd frame, or no bytes at all where its content is empty. How long the
//! content is follows from the header, and for the deltas from the symbols:
//!
//! | | section | content |
//! | ---: | --- | --- |
//! | 0 | records | their *W* words, as they are |
//! | 1 | gaps | *R* numbers of 4 bytes: for each record, how many executions lie between it and the record before (or the chunk's beginning) |
//! | 2 | numbers | *S* numbers of 4 bytes: the segments that execute, in the order of their first execution |
//! | 3 | counts | *S* numbers of 4 bytes: how many address groups each has; all together at most *A* |
//! | 4 | sequence | *E* numbers: for each execution, which of the *S* it is, counted from 0. They have 1 byte if *S* ≤ 2⁸, else 2 if *S* ≤ 2¹⁶, else 4 |
//! | 5 | symbols | *A* bytes: for each address in order, its base and its delta's width, see below |
//! | 6 | deltas of 1 byte | for each symbol of class 1, in order |
//! | 7 | deltas of 2 bytes | for each symbol of class 2 |
//! | 8 | deltas of 4 bytes | for each symbol of class 3, *by planes*: the lowest bytes of all of them, then the second bytes of all, and so on |
//! | 9 | deltas of 8 bytes | for each symbol of class 4, by planes too |
//!
//! A segment that is redefined in a chunk after it has executed there counts as two: the old and
//! the new have a place each among the *S*, with the same number.
//!
//! # Addresses
//!
//! An address is a *base* plus a *delta*, modulo 2⁶⁴. Its symbol is base + 4 × class, below 20:
//!
//! | base | is | | class | the delta is |
//! | ---: | --- | --- | ---: | --- |
//! | 0 | 0 | | 0 | 0 |
//! | 1 | the last address of this *site* | | 1 | 1 byte |
//! | 2 | the address before this one | | 2 | 2 bytes |
//! | 3 | the address before that | | 3 | 4 bytes |
//! | | | | 4 | 8 bytes |
//!
//! Deltas are in two's complement and sign-extended. A site is an address group of one of the *S*
//! segments. "Before" is meant in the chunk, whatever segments the addresses belong to. An address
//! of symbol 0 (a NULL: mostly a guarded item that did not execute) is passed over: it is not a
//! site's last address and comes before none. All bases are 0 where a chunk begins.
//!
//! The writer chooses freely. Ours writes NULL as symbol 0, and any other address with the smallest
//! symbol that can express it from base 1, 2 or 3.
//!
//! # Rationale
//!
//! Regular patterns of a program (a loop walks an array, a function's frame lies where the last one
//! lay) give regular symbols and deltas, which zstd compresses by itself: predictors of strides, of
//! frames that move as a whole and of successors of segments were tried, and made chunks smaller by
//! a tenth at best and at times larger. Random addresses have wide deltas; stored by planes, the
//! bits in which they agree cost next to nothing. A symbol encodes base and width together, so that
//! an address is decoded without a branch that could be mispredicted.

mod addresses;
mod by_class;
mod decode;
mod encode;
mod layout;
#[cfg(test)]
mod tests;
mod unpack;

pub use decode::ChunkDecoder;
pub use encode::{ChunkEncoder, Compressor, Sections, Sorter};

/// The most words that a chunk holds: 32 MiB of them. It bounds what a reader ever allocates.
pub const MAX_CHUNK_WORDS: usize = 1 << 22;

/// The contents of a chunk.
///
/// A decoder has checked executions, records and words against the content, and has taken
/// instructions and references from the header as the writer put them there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChunkSummary {
    /// Executions of segments.
    pub executions: u32,
    /// Records.
    pub records: u32,
    /// Ring words, of executions and records together.
    pub words: u32,
    /// Instructions executed.
    pub instructions: u64,
    /// Fetches, loads and stores; a modify is two, a guarded item at NULL none.
    pub references: u64,
}

/// Words that cannot be a chunk, or bytes that are none.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// More words than a chunk may have.
    #[error("{0} words are more than a chunk holds, which is {MAX_CHUNK_WORDS}")]
    TooManyWords(u64),
    /// To encode: an execution or a record goes on behind the last word.
    #[error("the words end in the middle of an item")]
    TornItem,
    /// To encode: a segment executes that was never defined.
    #[error("segment {0} executes but was never defined")]
    Undefined(u64),
    /// To encode: a definition whose items do not fit into it, or whose number is not due.
    #[error("the definition of segment {0} is not well formed")]
    Definition(u64),
    /// A part of the chunk is shorter or longer than what should be in it.
    #[error("a part of the chunk has {got} bytes where its header states {expected}")]
    Length {
        /// The length by the header, or the header's own length.
        expected: u64,
        /// The actual length.
        got: u64,
    },
    /// A section that zstd does not decompress.
    #[error("the chunk's {section} cannot be decompressed: {source}")]
    Zstd {
        /// The section.
        section: &'static str,
        /// The error of zstd.
        source: std::io::Error,
    },
    /// A section of another length than follows from the rest.
    #[error("the chunk's {section} decompress to {got} bytes where {expected} are due")]
    SectionLength {
        /// The section.
        section: &'static str,
        /// The number that follows from the header or the symbols.
        expected: usize,
        /// The actual number.
        got: usize,
    },
    /// The records' headers do not add up.
    #[error("the chunk's records are not the {expected} in {words} words that its header states")]
    Records {
        /// The number of records by the header.
        expected: u32,
        /// In how many words.
        words: u32,
    },
    /// A record's place lies behind the last execution.
    #[error("the chunk's records lie behind its last execution")]
    Gaps,
    /// More segments are listed than can have executed.
    #[error("the chunk lists {listed} segments for {executions} executions")]
    Segments {
        /// Segments.
        listed: u32,
        /// Executions.
        executions: u32,
    },
    /// An execution of a segment that the chunk does not list.
    #[error("execution {0} of the chunk is of a segment that it does not list")]
    Sequence(usize),
    /// The executions do not use up the addresses.
    #[error("the chunk's executions have {expected} address groups, not its {got} addresses")]
    Addresses {
        /// The sum of the segments' counts.
        expected: u64,
        /// The number by the header.
        got: u32,
    },
    /// A symbol without meaning.
    #[error("{0} is not a symbol for an address")]
    Symbol(u8),
}
