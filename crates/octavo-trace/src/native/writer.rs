//! Writing a native trace, from one stream or from many at once.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::chunks::Chunks;
use super::codec::{Sections, Sorter};
use super::frame::{FRAME_HEADER_BYTES, FrameHeader, FrameKind, MAGIC, VERSION};
use super::index::{Index, IndexEntry};
use super::manifest::{Manifest, StreamBegan, StreamEnded, StreamTotals};
use crate::sink::{Output, Sink, Written};
use crate::source::TraceError;
use crate::stream::{StreamEnd, StreamIdentity};
use crate::words_hash::WordsHash;

/// About how many words a chunk holds. More compress better; fewer are lost when the writer is
/// killed, and fewer are decoded without need when a reader looks for an instruction.
pub const CHUNK_WORDS: usize = 1 << 20;
/// The longest time between two chunks, as long as words come.
const CHUNK_TIME: Duration = Duration::from_secs(5);
/// How many words are gathered before they are sorted, if they come one by one.
const WAITING_WORDS: usize = 1 << 12;

/// A native trace that is being written, shared by the streams that write to it.
#[derive(Clone)]
pub struct NativeFile {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    output: Option<Output>,
    name: String,
    position: u64,
    index: Index,
    written: Written,
    /// The first error: nothing is written after it.
    failed: Option<TraceError>,
}

impl NativeFile {
    /// Begins a trace.
    pub fn create(mut output: Output, manifest: &Manifest) -> Result<Self, TraceError> {
        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.extend([0; 4]);
        output.put(&header)?;
        let shared = Shared {
            name: output.name().to_owned(),
            output: Some(output),
            position: header.len() as u64,
            index: Index::default(),
            written: Written::default(),
            failed: None,
        };
        let file = NativeFile { shared: Arc::new(Mutex::new(shared)) };
        file.add_manifest(manifest)?;
        Ok(file)
    }

    /// Appends a description of the trace; the last one in the file is valid.
    pub fn add_manifest(&self, manifest: &Manifest) -> Result<(), TraceError> {
        let json = manifest.to_json();
        self.append(FrameHeader::new(FrameKind::Manifest, 0, [&json, &[]]), [&json, &[]])
    }

    /// A writer of one stream.
    pub fn stream(&self, identity: &StreamIdentity) -> StreamWriter {
        StreamWriter {
            file: self.clone(),
            identity: identity.clone(),
            began: false,
            waiting: Vec::new(),
            hash: WordsHash::default(),
            sorter: Sorter::default(),
            chunk: Sections::default(),
            before: StreamTotals::default(),
            flushed_at: Instant::now(),
            chunks: Chunks::new(self, identity.stream),
        }
    }

    /// The first error so far.
    pub fn failed(&self) -> Option<TraceError> {
        self.lock().failed.clone()
    }

    /// Notes that a stream cannot be written, as the error of the whole trace unless there is one
    /// already.
    pub(crate) fn fail(&self, error: TraceError) {
        self.lock().failed.get_or_insert(error);
    }

    /// How many bytes are written.
    pub fn bytes(&self) -> u64 {
        self.lock().position
    }

    /// Writes the index, which completes the trace.
    pub fn finish(&self) -> Result<Written, TraceError> {
        let (body, position) = {
            let shared = self.lock();
            (shared.index.to_bytes(), shared.position)
        };
        self.append(FrameHeader::new(FrameKind::Index, 0, [&body, &[]]), [&body, &[]])?;
        let mut shared = self.lock();
        let mut output = shared.output.take().expect("a trace is finished once");
        output.put(&Index::trailer(position))?;
        let mut written = std::mem::take(&mut shared.written);
        drop(shared);
        written.bytes = output.finish()?;
        Ok(written)
    }

    pub(super) fn append(&self, header: FrameHeader, parts: [&[u8]; 2]) -> Result<(), TraceError> {
        let mut shared = self.lock();
        if let Some(error) = &shared.failed {
            return Err(error.clone());
        }
        let entry = IndexEntry::of(shared.position, &header);
        // One write a frame, so that a killed writer leaves at most the last one in part.
        let mut frame = Vec::with_capacity(FRAME_HEADER_BYTES + parts[0].len() + parts[1].len());
        frame.extend(header.to_bytes());
        frame.extend(parts[0]);
        frame.extend(parts[1]);
        let put = match &mut shared.output {
            Some(output) => output.put(&frame).and_then(|()| output.flush()),
            None => Err(TraceError::whole(&shared.name, "is finished already")),
        };
        if let Err(error) = put {
            shared.failed = Some(error.clone());
            return Err(error);
        }
        shared.position += frame.len() as u64;
        shared.index.add(entry);
        shared.written.references += header.references;
        shared.written.instructions += header.instructions;
        Ok(())
    }

