//! The index of a native trace: the positions of its frames, so that a reader can find an
//! instruction.

use super::frame::{FrameHeader, FrameKind};

/// The last eight bytes of a whole trace.
const TRAILER_MAGIC: [u8; 8] = *b"OCTAVOIX";
/// The trailer: where the index frame begins, and the magic.
pub const TRAILER_BYTES: usize = 16;

/// One frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IndexEntry {
    /// Where it begins in the file.
    pub position: u64,
    /// The frame's kind.
    pub kind: FrameKind,
    /// The stream.
    pub stream: u32,
    /// As in its header.
    pub first_instruction: u64,
    /// As in its header.
    pub instructions: u64,
    /// As in its header.
    pub references: u64,
}

impl IndexEntry {
    /// The frame at `position` with this header.
    pub fn of(position: u64, header: &FrameHeader) -> Self {
        IndexEntry {
            position,
            kind: header.kind,
            stream: header.stream,
            first_instruction: header.first_instruction,
            instructions: header.instructions,
            references: header.references,
        }
    }
}

const ENTRY_BYTES: usize = 40;

/// All frames before the index, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// One entry a frame.
    pub entries: Vec<IndexEntry>,
}

impl Index {
    /// Adds the next frame.
    pub fn add(&mut self, entry: IndexEntry) {
        self.entries.push(entry);
    }

    /// The body of the index frame.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ENTRY_BYTES * self.entries.len());
        for entry in &self.entries {
            bytes.extend(entry.position.to_le_bytes());
            bytes.extend(entry.kind.number().to_le_bytes());
            bytes.extend(entry.stream.to_le_bytes());
            bytes.extend(entry.first_instruction.to_le_bytes());
            bytes.extend(entry.instructions.to_le_bytes());
            bytes.extend(entry.references.to_le_bytes());
        }
        bytes
    }

    /// Reads the body of an index frame; `None` if it is not an index.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        if !bytes.len().is_multiple_of(ENTRY_BYTES) {
            return None;
        }
        let entry = |bytes: &[u8]| {
            let count =
                |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight"));
            let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four"));
            Some(IndexEntry {
                position: count(0),
                kind: FrameKind::from_number(word(8))?,
                stream: word(12),
                first_instruction: count(16),
                instructions: count(24),
                references: count(32),
            })
        };
        let entries = bytes.chunks_exact(ENTRY_BYTES).map(entry).collect::<Option<_>>()?;
        Some(Index { entries })
    }

    /// The trailer after the index frame, which begins at `position`.
    pub fn trailer(position: u64) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[..8].copy_from_slice(&position.to_le_bytes());
        bytes[8..].copy_from_slice(&TRAILER_MAGIC);
        bytes
    }

    /// Where the index frame begins, by the last bytes of a file; `None` if they are not a trailer.
    pub fn position_from_trailer(bytes: [u8; TRAILER_BYTES]) -> Option<u64> {
        let (position, magic) = bytes.split_first_chunk::<8>().expect("it is longer");
        (magic == TRAILER_MAGIC).then(|| u64::from_le_bytes(*position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_comes_back_as_it_was() {
        let entry = |position| IndexEntry {
            position,
            kind: FrameKind::Chunk,
            stream: 3,
            first_instruction: 1 << 50,
            instructions: 7,
            references: 11,
        };
        let index = Index { entries: vec![entry(16), entry(1 << 45)] };
        let bytes = index.to_bytes();
        assert_eq!(Index::from_bytes(&bytes), Some(index));
        assert_eq!(Index::from_bytes(&bytes[1..]), None);
        assert_eq!(Index::position_from_trailer(Index::trailer(99)), Some(99));
        assert_eq!(Index::position_from_trailer([7; TRAILER_BYTES]), None);
    }
}
