//! Frames, the parts of a native trace file. docs/trace-format.md describes them.
//!
//! Every frame is a header and a body of two parts, each part with a checksum of its own: of a
//! chunk, the records can be read and checked without its executions.

use twox_hash::XxHash3_64;

/// The first bytes of a native trace: text transfers and cut files spoil them.
pub const MAGIC: [u8; 8] = *b"OCTAVO\r\n";
/// The version of the format that is written. Every version since 1 is read: 2 has no late values,
/// 1 no address groups of several items either.
pub const VERSION: u32 = 3;
/// The magic and the version, and four bytes that are zero.
pub const FILE_HEADER_BYTES: usize = 16;
/// The size of a frame's header.
pub const FRAME_HEADER_BYTES: usize = 64;
/// The first bytes of each frame.
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"OFR\n");
/// The most bytes that one part of a body may have.
pub const MAX_PART_BYTES: u32 = 1 << 28;

/// The kind of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FrameKind {
    /// The description of the trace and its origin: JSON.
    Manifest,
    /// A stream begins: JSON.
    Began,
    /// Records and executions of a stream.
    Chunk,
    /// A stream ends: JSON.
    Ended,
    /// The positions of the frames before it.
    Index,
}

impl FrameKind {
    const ALL: [FrameKind; 5] = [
        FrameKind::Manifest,
        FrameKind::Began,
        FrameKind::Chunk,
        FrameKind::Ended,
        FrameKind::Index,
    ];

    /// Its number in the file.
    pub fn number(self) -> u32 {
        Self::ALL.iter().position(|kind| *kind == self).expect("it is in the list") as u32 + 1
    }

    /// The kind of a number.
    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get((number as usize).checked_sub(1)?).copied()
    }
}

/// The header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FrameHeader {
    /// Its kind.
    pub kind: FrameKind,
    /// The stream, for frames that belong to one.
    pub stream: u32,
    /// The length of each part of the body.
    pub part_bytes: [u32; 2],
    /// The instructions that the stream has executed before a chunk.
    pub first_instruction: u64,
    /// The instructions of a chunk.
    pub instructions: u64,
    /// The fetches, loads and stores of a chunk.
    pub references: u64,
    /// The xxh3-64 of each part of the body.
    checksums: [u64; 2],
}

/// Errors of a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// It does not begin as one.
    #[error("no frame begins here")]
    Magic,
    /// Its checksum does not fit.
    #[error("the frame's header is damaged")]
    Damaged,
    /// Its kind is none of ours.
    #[error("a frame of kind {0} is not known to this version")]
    Kind(u32),
    /// Its body is too long.
    #[error("the frame's body says it is {0} bytes long, and {MAX_PART_BYTES} is the most")]
    TooLong(u32),
    /// The body's checksum does not fit.
    #[error("the frame's body is damaged (its checksum does not fit)")]
    Body,
}

impl FrameHeader {
    /// A header for a body of two parts; of a chunk, the counts are to be filled in before it is
    /// written.
    pub fn new(kind: FrameKind, stream: u32, parts: [&[u8]; 2]) -> Self {
        FrameHeader {
            kind,
            stream,
            part_bytes: parts.map(|part| u32::try_from(part.len()).expect("bodies are bounded")),
            first_instruction: 0,
            instructions: 0,
            references: 0,
            checksums: parts.map(XxHash3_64::oneshot),
        }
    }

    /// How long the whole frame is.
    pub fn frame_bytes(&self) -> u64 {
        FRAME_HEADER_BYTES as u64
            + self.part_bytes.iter().map(|bytes| u64::from(*bytes)).sum::<u64>()
    }

    /// As it stands in the file.
    pub fn to_bytes(self) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        bytes[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
        let words = [self.kind.number(), self.stream, self.part_bytes[0], self.part_bytes[1]];
        // The checksum of the header stands at 20; of what follows, at 24.
        for (at, word) in [4, 8, 12, 16].into_iter().zip(words) {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        let counts = [
            self.first_instruction,
            self.instructions,
            self.references,
            self.checksums[0],
            self.checksums[1],
        ];
        for (at, count) in (24..).step_by(8).zip(counts) {
            bytes[at..at + 8].copy_from_slice(&count.to_le_bytes());
        }
        let checksum = XxHash3_64::oneshot(&bytes) as u32;
        bytes[20..24].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header.
    pub fn from_bytes(bytes: &[u8; FRAME_HEADER_BYTES]) -> Result<Self, FrameError> {
        let word =
            |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let count = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
        if word(0) != FRAME_MAGIC {
            return Err(FrameError::Magic);
        }
        let mut plain = *bytes;
        plain[20..24].fill(0);
        if XxHash3_64::oneshot(&plain) as u32 != word(20) {
            return Err(FrameError::Damaged);
        }
        let header = FrameHeader {
            kind: FrameKind::from_number(word(4)).ok_or(FrameError::Kind(word(4)))?,
            stream: word(8),
            part_bytes: [word(12), word(16)],
            first_instruction: count(24),
            instructions: count(32),
            references: count(40),
            checksums: [count(48), count(56)],
        };
        match header.part_bytes.iter().find(|bytes| **bytes > MAX_PART_BYTES) {
            Some(bytes) => Err(FrameError::TooLong(*bytes)),
            None => Ok(header),
        }
    }

    /// Whether `part` is the first (0) or second (1) part of the body, unharmed.
    pub fn check(&self, which: usize, part: &[u8]) -> Result<(), FrameError> {
        if XxHash3_64::oneshot(part) == self.checksums[which] {
            Ok(())
        } else {
            Err(FrameError::Body)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn header() -> FrameHeader {
        let mut header = FrameHeader::new(FrameKind::Chunk, 7, [b"records", b"executions"]);
        (header.first_instruction, header.instructions, header.references) = (1 << 40, 99, 200);
        header
    }

    #[test]
    fn a_header_comes_back_as_it_was() {
        assert_eq!(FrameHeader::from_bytes(&header().to_bytes()), Ok(header()));
        assert_eq!(header().frame_bytes(), 64 + 7 + 10);
        assert_eq!(header().check(0, b"records"), Ok(()));
        assert_eq!(header().check(1, b"executionz"), Err(FrameError::Body));
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn every_flipped_bit_is_found(bit in 0usize..8 * FRAME_HEADER_BYTES) {
            let mut bytes = header().to_bytes();
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(FrameHeader::from_bytes(&bytes).is_err());
        }
    }
}