    /// An error of the whole trace.
    pub(super) fn error(&self, what: impl Into<String>) -> TraceError {
        TraceError::whole(&self.lock().name, what)
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One stream of a native trace. Words that wait in it are lost unless it is ended.
pub struct StreamWriter {
    file: NativeFile,
    identity: StreamIdentity,
    began: bool,
    /// Words that are not sorted yet.
    waiting: Vec<u64>,
    hash: WordsHash,
    sorter: Sorter,
    /// The chunk in the making.
    chunk: Sections,
    /// The totals of the chunks before it.
    before: StreamTotals,
    flushed_at: Instant,
    pub(super) chunks: Chunks,
}

impl StreamWriter {
    /// Corrects the name of the stream's program, which may differ from the requested one.
    pub fn name_program(&mut self, program: &str) {
        if !self.began && !program.is_empty() {
            program.clone_into(&mut self.identity.program);
        }
    }

    /// Takes words, whole items only.
    #[inline]
    pub fn put(&mut self, words: &[u64]) -> Result<(), TraceError> {
        self.waiting.extend_from_slice(words);
        if self.waiting.len() < WAITING_WORDS { Ok(()) } else { self.sort_waiting() }
    }

    /// Takes executions from the beginning of words, which need not be whole items; returns how
    /// many words they have.
    pub fn put_executions(&mut self, words: &[u64]) -> Result<usize, TraceError> {
        self.sort_waiting()?;
        let mut taken = 0;
        loop {
            let rest = &words[taken..];
            let more = self.sorter.executions(rest, CHUNK_WORDS, &mut self.chunk);
            self.hash.write(&rest[..more]);
            taken += more;
            if !self.write_if_full()? {
                return Ok(taken);
            }
        }
    }

    /// The totals of the words so far; those that came last may be left out.
    pub fn totals(&self) -> StreamTotals {
        StreamTotals {
            instructions: self.before.instructions + self.chunk.instructions(),
            references: self.before.references + self.chunk.references(),
        }
    }

    fn sort_waiting(&mut self) -> Result<(), TraceError> {
        let mut words = std::mem::take(&mut self.waiting);
        let mut rest = words.as_slice();
        while !rest.is_empty() {
            let sorted = self.sorter.sort(rest, CHUNK_WORDS, &mut self.chunk);
            let failed = |error| self.file.error(format!("a chunk cannot be encoded: {error}"));
            let (taken, after) = rest.split_at(sorted.map_err(failed)?);
            self.hash.write(taken);
            rest = after;
            self.write_if_full()?;
        }
        words.clear();
        self.waiting = words;
        Ok(())
    }

    /// Writes the chunk if it is full; returns whether it was.
    fn write_if_full(&mut self) -> Result<bool, TraceError> {
        let is_full = self.chunk.words() >= CHUNK_WORDS;
        if is_full {
            self.write_chunk()?;
        }
        Ok(is_full)
    }

    fn write_chunk(&mut self) -> Result<(), TraceError> {
        self.begin()?;
        self.flushed_at = Instant::now();
        if self.chunk.words() == 0 {
            return Ok(());
        }
        self.sorter.finish(&mut self.chunk);
        self.before = self.totals();
        self.chunks.write(&mut self.chunk)
    }

    /// Writes a chunk if the last one was long ago. To be called now and then.
    pub fn tick(&mut self) -> Result<(), TraceError> {
        if self.flushed_at.elapsed() < CHUNK_TIME { Ok(()) } else { self.flush() }
    }

    /// Writes the words so far as a chunk. From the first full chunk on, chunks are written some
    /// time later, in order; an error is then returned by a later call.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        self.sort_waiting()?;
        self.write_chunk()
    }

    /// Ends the stream. Returns its totals.
    pub fn end(mut self, end: &StreamEnd) -> Result<StreamTotals, TraceError> {
        self.flush()?;
        self.chunks.finish()?;
        let ended = StreamEnded::new(end, &self.before, self.hash.value());
        let json = ended.to_json();
        let header = FrameHeader::new(FrameKind::Ended, self.identity.stream, [&json, &[]]);
        self.file.append(header, [&json, &[]])?;
        Ok(self.before)
    }

    fn begin(&mut self) -> Result<(), TraceError> {
        if std::mem::replace(&mut self.began, true) {
            return Ok(());
        }
        let json = StreamBegan::new(&self.identity).to_json();
        let header = FrameHeader::new(FrameKind::Began, self.identity.stream, [&json, &[]]);
        self.file.append(header, [&json, &[]])
    }
}

/// A native trace as a sink: streams one after another, or mixed, from one thread.
pub struct NativeSink {
    file: NativeFile,
    streams: BTreeMap<u32, StreamWriter>,
}

impl NativeSink {
    /// Begins a trace.
    pub fn create(output: Output, manifest: &Manifest) -> Result<Self, TraceError> {
        Ok(NativeSink { file: NativeFile::create(output, manifest)?, streams: BTreeMap::new() })
    }
}

impl Sink for NativeSink {
    fn begin(&mut self, identity: &StreamIdentity) -> Result<(), TraceError> {
        self.streams.insert(identity.stream, self.file.stream(identity));
        Ok(())
    }

    fn words(&mut self, stream: u32, words: &[u64]) -> Result<(), TraceError> {
        match self.streams.get_mut(&stream) {
            Some(writer) => writer.put(words),
            None => Err(TraceError::whole(&self.file.lock().name, "a stream never began")),
        }
    }

    fn end(&mut self, stream: u32, end: &StreamEnd) -> Result<(), TraceError> {
        self.streams.remove(&stream).map_or(Ok(()), |writer| writer.end(end).map(drop))
    }

    fn add_manifest(&mut self, manifest: &Manifest) -> Result<(), TraceError> {
        self.file.add_manifest(manifest)
    }

    fn finish(self: Box<Self>) -> Result<Written, TraceError> {
        self.file.finish()
    }
}
