//! The chunks of one stream on their way into the file: compressed and written by a thread of their
//! own where the stream is long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{JoinHandle, available_parallelism};

use super::codec::{ChunkSummary, Compressor, Sections};
use super::frame::{FrameHeader, FrameKind};
use super::writer::{CHUNK_WORDS, NativeFile};
use crate::source::TraceError;
use crate::threads;

/// Writes the chunks of one stream.
pub struct Chunks {
    file: NativeFile,
    place: Place,
    /// The greatest number of streams with a thread of their own.
    most_with_threads: usize,
}

/// The place where chunks are compressed.
enum Place {
    /// On the thread that they come from: most processes end before they fill a chunk.
    Here(Box<Compressing>),
    /// On a thread of their own.
    Elsewhere(Stage<Sections, Compressing>, Seat),
    /// Nowhere any more: a call has returned an error.
    Ended,
}

/// Compresses chunks, and writes them.
struct Compressing {
    compressor: Compressor,
    written: Written,
}

/// The chunks of a stream in the file.
struct Written {
    file: NativeFile,
    stream: u32,
    parts: [Vec<u8>; 2],
    /// The instructions of all these chunks.
    instructions: u64,
}

impl Chunks {
    /// A writer without chunks yet. As many streams as there are processors have a thread of their
    /// own.
    pub fn new(file: &NativeFile, stream: u32) -> Self {
        Self::with_threads(file, stream, available_parallelism().map_or(1, usize::from))
    }

    fn with_threads(file: &NativeFile, stream: u32, most_with_threads: usize) -> Self {
        let written = Written {
            file: file.clone(),
            stream,
            parts: [Vec::new(), Vec::new()],
            instructions: 0,
        };
        let compressing = Compressing { compressor: Compressor::default(), written };
        Chunks { file: file.clone(), place: Place::Here(Box::new(compressing)), most_with_threads }
    }

    /// Writes a sorted chunk, and clears it. With a thread it is written later, and an error is
    /// then returned by a later call.
    pub fn write(&mut self, chunk: &mut Sections) -> Result<(), TraceError> {
        if chunk.words() >= CHUNK_WORDS {
            self.start_thread()?;
        }
        let written = match &mut self.place {
            Place::Here(compressing) => compressing.take(chunk),
            Place::Elsewhere(compressing, _) if compressing.send(chunk) => Ok(()),
            _ => match std::mem::replace(&mut self.place, Place::Ended) {
                Place::Elsewhere(compressing, _) => Err(compressing.error()),
                _ => Err(self.failed_before()),
            },
        };
        chunk.clear();
        written
    }

    /// Waits for all chunks.
    pub fn finish(self) -> Result<(), TraceError> {
        match self.place {
            Place::Here(_) => Ok(()),
            Place::Elsewhere(compressing, _) => compressing.finish().map(drop),
            Place::Ended => Err(self.failed_before()),
        }
    }

    fn failed_before(&self) -> TraceError {
        self.file.error("a stream of it has failed before")
    }

    /// Gives the stream a thread of its own, if it has none and there may be more.
    fn start_thread(&mut self) -> Result<(), TraceError> {
        self.place = match std::mem::replace(&mut self.place, Place::Ended) {
            Place::Here(compressing) => match Seat::take(self.most_with_threads) {
                Some(seat) => {
                    let stage = Stage::start("compress", *compressing, Compressing::take);
                    Place::Elsewhere(stage.map_err(|error| self.file.error(error))?, seat)
                }
                None => Place::Here(compressing),
            },
            others => others,
        };
        Ok(())
    }
}

/// The right of a stream to a thread of its own: each such stream has some 30 MB of chunks in
/// memory.
struct Seat;

/// The number of seats that are taken.
static SEATS: AtomicUsize = AtomicUsize::new(0);

