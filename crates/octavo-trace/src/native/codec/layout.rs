//! The numbers of a chunk's body: its header, its sections, its symbols.

use super::{ChunkSummary, CodecError, MAX_CHUNK_WORDS};
pub use crate::ring::format::kind::DEFINE;
pub use crate::ring::format::{RECORD, record_kind, record_words};

pub const HEADER_BYTES: usize = 36 + 4 * SECTIONS;
pub const SECTIONS: usize = 10;

/// The sections' numbers.
pub mod section {
    pub const RECORDS: usize = 0;
    pub const GAPS: usize = 1;
    pub const NUMBERS: usize = 2;
    pub const COUNTS: usize = 3;
    pub const SEQUENCE: usize = 4;
    pub const SYMBOLS: usize = 5;
    /// The first of the four sections of deltas, which lie in the order of their classes.
    pub const DELTAS: usize = 6;
}

/// Names of the sections, in errors.
pub const SECTION_NAMES: [&str; SECTIONS] = [
    "records",
    "gaps",
    "segment numbers",
    "item counts",
    "executions",
    "symbols",
    "deltas of 1 byte",
    "deltas of 2 bytes",
    "deltas of 4 bytes",
    "deltas of 8 bytes",
];

/// The bases' numbers, the low two bits of a symbol.
pub mod base {
    pub const ZERO: u8 = 0;
    pub const SITE: u8 = 1;
    pub const PREVIOUS: u8 = 2;
    pub const BEFORE_PREVIOUS: u8 = 3;
}

/// The symbol of a NULL.
pub const NULL: u8 = base::ZERO;
/// All symbols are below this number.
pub const SYMBOLS: u8 = 4 * CLASS_BYTES.len() as u8;
/// How wide a delta of each class is.
pub const CLASS_BYTES: [usize; 5] = [0, 1, 2, 4, 8];
/// Deltas of at least this width are stored by planes.
pub const PLANES_FROM_BYTES: usize = 4;

/// How many bytes each number of the sequence has.
pub fn sequence_bytes(segments: usize) -> usize {
    match segments {
        0..=0x100 => 1,
        0x101..=0x1_0000 => 2,
        _ => 4,
    }
}

/// The header of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Header {
    pub instructions: u64,
    pub references: u64,
    pub executions: u32,
    pub addresses: u32,
    pub records: u32,
    pub record_words: u32,
    pub segments: u32,
    pub stored_bytes: [u32; SECTIONS],
}

impl Header {
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0..8].copy_from_slice(&self.instructions.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.references.to_le_bytes());
        let small =
            [self.executions, self.addresses, self.records, self.record_words, self.segments];
        let small = small.iter().chain(&self.stored_bytes);
        for (place, number) in bytes[16..].chunks_exact_mut(4).zip(small) {
            place.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Reads the part of a body that holds the records: its header and their section. The header
    /// that it returns is within the limits of a chunk.
    pub fn read(part: &[u8]) -> Result<(Header, &[u8]), CodecError> {
        let got = part.len() as u64;
        let Some((head, records)) = part.split_at_checked(HEADER_BYTES) else {
            return Err(CodecError::Length { expected: HEADER_BYTES as u64, got });
        };
        let small = |index: usize| {
            let at = 16 + 4 * index;
            u32::from_le_bytes(head[at..at + 4].try_into().expect("four bytes"))
        };
        let large =
            |at: usize| u64::from_le_bytes(head[at..at + 8].try_into().expect("eight bytes"));
        let header = Header {
            instructions: large(0),
            references: large(8),
            executions: small(0),
            addresses: small(1),
            records: small(2),
            record_words: small(3),
            segments: small(4),
            stored_bytes: std::array::from_fn(|index| small(5 + index)),
        };
        let expected = HEADER_BYTES as u64 + u64::from(header.stored_bytes[section::RECORDS]);
        if expected != got {
            return Err(CodecError::Length { expected, got });
        }
        let words = [header.executions, header.addresses, header.record_words];
        let words = words.iter().map(|words| u64::from(*words)).sum();
        if words > MAX_CHUNK_WORDS as u64 {
            return Err(CodecError::TooManyWords(words));
        }
        if header.records > header.record_words {
            return Err(header.records_error());
        }
        if header.segments > header.executions {
            let (listed, executions) = (header.segments, header.executions);
            return Err(CodecError::Segments { listed, executions });
        }
        Ok((header, records))
    }

    /// Splits the other part of the body into its sections; that of the records is empty.
    pub fn sections<'p>(&self, part: &'p [u8]) -> Result<[&'p [u8]; SECTIONS], CodecError> {
        let stored_bytes = &self.stored_bytes[section::RECORDS + 1..];
        let expected = stored_bytes.iter().map(|bytes| u64::from(*bytes)).sum::<u64>();
        if expected != part.len() as u64 {
            return Err(CodecError::Length { expected, got: part.len() as u64 });
        }
        let mut sections = [&[][..]; SECTIONS];
        let mut rest = part;
        for (section, bytes) in sections[section::RECORDS + 1..].iter_mut().zip(stored_bytes) {
            (*section, rest) = rest.split_at(*bytes as usize);
        }
        Ok(sections)
    }

    pub fn summary(&self) -> ChunkSummary {
        ChunkSummary {
            executions: self.executions,
            records: self.records,
            words: self.executions + self.addresses + self.record_words,
            instructions: self.instructions,
            references: self.references,
        }
    }

    pub fn records_error(&self) -> CodecError {
        CodecError::Records { expected: self.records, words: self.record_words }
    }
}

/// Values of `width` bytes, put by planes: the first bytes of all, the second bytes of all, …
pub fn to_planes(values: &[u8], width: usize, planes: &mut Vec<u8>) {
    planes.clear();
    for byte in 0..width {
        planes.extend(values.chunks_exact(width).map(|value| value[byte]));
    }
}

/// The reverse of [`to_planes`]; both have the same length.
pub fn from_planes<const WIDTH: usize>(planes: &[u8], values: &mut [u8]) {
    let count = values.len() / WIDTH;
    if count == 0 {
        return;
    }
    let planes: [&[u8]; WIDTH] = std::array::from_fn(|byte| &planes[byte * count..][..count]);
    for (index, value) in values.chunks_exact_mut(WIDTH).enumerate() {
        for (byte, plane) in value.iter_mut().zip(&planes) {
            *byte = plane[index];
        }
    }
}
