//! Reading a native trace.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::bytes::Bytes;
use super::codec::ChunkDecoder;
use super::frame::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FrameHeader, FrameKind, MAGIC, VERSION};
use super::index::{Index, TRAILER_BYTES};
use super::manifest::{MAX_JSON_BYTES, Manifest, StreamBegan, StreamEnded, StreamTotals};
use super::overview::{Frames, Overview};
use crate::source::{
    Batch, Facts, Input, InputOptions, Place, Progress, Source, Step, StreamSource, Streams,
    TraceError,
};
use crate::words_hash::WordsHash;

/// How many streams a trace may have.
const MAX_STREAMS: usize = 1 << 16;

/// A native trace that is being read.
pub struct NativeSource {
    name: String,
    path: Option<PathBuf>,
    bytes: Bytes,
    /// Where the next frame begins.
    position: u64,
    frame: u64,
    manifest: Option<Manifest>,
    streams: BTreeMap<u32, Stream>,
    /// One for all streams, since each chunk is decoded on its own: so its memory is bounded.
    decoder: ChunkDecoder,
    /// The stream whose chunk is being decoded.
    current: Option<u32>,
    parts: [Vec<u8>; 2],
    /// Only the records are read of chunks that end at or before this instruction of their stream.
    skip_until: u64,
    skipped: u64,
    place: Place,
    done: bool,
    /// The frames to read, if not all: those of one stream.
    only: Option<std::vec::IntoIter<FramePlace>>,
    /// The bytes of these frames: in total, and read so far.
    bytes_of_stream: Progress,
}

/// Where a frame lies.
#[derive(Clone, Copy, Debug)]
pub(super) struct FramePlace {
    /// Its number in the file.
    pub number: u64,
    /// Where it begins.
    pub position: u64,
}

struct Stream {
    totals: StreamTotals,
    /// The hash of all words, as long as none was skipped.
    hash: Option<WordsHash>,
    ended: bool,
}

impl NativeSource {
    /// Whether bytes begin a native trace.
    pub fn recognises(head: &[u8]) -> bool {
        head.starts_with(&MAGIC)
    }

    /// Reads `input`.
    pub fn open(input: Input) -> Result<Self, TraceError> {
        let name = input.name().to_owned();
        let path = input.path().map(Path::to_owned);
        let bytes = Bytes::of(input);
        let mut source = NativeSource {
            name,
            path,
            bytes,
            position: 0,
            frame: 0,
            manifest: None,
            streams: BTreeMap::new(),
            decoder: ChunkDecoder::default(),
            current: None,
            parts: [Vec::new(), Vec::new()],
            skip_until: 0,
            skipped: 0,
            place: Place::Whole,
            done: false,
            only: None,
            bytes_of_stream: Progress::default(),
        };
        source.read_file_header()?;
        // The manifest is the first frame.
        let mut none = Batch::default();
        if source.read_frame(&mut none)?.is_some() || source.manifest.is_none() {
            return Err(source.wrong("its first frame is not a manifest"));
        }
        Ok(source)
    }

    /// The trace's description; the last one read if there are several.
    pub fn manifest(&self) -> &Manifest {
        self.manifest.as_ref().expect("the first frame was one")
    }

    /// From here on, only the records (definitions and events) are read of chunks that end at or
    /// before this instruction of their stream.
    pub fn skip_until(&mut self, instruction: u64) {
        self.skip_until = instruction;
    }

    /// Reads only `frames`, which have `bytes` bytes together.
    pub(super) fn only(mut self, frames: Vec<FramePlace>, bytes: u64) -> Self {
        self.only = Some(frames.into_iter());
        self.bytes_of_stream = Progress { done: 0, total: Some(bytes) };
        self
    }

    /// Why a frame cannot be read, whatever comes before it; `None` if it is intact.
    pub(super) fn fault_of(&mut self, frame: FramePlace) -> Option<TraceError> {
        (self.frame, self.position) = (frame.number, frame.position);
        self.place = Place::Chunk { number: self.frame, byte: self.position };
        self.try_parts().err()
    }

    fn try_parts(&mut self) -> Result<(), TraceError> {
        self.bytes.seek(self.position).map_err(|error| self.unread(&error))?;
        let header = self.read_header()?;
        let mut part = Vec::new();
        (0..2).try_for_each(|which| self.read_part(&header, which, &mut part))
    }

