//! A summary of a native trace without decoding it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use super::frame::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use super::index::{Index, IndexEntry, TRAILER_BYTES};
use super::manifest::{MAX_JSON_BYTES, Manifest, StreamTotals};
use crate::source::TraceError;

/// One stream, by its frames' headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamOverview {
    /// Its number.
    pub stream: u32,
    /// How many chunks it has.
    pub chunks: u64,
    /// Their totals.
    pub totals: StreamTotals,
}

/// A summary of a native trace, read without decoding it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// Its length.
    pub bytes: u64,
    /// How much of it is whole frames.
    pub whole_bytes: u64,
    /// The file ends with an index: its writer finished it.
    pub is_whole: bool,
    /// Each stream.
    pub streams: Vec<StreamOverview>,
    /// Its description, the last one if there are several.
    pub manifest: Option<Manifest>,
}

impl Overview {
    /// Reads the index of a file or, where it has none, the headers of its frames.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let Frames { mut file, bytes, whole_bytes, is_whole, index, .. } = Frames::read(path)?;
        let mut overview = Overview { bytes, whole_bytes, is_whole, ..Overview::default() };
        let last = index.entries.iter().rfind(|entry| entry.kind == FrameKind::Manifest);
        overview.manifest = last.and_then(|entry| read_manifest(&mut file, entry.position));
        for entry in index.entries.iter().filter(|entry| entry.kind == FrameKind::Chunk) {
            let known = overview.streams.iter().position(|stream| stream.stream == entry.stream);
            let at = known.unwrap_or_else(|| {
                let fresh = StreamOverview { stream: entry.stream, ..StreamOverview::default() };
                overview.streams.push(fresh);
                overview.streams.len() - 1
            });
            let stream = &mut overview.streams[at];
            stream.chunks += 1;
            let StreamTotals { instructions, references } = &mut stream.totals;
            *instructions = instructions.saturating_add(entry.instructions);
            *references = references.saturating_add(entry.references);
        }
        Ok(overview)
    }
}

/// The frames of a file.
pub(super) struct Frames {
    file: File,
    bytes: u64,
    /// How much of it is whole frames.
    pub whole_bytes: u64,
    /// The index stands at its end.
    pub is_whole: bool,
    /// Where the last frame ends, but for the index.
    pub end: u64,
    /// All frames.
    pub index: Index,
}

impl Frames {
    /// Reads the index or, where there is none, the headers of the frames.
    pub fn read(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let fail = |error: io::Error| TraceError::whole(&name, format!("cannot be read: {error}"));
        let mut file = File::open(path).map_err(fail)?;
        let bytes = file.metadata().map_err(fail)?.len();
        if let Some((index, end)) = read_index(&mut file, bytes) {
            return Ok(Frames { file, bytes, whole_bytes: bytes, is_whole: true, end, index });
        }
        let (index, end) = walk(&mut file).map_err(fail)?;
        Ok(Frames { file, bytes, whole_bytes: end, is_whole: false, end, index })
    }
}

/// The index of a whole trace, and where it begins.
fn read_index(file: &mut File, bytes: u64) -> Option<(Index, u64)> {
    file.seek(SeekFrom::Start(bytes.checked_sub(TRAILER_BYTES as u64)?)).ok()?;
    let mut trailer = [0; TRAILER_BYTES];
    file.read_exact(&mut trailer).ok()?;
    let position = Index::position_from_trailer(trailer)?;
    file.seek(SeekFrom::Start(position)).ok()?;
    let mut header = [0; FRAME_HEADER_BYTES];
    file.read_exact(&mut header).ok()?;
    let header = FrameHeader::from_bytes(&header).ok()?;
    // In a file of two concatenated traces, the last trailer may lead to the index of the first.
    let end = position.checked_add(header.frame_bytes())?.checked_add(TRAILER_BYTES as u64)?;
    if header.kind != FrameKind::Index || end != bytes {
        return None;
    }
    let mut body = Vec::new();
    file.take(u64::from(header.part_bytes[0])).read_to_end(&mut body).ok()?;
    header.check(0, &body).ok()?;
    Some((Index::from_bytes(&body)?, position))
}

fn read_manifest(file: &mut File, position: u64) -> Option<Manifest> {
    file.seek(SeekFrom::Start(position)).ok()?;
    let mut header = [0; FRAME_HEADER_BYTES];
    file.read_exact(&mut header).ok()?;
    let header = FrameHeader::from_bytes(&header).ok()?;
    if header.kind != FrameKind::Manifest || header.part_bytes[0] > MAX_JSON_BYTES {
        return None;
    }
    let mut json = Vec::new();
    file.take(u64::from(header.part_bytes[0])).read_to_end(&mut json).ok()?;
    header.check(0, &json).ok()?;
    serde_json::from_slice(&json).ok()
}

/// The frames of a file up to the first that is not whole, and where that begins.
fn walk(file: &mut File) -> io::Result<(Index, u64)> {
    let length = file.metadata()?.len();
    let (mut index, mut position) = (Index::default(), FILE_HEADER_BYTES as u64);
    loop {
        file.seek(SeekFrom::Start(position))?;
        let mut bytes = [0; FRAME_HEADER_BYTES];
        let read =
            file.read_exact(&mut bytes).ok().and_then(|()| FrameHeader::from_bytes(&bytes).ok());
        let Some(header) = read.filter(|header| position + header.frame_bytes() <= length) else {
            return Ok((index, position));
        };
        index.add(IndexEntry::of(position, &header));
        position += header.frame_bytes();
    }
}
