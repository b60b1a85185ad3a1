//! The chunks of one stream on their way into the file: sorted, compressed and written by threads of their
//! own where the stream is long.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{JoinHandle, available_parallelism};

use twox_hash::xxhash3_128;

use super::codec::{ChunkEncoder, ChunkSummary, Compressor, Sections, Sorter};
use super::frame::{FrameHeader, FrameKind};
use super::manifest::StreamTotals;
use super::writer::{CHUNK_WORDS, NativeFile};
use crate::source::TraceError;
use crate::threads;

/// The number of streams with threads of their own. Each has some 50 MB of chunks in memory.
static WITH_THREADS: AtomicUsize = AtomicUsize::new(0);

/// Writes the chunks of one stream.
pub struct Chunks {
    file: NativeFile,
    written: Written,
    hash: xxhash3_128::Hasher,
    encoding: Encoding,
}

/// How chunks are encoded.
enum Encoding {
    /// On the thread that the words come from: most processes end before they fill a chunk.
    Here(Box<ChunkEncoder>),
    /// One thread sorts words, another compresses and writes.
    Elsewhere(Stage<Vec<u64>, Sorting>),
    /// Not any more: something went wrong, and this has been said.
    Ended,
}

/// The state of the thread that sorts words.
struct Sorting {
    file: NativeFile,
    hash: xxhash3_128::Hasher,
    sorter: Sorter,
    sections: Sections,
    /// None once it has failed.
    compressing: Option<Stage<Sections, Compressing>>,
}

/// The state of the thread that compresses sections.
struct Compressing {
    compressor: Compressor,
    written: Written,
}

/// The chunks of a stream in the file.
struct Written {
    file: NativeFile,
    stream: u32,
    parts: [Vec<u8>; 2],
    totals: StreamTotals,
}

impl Chunks {
    /// A writer without chunks yet.
    pub fn new(file: &NativeFile, stream: u32) -> Self {
        Chunks {
            file: file.clone(),
            written: Written::new(file, stream),
            hash: xxhash3_128::Hasher::new(),
            encoding: Encoding::Here(Box::default()),
        }
    }

    /// Writes `words`, whole items, as a chunk, and clears them. With threads it is written later, and what
    /// goes wrong then is an error of a later call.
    pub fn write(&mut self, words: &mut Vec<u64>) -> Result<(), TraceError> {
        if words.len() >= CHUNK_WORDS {
            self.start_threads()?;
        }
        match &mut self.encoding {
            Encoding::Here(encoder) => {
                self.hash.write(bytemuck::cast_slice(words));
                let summary = encoder.encode(words, &mut self.written.parts);
                words.clear();
                self.written.append(&summary.map_err(|error| encoding_error(&self.file, error))?)
            }
            Encoding::Elsewhere(sorting) if sorting.send(words) => Ok(()),
            _ => {
                let error = self.file.error("a stream of it has failed");
                Err(self.end().err().unwrap_or(error))
            }
        }
    }

    /// Waits for all chunks, and returns the totals of the stream and the hash of its words.
    pub fn finish(mut self) -> Result<(StreamTotals, u128), TraceError> {
        self.end()?;
        Ok((self.written.totals, self.hash.finish_128()))
    }

    fn start_threads(&mut self) -> Result<(), TraceError> {
        let most = available_parallelism().map_or(1, usize::from);
        let Encoding::Here(encoder) = &mut self.encoding else { return Ok(()) };
        if WITH_THREADS.fetch_add(1, Ordering::Relaxed) >= most {
            WITH_THREADS.fetch_sub(1, Ordering::Relaxed);
            return Ok(());
        }
        let ChunkEncoder { sorter, sections, compressor } = std::mem::take(&mut **encoder);
        let failed = |error| self.file.error(error);
        let written = std::mem::replace(&mut self.written, Written::new(&self.file, 0));
        let compressing = Compressing { compressor, written };
        let compressing =
            Stage::start("compress", compressing, Compressing::take).map_err(failed)?;
        let (file, hash) = (self.file.clone(), self.hash.clone());
        let compressing = Some(compressing);
        let sorting = Sorting { file, hash, sorter, sections, compressing };
        let sorting = Stage::start("sort", sorting, Sorting::take).map_err(failed)?;
        self.encoding = Encoding::Elsewhere(sorting);
        Ok(())
    }

    /// Waits for threads.
    fn end(&mut self) -> Result<(), TraceError> {
        if let Encoding::Elsewhere(sorting) = std::mem::replace(&mut self.encoding, Encoding::Ended)
        {
            WITH_THREADS.fetch_sub(1, Ordering::Relaxed);
            let Sorting { hash, compressing, .. } = sorting.finish()?;
            self.hash = hash;
            if let Some(compressing) = compressing {
                self.written = compressing.finish()?.written;
            }
        }
        Ok(())
    }
}