    fn read_header(&mut self) -> Result<FrameHeader, TraceError> {
        let mut header = [0; FRAME_HEADER_BYTES];
        self.bytes.read_exact(&mut header).map_err(|error| self.unread(&error))?;
        FrameHeader::from_bytes(&header).map_err(|error| self.wrong(error))
    }

    /// Goes on to the next of the selected frames, if not all are read.
    fn next_frame(&mut self) -> Result<(), TraceError> {
        let Some(frames) = &mut self.only else { return Ok(()) };
        let Some(FramePlace { number, position }) = frames.next() else {
            self.done = true;
            return Ok(());
        };
        (self.frame, self.position) = (number, position);
        self.bytes.seek(position).map_err(|error| self.unread(&error))
    }

    fn read_file_header(&mut self) -> Result<(), TraceError> {
        let mut header = [0; FILE_HEADER_BYTES];
        let (magic, rest) = header.split_at_mut(MAGIC.len());
        self.bytes.read_exact(magic).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => TraceError::whole(&self.name, "is not a native trace"),
            _ => self.unread(&error),
        })?;
        if *magic != MAGIC {
            return Err(TraceError::whole(&self.name, "is not a native trace"));
        }
        self.bytes.read_exact(rest).map_err(|error| self.unread(&error))?;
        let version = u32::from_le_bytes(header[8..12].try_into().expect("four bytes"));
        if header[12..] != [0; 4] {
            return Err(TraceError::whole(&self.name, "has a damaged header"));
        }
        if version == 0 || version > VERSION {
            let what = format!(
                "has version {version} of the native format, and this Octavo reads up to {VERSION}"
            );
            return Err(TraceError::whole(&self.name, what));
        }
        self.position = FILE_HEADER_BYTES as u64;
        Ok(())
    }

    /// Reads the next frame; returns its step, if it is one. At the index the trace is done.
    fn read_frame(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        self.place = Place::Chunk { number: self.frame, byte: self.position };
        let header = self.read_header()?;
        let step = match header.kind {
            FrameKind::Chunk => self.read_chunk(&header, batch)?,
            FrameKind::Manifest => {
                let json = self.read_json(&header)?;
                self.manifest =
                    Some(serde_json::from_slice(&json).map_err(|error| self.wrong(error))?);
                None
            }
            FrameKind::Began => Some(self.read_began(&header)?),
            FrameKind::Ended => Some(self.read_ended(&header)?),
            FrameKind::Index => {
                self.read_end(&header)?;
                None
            }
        };
        self.position += header.frame_bytes();
        self.bytes_of_stream.done += header.frame_bytes();
        self.frame += 1;
        Ok(step)
    }

    fn read_chunk(
        &mut self,
        header: &FrameHeader,
        batch: &mut Batch,
    ) -> Result<Option<Step>, TraceError> {
        let known = self.streams.get(&header.stream).filter(|stream| !stream.ended);
        let Some(before) = known.map(|stream| stream.totals.instructions) else {
            return Err(self.wrong(format!("stream {} is not under way here", header.stream)));
        };
        if before != header.first_instruction {
            return Err(self.wrong(format!(
                "begins at instruction {}, and the chunk before ended at {before}",
                header.first_instruction
            )));
        }
        let end = before.saturating_add(header.instructions);
        let skips = self.skip_until > 0 && end <= self.skip_until;
        let mut parts = std::mem::take(&mut self.parts);
        self.read_part(header, 0, &mut parts[0])?;
        if skips {
            self.bytes.skip(header.part_bytes[1]).map_err(|error| self.unread(&error))?;
        } else {
            self.read_part(header, 1, &mut parts[1])?;
        }
        let stream = self.streams.get_mut(&header.stream).expect("it was there above");
        let found = if skips {
            stream.hash = None;
            self.decoder.skip(&parts[0], &mut batch.words)
        } else {
            self.decoder.begin([&parts[0], &parts[1]])
        };
        self.parts = parts;
        let found = found.map_err(|error| self.wrong(error))?;
        if !skips
            && (found.instructions, found.references) != (header.instructions, header.references)
        {
            return Err(self.wrong(format!(
                "holds {} instructions and {} references, and its header says {} and {}",
                found.instructions, found.references, header.instructions, header.references
            )));
        }
        let stream = self.streams.get_mut(&header.stream).expect("it was there above");
        stream.totals.instructions = end;
        stream.totals.references = stream.totals.references.saturating_add(header.references);
        if skips {
            self.skipped = self.skipped.saturating_add(header.instructions);
            return Ok((!batch.words.is_empty()).then_some(Step::Batch(header.stream)));
        }
        self.current = Some(header.stream);
        Ok(None)
    }

    fn read_began(&mut self, header: &FrameHeader) -> Result<Step, TraceError> {
        let json = self.read_json(header)?;
        let began: StreamBegan =
            serde_json::from_slice(&json).map_err(|error| self.wrong(error))?;
        let identity = began.identity(header.stream);
        let identity = identity.ok_or_else(|| self.wrong("how the stream began is not known"))?;
        if self.streams.len() == MAX_STREAMS {
            return Err(self.wrong(format!("there are more than {MAX_STREAMS} streams")));
        }
        let stream = Stream {
            totals: StreamTotals::default(),
            hash: Some(WordsHash::default()),
            ended: false,
        };
        if self.streams.insert(header.stream, stream).is_some() {
            return Err(self.wrong(format!("stream {} begins twice", header.stream)));
        }
        Ok(Step::Began(identity))
    }

    fn read_ended(&mut self, header: &FrameHeader) -> Result<Step, TraceError> {
        let json = self.read_json(header)?;
        let ended: StreamEnded =
            serde_json::from_slice(&json).map_err(|error| self.wrong(error))?;
        let end = ended.end().ok_or_else(|| self.wrong("how the stream ended is not known"))?;
        let known = self.streams.get_mut(&header.stream).filter(|stream| !stream.ended);
        let Some(stream) = known else {
            return Err(
                self.wrong(format!("stream {} ends without being under way", header.stream))
            );
        };
        stream.ended = true;
        let (totals, hash) = (stream.totals, stream.hash.take());
        if totals != ended.totals() {
            return Err(self.wrong(format!(
                "stream {} had {} instructions and {} references, and its end says {} and {}",
                header.stream,
                totals.instructions,
                totals.references,
                ended.totals().instructions,
                ended.totals().references
            )));
        }
        if hash.is_some_and(|hash| format!("{:032x}", hash.value()) != ended.hash()) {
            let stream = header.stream;
            return Err(
                self.wrong(format!("stream {stream} is not what was written: its hash differs"))
            );
        }
        Ok(Step::Ended(header.stream, end))
    }

    /// The index serves readers that seek; here it only has to be intact.
    fn read_end(&mut self, header: &FrameHeader) -> Result<(), TraceError> {
        let mut index = Vec::new();
        self.read_part(header, 0, &mut index)?;
        let mut trailer = [0; TRAILER_BYTES];
        self.bytes.read_exact(&mut trailer).map_err(|error| self.unread(&error))?;
        if Index::position_from_trailer(trailer) != Some(self.position) {
            return Err(self.wrong("what follows the index is not the trace's end"));
        }
        let behind = self.bytes.read(&mut [0]);
        if behind.map_err(|error| self.unread(&error))? > 0 {
            return Err(self.wrong("the trace ends here, and something follows its end"));
        }
        self.done = true;
        Ok(())
    }

    fn read_json(&mut self, header: &FrameHeader) -> Result<Vec<u8>, TraceError> {
        if header.part_bytes[0] > MAX_JSON_BYTES || header.part_bytes[1] != 0 {
            return Err(self.wrong("the frame is too long for what it holds"));
        }
        let mut json = Vec::new();
        self.read_part(header, 0, &mut json)?;
        Ok(json)
    }

    fn read_part(
        &mut self,
        header: &FrameHeader,
        which: usize,
        part: &mut Vec<u8>,
    ) -> Result<(), TraceError> {
        part.clear();
        let wanted = u64::from(header.part_bytes[which]);
        // `take` and not a buffer of the stated length: a short file cannot claim memory.
        let read = (&mut self.bytes).take(wanted).read_to_end(part);
        read.map_err(|error| self.unread(&error))?;
        if (part.len() as u64) < wanted {
            return Err(self.unread(&ErrorKind::UnexpectedEof.into()));
        }
        header.check(which, part).map_err(|error| self.wrong(error))
    }

    fn wrong(&self, what: impl ToString) -> TraceError {
        TraceError::at(&self.name, self.place, what.to_string())
    }

    fn unread(&self, error: &io::Error) -> TraceError {
        if error.kind() == ErrorKind::UnexpectedEof {
            let what = "the trace is cut off here; what came before is whole";
            TraceError::at(&self.name, self.place, what)
        } else {
            TraceError::at(&self.name, self.place, format!("cannot be read: {error}"))
        }
    }
}