impl Seat {
    /// A seat, if fewer than `most` are taken.
    fn take(most: usize) -> Option<Self> {
        let one_more = |taken| (taken < most).then(|| taken + 1);
        SEATS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok().then(|| Seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        SEATS.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Compressing {
    fn take(&mut self, sections: &mut Sections) -> Result<(), TraceError> {
        let summary = self.compressor.compress(sections, &mut self.written.parts);
        self.written.append(&summary)
    }
}

impl Written {
    /// Appends the chunk in the parts to the file.
    fn append(&mut self, summary: &ChunkSummary) -> Result<(), TraceError> {
        let parts = [self.parts[0].as_slice(), self.parts[1].as_slice()];
        let mut header = FrameHeader::new(FrameKind::Chunk, self.stream, parts);
        header.first_instruction = self.instructions;
        header.instructions = summary.instructions;
        header.references = summary.references;
        self.instructions += summary.instructions;
        self.file.append(header, parts)
    }
}

/// A thread that processes items one after the other. One item may wait; the sender of another one
/// blocks.
struct Stage<T, S> {
    full: SyncSender<T>,
    /// Processed items, to be filled again.
    done: Receiver<T>,
    thread: JoinHandle<Result<S, TraceError>>,
}

impl<T: Default + Send + 'static, S: Send + 'static> Stage<T, S> {
    /// Starts the thread. It ends at the first error, and else when the stage is finished or
    /// dropped.
    fn start(
        name: &str,
        mut state: S,
        work: fn(&mut S, &mut T) -> Result<(), TraceError>,
    ) -> Result<Self, String> {
        let (full, taken) = mpsc::sync_channel::<T>(1);
        let (give_back, done) = mpsc::channel();
        let thread = threads::start(name, move || {
            for mut item in taken {
                work(&mut state, &mut item)?;
                // The stage may have been finished meanwhile.
                let _ = give_back.send(item);
            }
            Ok(state)
        })?;
        Ok(Stage { full, done, thread })
    }

    /// Sends an item to the thread, and puts an empty one in its place. Returns whether the thread
    /// took the item.
    fn send(&self, item: &mut T) -> bool {
        let empty = self.done.try_recv().unwrap_or_default();
        self.full.send(std::mem::replace(item, empty)).is_ok()
    }

    /// The error that has ended the thread, which takes no more items.
    fn error(self) -> TraceError {
        self.finish().err().expect("a thread ends early by an error alone")
    }

    /// Waits until all items are processed.
    fn finish(self) -> Result<S, TraceError> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use octavo_types::{Consumer, Item, ItemKind, Segment, VirtAddr};

    use super::*;
    use crate::native::{Manifest, NativeSource};
    use crate::ring::Encoder;
    use crate::sink::Output;
    use crate::sink::memory::Memory;
    use crate::source::{Batch, Input, InputOptions, Source, Step};
    use crate::splitmix::splitmix;
    use crate::stream::{Began, StreamEnd, StreamIdentity};

    /// A definition, and `executions` executions with addresses that compress badly.
    fn words(executions: usize) -> Vec<u64> {
        let item = |kind, addr| {
            let addr = VirtAddr::new(addr);
            Item::new(kind, 8, addr)
        };
        let items = vec![item(ItemKind::Fetch, 0x1000), item(ItemKind::Load, 0)];
        let segment = Segment::new(items, vec![]).unwrap();
        let mut encoder = Encoder::default();
        for number in 0..executions as u64 {
            encoder.segment(&segment, &[VirtAddr::new(splitmix(number) >> 20)]);
        }
        encoder.words().to_vec()
    }

    fn identity() -> StreamIdentity {
        let (began, program) = (Began::Start, String::new());
        StreamIdentity { stream: 0, parent: None, pid: 1, began, program }
    }

    /// Writes `executions` executions as one stream, some at a time, with threads if `most` allows
    /// any.
    fn write(executions: usize, disk: usize, most: usize) -> Result<Vec<u8>, TraceError> {
        let words = words(executions);
        let memory = Memory::with_room(disk);
        let output = Output::to_writer("memory", Box::new(memory.clone()));
        let file = NativeFile::create(output, &Manifest::recorded(serde_json::Value::Null))?;
        let mut stream = file.stream(&identity());
        stream.chunks = Chunks::with_threads(&file, 0, most);
        let (definition, executions) = words.split_at(words.len() - 2 * executions);
        stream.put(definition)?;
        executions.chunks(100_000).try_for_each(|some| stream.put(some))?;
        assert_eq!(matches!(stream.chunks.place, Place::Elsewhere(..)), most > 0);
        stream.end(&StreamEnd::PLAIN)?;
        file.finish()?;
        Ok(memory.bytes())
    }

    fn read(trace: Vec<u8>) -> Vec<u64> {
        let reader = Box::new(Cursor::new(trace));
        let input = Input::from_reader("t.oct", reader, InputOptions::default()).unwrap();
        let mut source = NativeSource::open(input).unwrap();
        let (mut batch, mut words) = (Batch::default(), Vec::new());
        while let Some(step) = source.next(&mut batch).unwrap() {
            if let Step::Batch(_) = step {
                words.extend(&batch.words);
            }
        }
        words
    }

    #[test]
    fn a_long_stream_is_the_same_with_threads_and_without() {
        let executions = 3 * CHUNK_WORDS / 2 + 1000;
        let with_threads = write(executions, usize::MAX, usize::MAX).unwrap();
        let without = write(executions, usize::MAX, 0).unwrap();
        assert!(with_threads == without, "the files differ");
        assert!(read(with_threads) == words(executions), "the words differ");
    }

    #[test]
    fn executions_may_come_many_at_once_and_cut_anywhere() {
        let executions = 3 * CHUNK_WORDS / 2 + 1000;
        let words = words(executions);
        let memory = Memory::default();
        let output = Output::to_writer("memory", Box::new(memory.clone()));
        let file =
            NativeFile::create(output, &Manifest::recorded(serde_json::Value::Null)).unwrap();
        let mut stream = file.stream(&identity());
        let (definition, mut rest) = words.split_at(words.len() - 2 * executions);
        stream.put(definition).unwrap();
        assert_eq!(stream.put_executions(definition).unwrap(), 0);
        while !rest.is_empty() {
            let taken = stream.put_executions(&rest[..rest.len().min(99_999)]).unwrap();
            assert_eq!(taken, rest.len().min(99_998));
            rest = &rest[taken..];
        }
        stream.end(&StreamEnd::PLAIN).unwrap();
        file.finish().unwrap();
        let many_at_once = memory.bytes();
        assert!(many_at_once == write(executions, usize::MAX, 0).unwrap(), "the files differ");
    }

    #[test]
    fn a_thread_that_cannot_write_stops_the_stream() {
        for (disk, most) in [(1000, 0), (1000, 9), (3_000_000, 9), (8_000_000, 9)] {
            let written = write(2 * CHUNK_WORDS, disk, most).map(|trace| trace.len());
            let error = written.unwrap_err().to_string();
            assert!(error.contains("no room"), "{error}");
        }
    }
}