impl Drop for Chunks {
    fn drop(&mut self) {
        if let Encoding::Elsewhere(_) = self.encoding {
            WITH_THREADS.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl Sorting {
    fn take(&mut self, words: &mut Vec<u64>) -> Result<(), TraceError> {
        self.hash.write(bytemuck::cast_slice(words));
        let sorted = self.sorter.sort(words, &mut self.sections);
        words.clear();
        sorted.map_err(|error| encoding_error(&self.file, error))?;
        match &self.compressing {
            Some(next) if next.send(&mut self.sections) => Ok(()),
            _ => {
                let failed = self.compressing.take().and_then(|next| next.finish().err());
                Err(failed.unwrap_or_else(|| self.file.error("a stream of it has failed")))
            }
        }
    }
}

impl Compressing {
    fn take(&mut self, sections: &mut Sections) -> Result<(), TraceError> {
        let summary = self.compressor.compress(sections, &mut self.written.parts);
        self.written.append(&summary)
    }
}

impl Written {
    fn new(file: &NativeFile, stream: u32) -> Self {
        let (parts, totals) = ([Vec::new(), Vec::new()], StreamTotals::default());
        Written { file: file.clone(), stream, parts, totals }
    }

    /// Appends the chunk in the parts to the file.
    fn append(&mut self, summary: &ChunkSummary) -> Result<(), TraceError> {
        let parts = [self.parts[0].as_slice(), self.parts[1].as_slice()];
        let mut header = FrameHeader::new(FrameKind::Chunk, self.stream, parts);
        header.first_instruction = self.totals.instructions;
        header.instructions = summary.instructions;
        header.references = summary.references;
        self.totals.instructions += summary.instructions;
        self.totals.references += summary.references;
        self.file.append(header, parts)
    }
}

fn encoding_error(file: &NativeFile, error: impl std::fmt::Display) -> TraceError {
    file.error(format!("a chunk cannot be encoded: {error}"))
}

/// A thread that works on what it is given, one after the other. It has no queue: who gives waits until it
/// takes.
struct Stage<T, S> {
    full: SyncSender<T>,
    /// The things that it has worked on, to be filled again.
    done: Receiver<T>,
    thread: JoinHandle<Result<S, TraceError>>,
}

impl<T: Default + Send + 'static, S: Send + 'static> Stage<T, S> {
    /// Starts the thread. It ends at the first error, and else when the stage is finished or dropped.
    fn start(
        name: &str,
        mut state: S,
        work: fn(&mut S, &mut T) -> Result<(), TraceError>,
    ) -> Result<Self, String> {
        let (full, taken) = mpsc::sync_channel::<T>(0);
        let (give_back, done) = mpsc::channel();
        let thread = threads::start(name, move || {
            for mut one in taken {
                work(&mut state, &mut one)?;
                // The stage may have been finished meanwhile.
                let _ = give_back.send(one);
            }
            Ok(state)
        })?;
        Ok(Stage { full, done, thread })
    }

    /// Gives the thread something, and puts something to be filled in its place. Returns whether it was taken.
    fn send(&self, one: &mut T) -> bool {
        let empty = self.done.try_recv().unwrap_or_default();
        self.full.send(std::mem::replace(one, empty)).is_ok()
    }

    /// Waits until all is done.
    fn finish(self) -> Result<S, TraceError> {
        drop(self.full);
        self.thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Error, Write};
    use std::sync::{Arc, Mutex};

    use octavo_types::{Consumer, Item, ItemKind, Segment, VirtAddr};

    use super::*;
    use crate::native::{Manifest, NativeSource};
    use crate::resampling::splitmix;
    use crate::ring::Encoder;
    use crate::sink::Output;
    use crate::source::{Batch, Input, InputOptions, Source, Step};
    use crate::stream::{Began, StreamEnd, StreamIdentity};

    /// A file in memory, on a disk with so many bytes.
    #[derive(Clone)]
    struct Memory(Arc<Mutex<Vec<u8>>>, usize);

    impl Write for Memory {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut file = self.0.lock().unwrap();
            if file.len() + bytes.len() > self.1 {
                return Err(Error::other("no room"));
            }
            file.write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// A definition, and so many executions with addresses that compress badly.
    fn words(executions: usize) -> Vec<u64> {
        let item = |kind, addr| {
            let addr = VirtAddr::new(addr);
            Item { kind, guarded: false, atomic: false, size_bytes: 8, addr }
        };
        let items = vec![item(ItemKind::Fetch, 0x1000), item(ItemKind::Load, 0)];
        let segment = Segment::new(items, vec![]).unwrap();
        let mut encoder = Encoder::default();
        for number in 0..executions as u64 {
            encoder.segment(&segment, &[VirtAddr::new(splitmix(number) >> 20)]);
        }
        encoder.words().to_vec()
    }

    /// Writes so many executions as one stream, some at a time.
    fn write(executions: usize, disk: usize) -> Result<Vec<u8>, TraceError> {
        let words = words(executions);
        let memory = Memory(Arc::default(), disk);
        let output = Output::to_writer("memory", Box::new(memory.clone()));
        let file = NativeFile::create(output, &Manifest::recorded(serde_json::Value::Null))?;
        let (began, program) = (Began::Start, String::new());
        let identity = StreamIdentity { stream: 0, parent: None, pid: 1, began, program };
        let mut stream = file.stream(&identity);
        let (definition, executions) = words.split_at(words.len() - 2 * executions);
        stream.put(definition)?;
        executions.chunks(100_000).try_for_each(|some| stream.put(some))?;
        stream.end(&StreamEnd::PLAIN)?;
        file.finish()?;
        let bytes = memory.0.lock().unwrap().clone();
        Ok(bytes)
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
        let with_threads = write(executions, usize::MAX).unwrap();
        WITH_THREADS.fetch_add(1 << 20, Ordering::Relaxed);
        let without = write(executions, usize::MAX).unwrap();
        WITH_THREADS.fetch_sub(1 << 20, Ordering::Relaxed);
        assert!(with_threads == without, "the files differ");
        assert!(read(with_threads) == words(executions), "the words differ");
    }

    #[test]
    fn a_thread_that_cannot_write_stops_the_stream() {
        for disk in [1000, 3_000_000, 8_000_000] {
            let written = write(2 * CHUNK_WORDS, disk).map(|trace| trace.len());
            let error = written.unwrap_err().to_string();
            assert!(error.contains("no room"), "{error}");
        }
    }
}