impl Source for NativeSource {
    fn facts(&self) -> Facts {
        let manifest = self.manifest();
        Facts {
            format: "native",
            exact: manifest.exact,
            samples: manifest.samples,
            has_instructions: manifest.has_instructions,
            has_sizes: manifest.has_sizes,
            physical: manifest.physical,
            notes: manifest.notes.clone(),
            sample: manifest.sample.clone(),
        }
    }

    fn manifest(&self) -> Option<Manifest> {
        self.manifest.clone()
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        batch.clear();
        loop {
            if let Some(number) = self.current {
                let stream = self.streams.get_mut(&number).expect("its chunk has begun");
                let more = self.decoder.next(&mut batch.words);
                if let (Ok(true), Some(hash)) = (&more, &mut stream.hash) {
                    hash.write(&batch.words);
                }
                if more.map_err(|error| self.wrong(error))? {
                    return Ok(Some(Step::Batch(number)));
                }
                self.current = None;
            }
            if !self.done {
                self.next_frame()?;
            }
            if self.done {
                return Ok(None);
            }
            if let Some(step) = self.read_frame(batch)? {
                return Ok(Some(step));
            }
        }
    }

    fn progress(&self) -> Progress {
        match self.only {
            Some(_) => self.bytes_of_stream,
            None => self.bytes.progress(self.position),
        }
    }

