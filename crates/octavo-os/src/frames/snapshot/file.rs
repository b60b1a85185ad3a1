//! The file of a snapshot.
//!
//! | bytes | what |
//! | --- | --- |
//! | 8 | `OCTMEM\r\n` |
//! | 4 | version: 1 |
//! | 4 | H: the header's length |
//! | 8 | F: the stored length of the frames; 0 if they are unknown |
//! | 8 | the decompressed length of the frames |
//! | H | the header: [`SnapshotHeader`] as JSON |
//! | F | a zstd frame of [`FrameRuns`] |
//! | 8 | XXH3 (64 bits) of everything before |
//!
//! Numbers are little-endian.

use std::io::Read;
use std::path::Path;

use octavo_types::open_regular;
use twox_hash::XxHash3_64;

use super::Snapshot;
use super::error::SnapshotError;
use super::header::SnapshotHeader;
use super::runs::FrameRuns;

/// The magic bytes: text-mode transfers damage them.
const MAGIC: [u8; 8] = *b"OCTMEM\r\n";
/// The version written and read.
pub const VERSION: u32 = 1;
const FIXED_BYTES: usize = 32;
const CHECKSUM_BYTES: usize = 8;
const MAX_HEADER_BYTES: u64 = 16 << 20;
/// zstd's default level: higher levels cost more time than they save space.
const ZSTD_LEVEL: i32 = 3;
/// 8 MiB; that level needs at most 2 MiB.
const MAX_WINDOW_LOG2: u32 = 23;

impl Snapshot {
    /// Maximum size of a snapshot file in bytes.
    pub const MAX_FILE_BYTES: u64 = 300 << 20;

    /// Encodes the snapshot as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let header = serde_json::to_vec(&self.about).expect("numbers and texts are JSON");
        let (frames, expanded) = match &self.runs {
            None => (Vec::new(), 0),
            Some(runs) => {
                let stored = zstd::bulk::compress(runs.bytes(), ZSTD_LEVEL);
                (stored.expect("zstd compresses any bytes"), runs.bytes().len())
            }
        };
        let mut bytes =
            Vec::with_capacity(FIXED_BYTES + header.len() + frames.len() + CHECKSUM_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend((header.len() as u32).to_le_bytes());
        bytes.extend((frames.len() as u64).to_le_bytes());
        bytes.extend((expanded as u64).to_le_bytes());
        bytes.extend(header);
        bytes.extend(frames);
        bytes.extend(XxHash3_64::oneshot(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a file of [`Snapshot::to_bytes`].
    ///
    /// # Errors
    ///
    /// Any bytes either decode or are rejected with a sentence; memory use is bounded by some hundred
    /// megabytes.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, SnapshotError> {
        if !bytes.starts_with(&MAGIC) {
            return Err(SnapshotError::NotASnapshot);
        }
        let has = bytes.len() as u64;
        let Some(fixed) = bytes.first_chunk::<FIXED_BYTES>() else {
            let should = (FIXED_BYTES + CHECKSUM_BYTES) as u64;
            return Err(SnapshotError::Length { has, should });
        };
        let version = u32_at(fixed, 8);
        if version != VERSION {
            return Err(SnapshotError::Version { given: version, known: VERSION });
        }
        let header_bytes = u64::from(u32_at(fixed, 12));
        let (stored_bytes, expanded_bytes) = (u64_at(fixed, 16), u64_at(fixed, 24));
        if header_bytes > MAX_HEADER_BYTES || expanded_bytes > FrameRuns::MAX_BYTES as u64 {
            return Err(SnapshotError::Header(
                "its parts are longer than any snapshot's".to_owned(),
            ));
        }
        let around = (FIXED_BYTES + CHECKSUM_BYTES) as u64 + header_bytes;
        let should = around.saturating_add(stored_bytes);
        if has != should {
            return Err(SnapshotError::Length { has, should });
        }
        let (content, checksum) = bytes.split_at(bytes.len() - CHECKSUM_BYTES);
        if XxHash3_64::oneshot(content).to_le_bytes() != checksum {
            return Err(SnapshotError::Checksum);
        }
        let (header, frames) = content[FIXED_BYTES..].split_at(header_bytes as usize);
        let about: SnapshotHeader = serde_json::from_slice(header)
            .map_err(|error| SnapshotError::Header(error.to_string()))?;
        about.check()?;
        if frames.is_empty() {
            return Ok(Snapshot { about, runs: None });
        }
        let runs = expand(frames, expanded_bytes).map_err(SnapshotError::Zstd)?;
        if runs.len() as u64 != expanded_bytes {
            return Err(SnapshotError::Runs("they are not as long as the header says"));
        }
        Ok(Snapshot { about, runs: Some(FrameRuns::read(runs)?) })
    }

    /// Reads a file.
    ///
    /// # Errors
    ///
    /// As [`Snapshot::from_bytes`], with the file's name; or if the file cannot be read.
    pub fn read(path: &Path) -> Result<Self, SnapshotError> {
        let failed = |source| SnapshotError::Io { path: path.to_owned(), source };
        let in_file =
            |source| SnapshotError::File { path: path.to_owned(), source: Box::new(source) };
        let file = open_regular(path).map_err(failed)?;
        let mut bytes = Vec::new();
        file.take(Self::MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(failed)?;
        if bytes.len() as u64 > Self::MAX_FILE_BYTES {
            let (has, most) = (bytes.len() as u64, Self::MAX_FILE_BYTES);
            return Err(in_file(SnapshotError::TooLong { has, most }));
        }
        Snapshot::from_bytes(&bytes).map_err(in_file)
    }
}

/// Decompresses zstd data to at most `most` + 1 bytes. Memory grows with the actual data, not with the size in
/// the header.
fn expand(stored: &[u8], most: u64) -> std::io::Result<Vec<u8>> {
    let mut decoder = zstd::stream::read::Decoder::with_buffer(stored)?;
    decoder.window_log_max(MAX_WINDOW_LOG2)?;
    let mut expanded = Vec::new();
    decoder.take(most + 1).read_to_end(&mut expanded)?;
    Ok(expanded)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}
