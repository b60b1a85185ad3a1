//! One file of a trace: its bytes, and the reader's position.

use std::io::Read;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::layout::RAW;
use super::members::{Members, is_zip};
use super::program::Cursor;
use super::record::{RECORD_BYTES, Record, check_version, kind, marker};
use crate::source::{Input, InputOptions, Place, Progress, TraceError};

/// How many records are read at once where there are many files, and where there is one.
const BUFFER_RECORDS: Range<usize> = 2048..16 * 1024;

/// About how much of a file is searched for its first timestamp.
const MAX_HEADER_BYTES: u64 = 1 << 20;

/// One file.
pub(super) struct Part {
    name: String,
    path: Option<PathBuf>,
    options: InputOptions,
    bytes: Option<Bytes>,
    buffer: Vec<u8>,
    /// The part of the buffer that is not yet consumed.
    filled: Range<usize>,
    /// Where in the expanded file `filled` begins.
    at: u64,
    /// The last record taken was a footer.
    footed: bool,
    /// How much of the file as stored was read, and how much there is.
    progress: Progress,
    pub(super) cursor: Cursor,
}

/// Where a file's records come from.
enum Bytes {
    Stream(Input),
    Zip(Members),
}

impl Part {
    /// A file that is open already.
    pub(super) fn of_input(input: Input) -> Result<Self, TraceError> {
        let path = input.path().map(Path::to_owned);
        let mut part = Self::new(input.name().to_owned(), path, input.options());
        part.open_input(input)?;
        Ok(part)
    }

    /// A file of a directory, not opened yet.
    pub(super) fn of_path(path: &Path, options: InputOptions) -> Self {
        Self::new(path.display().to_string(), Some(path.to_owned()), options)
    }

    fn new(name: String, path: Option<PathBuf>, options: InputOptions) -> Self {
        let stored = path.as_deref().and_then(|path| std::fs::metadata(path).ok());
        let total = stored.filter(|stored| stored.is_file()).map(|stored| stored.len());
        Part {
            name,
            path,
            options,
            bytes: None,
            buffer: Vec::new(),
            filled: 0..0,
            at: 0,
            footed: false,
            progress: Progress { done: 0, total },
            cursor: Cursor::default(),
        }
    }

    fn open_input(&mut self, input: Input) -> Result<(), TraceError> {
        let whole = |what: &str| TraceError::whole(input.name(), what);
        let file_name = input.path().and_then(Path::file_name).map(|name| name.to_string_lossy());
        if file_name.is_some_and(|name| name.contains(".raw")) {
            return Err(whole(RAW));
        }
        let head = input.head();
        if head.starts_with(&[0x04, 0x22, 0x4d, 0x18]) {
            return Err(whole("is compressed by lz4, which is not read: expand it first"));
        }
        if head.starts_with(b"\xff\x06\0\0sNaPpY") {
            return Err(whole("is compressed by snappy, which is not read: expand it first"));
        }
        self.bytes = Some(if !is_zip(head) {
            Bytes::Stream(input)
        } else if let (Some(path), Some(_)) = (input.path(), self.progress.total) {
            Bytes::Zip(Members::open(path, self.options)?)
        } else {
            return Err(whole("is a zip archive, which can be read from a file only"));
        });
        Ok(())
    }

    /// The timestamp at which it begins, from its first marker; 0 if references come first. The
    /// file is closed again: there may be more of them than may be open at once.
    pub(super) fn first_timestamp(&mut self) -> Result<u64, TraceError> {
        let mut found = 0;
        'records: while self.at < MAX_HEADER_BYTES && self.fill()? {
            while let Some((record, _)) = self.next_record()? {
                match (record.kind, record.size) {
                    (kind::MARKER, marker::TIMESTAMP) => {
                        found = record.value;
                        break 'records;
                    }
                    (kind::MARKER | kind::HEADER | kind::THREAD | kind::PID, _) => {}
                    _ => break 'records,
                }
            }
        }
        let path = self.path.take().expect("only files of a directory are closed");
        *self = Self::of_path(&path, self.options);
        Ok(found)
    }

    /// Reads until there is a record at least; false at the file's end. A file that is not open is
    /// opened.
    pub(super) fn fill(&mut self) -> Result<bool, TraceError> {
        if self.filled.len() >= RECORD_BYTES {
            return Ok(true);
        }
        if self.bytes.is_none() {
            let path = self.path.as_deref().expect("what is not a file is open");
            let input = Input::open(path, self.options)?;
            self.open_input(input)?;
        }
        if self.buffer.is_empty() {
            let records =
                if self.path.is_some() { BUFFER_RECORDS.start } else { BUFFER_RECORDS.end };
            self.buffer = vec![0; records * RECORD_BYTES];
        }
        self.buffer.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        while self.filled.len() < RECORD_BYTES {
            let free = &mut self.buffer[self.filled.end..];
            let read = match self.bytes.as_mut().expect("it is open") {
                Bytes::Stream(input) => input.read(free),
                Bytes::Zip(members) => members.read(free),
            };
            match read {
                Ok(0) => return self.end(),
                Ok(read) => self.filled.end += read,
                Err(error) => return Err(self.wrong_at(self.at, error.to_string())),
            }
        }
        Ok(true)
    }

    /// The next record and where it stands, if it has been read; the first one must be a header.
    #[inline]
    pub(super) fn next_record(&mut self) -> Result<Option<(Record, u64)>, TraceError> {
        if self.filled.len() < RECORD_BYTES {
            return Ok(None);
        }
        let start = self.filled.start;
        let record = Record::read(&self.buffer[start..start + RECORD_BYTES]);
        let at = self.at;
        if at == 0 {
            self.check_header(record)?;
        }
        self.filled.start += RECORD_BYTES;
        self.at += RECORD_BYTES as u64;
        self.footed = record.kind == kind::FOOTER;
        Ok(Some((record, at)))
    }

    #[cold]
    fn check_header(&self, record: Record) -> Result<(), TraceError> {
        let whole = |what: String| TraceError::whole(&self.name, what);
        if record.kind != kind::HEADER || record.size != 0 {
            return Err(whole("does not begin as a final trace of drmemtrace".to_owned()));
        }
        check_version(record.value).map_err(whole)
    }

    fn end(&mut self) -> Result<bool, TraceError> {
        let left = self.filled.len();
        if left > 0 {
            let what = format!("ends in the middle of a record: {left} of {RECORD_BYTES} bytes");
            return Err(self.wrong_at(self.at, what));
        }
        if self.at == 0 {
            return Err(TraceError::whole(&self.name, "is empty"));
        }
        if !self.footed {
            return Err(self.wrong_at(self.at, "ends without a footer: it was cut off"));
        }
        Ok(false)
    }

    /// Closes a file that was read to its end.
    pub(super) fn close(&mut self) {
        // An archive's directory is not read a second time.
        let Progress { done, total } = self.progress();
        self.progress = Progress { done: total.unwrap_or(done), total };
        (self.bytes, self.buffer) = (None, Vec::new());
    }

    /// An error at this offset of the expanded file.
    pub(super) fn wrong_at(&self, at: u64, what: impl Into<String>) -> TraceError {
        TraceError::at(&self.name, Place::Byte(at), what)
    }

    pub(super) fn place(&self) -> Place {
        Place::Byte(self.at)
    }

    pub(super) fn progress(&self) -> Progress {
        match &self.bytes {
            None => self.progress,
            Some(Bytes::Stream(input)) => input.progress(),
            Some(Bytes::Zip(members)) => members.progress(),
        }
    }
}