    fn place(&self) -> Place {
        self.place
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn streams(&self) -> Result<Option<Streams>, TraceError> {
        let path = self.path.as_deref().filter(|_| self.bytes.is_file());
        path.map(streams_of_file).transpose()
    }

    /// Skips instructions only if all are left out, or if the trace is a file with one stream. With
    /// several streams it is not known beforehand which one executes them, and of a pipe it is not
    /// known how many streams it has.
    fn skip_instructions(&mut self, instructions: u64) {
        let path = || self.path.as_deref().filter(|_| self.bytes.is_file());
        let overview = || path().and_then(|path| Overview::read(path).ok());
        let alone = || overview().is_some_and(|overview| overview.streams.len() == 1);
        if instructions == u64::MAX || alone() {
            self.skip_until(instructions);
        }
    }

    fn skipped_instructions(&self) -> u64 {
        self.skipped
    }
}

/// The frames of one stream.
#[derive(Default)]
struct Found {
    frames: Vec<FramePlace>,
    bytes: u64,
}

/// The streams of the trace in a file.
fn streams_of_file(path: &Path) -> Result<Streams, TraceError> {
    let Frames { index, is_whole, end: trace_end, .. } = Frames::read(path)?;
    let mut found: BTreeMap<u32, Found> = BTreeMap::new();
    let mut beginning_frames = Vec::new();
    let ends = index.entries.iter().skip(1).map(|next| next.position).chain([trace_end]);
    for (number, (entry, end)) in (0..).zip(index.entries.iter().zip(ends)) {
        let frame = FramePlace { number, position: entry.position };
        match entry.kind {
            FrameKind::Began => beginning_frames.push(frame),
            FrameKind::Chunk | FrameKind::Ended => {}
            FrameKind::Manifest => {
                beginning_frames.push(frame);
                continue;
            }
            FrameKind::Index => continue,
        }
        let stream = found.entry(entry.stream).or_default();
        stream.frames.push(frame);
        stream.bytes += end.saturating_sub(entry.position);
    }
    let mut streams = Vec::new();
    let mut beginnings = open_frames(path, beginning_frames, 0)?;
    while let Some(step) = beginnings.next(&mut Batch::default())? {
        let Step::Began(identity) = step else { continue };
        let Some(Found { frames, bytes }) = found.remove(&identity.stream) else { continue };
        let path = PathBuf::from(path);
        streams.push(StreamSource {
            identity,
            bytes,
            open: Box::new(move || Ok(Box::new(open_frames(&path, frames, bytes)?))),
        });
    }
    let mut fault = None;
    if !is_whole {
        // Reading on from there gives the error that ended the index early.
        let behind = FramePlace { number: index.entries.len() as u64, position: trace_end };
        fault = open_frames(path, Vec::new(), 0)?.fault_of(behind);
    }
    let (facts, manifest) = (beginnings.facts(), Source::manifest(&beginnings));
    Ok(Streams { streams, facts, manifest, fault })
}

fn open_frames(
    path: &Path,
    frames: Vec<FramePlace>,
    bytes: u64,
) -> Result<NativeSource, TraceError> {
    let input = Input::open(path, InputOptions::default())?;
    Ok(NativeSource::open(input)?.only(frames, bytes))
}
