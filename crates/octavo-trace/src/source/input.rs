//! A file or a pipe, decompressed on the way in.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::expand::expanded;
use super::{Progress, TraceError};

/// How many bytes are read to recognise a trace's format.
const HEAD_BYTES: usize = 4096;

/// How far a compressed input may go before it is taken for a bomb. Uncompressed input has no
/// limit.
#[derive(Clone, Copy, Debug)]
pub struct InputOptions {
    /// The most bytes that a compressed trace may expand to: 1 TiB.
    pub max_expanded_bytes: u64,
    /// The most bytes that one compressed byte may stand for, checked from 64 MiB on: 100,000.
    ///
    /// A trace that repeats a few references for ever stays far below: a loop of two or three
    /// references, as text or as records, expands 12,000-fold under zstd, 8,400 under bzip2, 6,900
    /// under xz and 420 under gzip. A run of one byte, which no trace is, reaches 1,032 under gzip,
    /// 6,900 under xz and 32,768 under zstd at the very most, so that these are bounded by
    /// `max_expanded_bytes` alone; under bzip2 it passes a million.
    pub max_ratio: u64,
    /// The most memory that a decompressor may use beside its buffers of some hundred kilobytes:
    /// 128 MiB. It is the memory limit of xz and the window of zstd, rounded down to a power of
    /// two; gzip and bzip2 need less than 5 MB whatever they read.
    pub max_decoder_bytes: u64,
}

impl Default for InputOptions {
    fn default() -> Self {
        InputOptions {
            max_expanded_bytes: 1 << 40,
            max_ratio: 100_000,
            max_decoder_bytes: 128 << 20,
        }
    }
}

/// A trace's bytes, with its name and its first few kilobytes known.
///
/// gzip, xz, bzip2 and zstd are recognised by their first bytes, not by the file's name, and
/// expanded once (a `.gz` in a `.xz` stays a `.gz`). All members, streams and frames of a file are
/// read; anything else after them is an error. If the compressed data is broken, cut off, or
/// expands beyond the limits, the part before is read first, and then the error is returned.
pub struct Input {
    name: String,
    path: Option<PathBuf>,
    options: InputOptions,
    /// Decompressed.
    reader: Box<dyn Read + Send>,
    head: Vec<u8>,
    head_used: usize,
    /// The error that ended the input; returned once the head is used up, and by every later read.
    failed: Option<(ErrorKind, String)>,
    meter: Meter,
}

impl Input {
    /// Opens a file. A directory can be opened too, for the formats that are directories: it has a
    /// path and no bytes.
    pub fn open(path: &Path, options: InputOptions) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let fail = |error: io::Error| TraceError::whole(&name, format!("{error}"));
        let file = File::open(path).map_err(fail)?;
        let metadata = file.metadata().map_err(fail)?;
        let total_bytes = metadata.is_file().then_some(metadata.len());
        let mut input = if metadata.is_dir() {
            let mut empty = Self::new(name, Box::new(io::empty()), None, options)?;
            empty.failed = Some((ErrorKind::IsADirectory, "is a directory".to_owned()));
            empty
        } else {
            Self::new(name, Box::new(file), total_bytes, options)?
        };
        input.path = Some(path.to_owned());
        Ok(input)
    }

    /// Reads standard input.
    pub fn stdin(options: InputOptions) -> Result<Self, TraceError> {
        Self::from_reader("standard input", Box::new(io::stdin()), options)
    }

    /// Reads `reader`: a pipe, or bytes in memory.
    pub fn from_reader(
        name: &str,
        reader: Box<dyn Read + Send>,
        options: InputOptions,
    ) -> Result<Self, TraceError> {
        Self::new(name.to_owned(), reader, None, options)
    }

    fn new(
        name: String,
        reader: Box<dyn Read + Send>,
        total_bytes: Option<u64>,
        options: InputOptions,
    ) -> Result<Self, TraceError> {
        let read_bytes = Arc::new(AtomicU64::new(0));
        let counted = Counted { inner: reader, count: read_bytes.clone() };
        let reader = expanded(Box::new(counted), read_bytes.clone(), options)
            .map_err(|error| TraceError::whole(&name, format!("{error}")))?;
        let mut input = Input {
            name,
            path: None,
            options,
            reader,
            head: vec![0; HEAD_BYTES],
            head_used: 0,
            failed: None,
            meter: Meter { read_bytes, total_bytes },
        };
        input.read_head();
        Ok(input)
    }

    fn read_head(&mut self) {
        let mut length = 0;
        while length < HEAD_BYTES {
            match self.reader.read(&mut self.head[length..]) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) => {
                    self.failed = Some((error.kind(), error.to_string()));
                    break;
                }
            }
        }
        self.head.truncate(length);
    }

    /// The trace's name, in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The file or directory, if it is one: a format that must seek opens it again.
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file itself, from its beginning, if it is a plain file that begins with `beginning`, and
    /// so is not compressed.
    pub fn plain_file(&self, beginning: &[u8]) -> Option<File> {
        let path = self.path.as_ref()?;
        // A pipe that has a name must not be opened again: it would wait for another writer, or
        // take bytes away from this reader.
        if !path.is_file() {
            return None;
        }
        let mut file = File::open(path).ok()?;
        let mut first = vec![0; beginning.len()];
        file.read_exact(&mut first).ok()?;
        file.rewind().ok()?;
        (first == beginning).then_some(file)
    }

    /// The limits of the input.
    pub fn options(&self) -> InputOptions {
        self.options
    }

    /// Its first bytes, decompressed: 4 KiB unless it is shorter.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// How much of the file, as stored, has been read.
    pub fn progress(&self) -> Progress {
        self.meter.progress()
    }

    /// The meter of this input, which outlives it.
    pub(crate) fn meter(&self) -> Meter {
        self.meter.clone()
    }
}

/// Measures how much of an input has been read.
#[derive(Clone)]
pub(crate) struct Meter {
    read_bytes: Arc<AtomicU64>,
    total_bytes: Option<u64>,
}

impl Meter {
    pub(crate) fn progress(&self) -> Progress {
        Progress { done: self.read_bytes.load(Ordering::Relaxed), total: self.total_bytes }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let head = &self.head[self.head_used..];
        if !head.is_empty() {
            let count = head.len().min(buffer.len());
            buffer[..count].copy_from_slice(&head[..count]);
            self.head_used += count;
            return Ok(count);
        }
        if let Some((kind, what)) = &self.failed {
            return Err(io::Error::new(*kind, what.clone()));
        }
        self.reader.read(buffer).inspect_err(|error| {
            self.failed = Some((error.kind(), error.to_string()));
        })
    }
}

/// Counts the bytes that are read from a file as stored. A read that a signal interrupts is
/// repeated.
pub(crate) struct Counted<R> {
    pub(crate) inner: R,
    pub(crate) count: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.inner.read(buffer) {
                Ok(read) => {
                    self.count.fetch_add(read as u64, Ordering::Relaxed);
                    return Ok(read);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
