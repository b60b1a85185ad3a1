//! The bytes of a native trace: a seekable file, or a stream.

use std::fs::File;
use std::io::{self, BufReader, ErrorKind, Read, Seek, SeekFrom};

use super::frame::MAGIC;
use crate::source::{Input, Progress};

/// Where a trace is read from.
pub(super) enum Bytes {
    /// A plain file, and its length.
    File(BufReader<File>, u64),
    /// A pipe, or a compressed file.
    Pipe(Input),
}

impl Bytes {
    /// The bytes of `input`, from its beginning.
    pub(super) fn of(input: Input) -> Self {
        match input.plain_file(&MAGIC) {
            Some(file) => {
                let length = file.metadata().map_or(0, |metadata| metadata.len());
                Bytes::File(BufReader::with_capacity(1 << 16, file), length)
            }
            None => Bytes::Pipe(input),
        }
    }

    /// Whether it is a plain file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Bytes::File(..))
    }

    /// How much of the trace, as stored, has been read once the reader is at `position`.
    pub(super) fn progress(&self, position: u64) -> Progress {
        match self {
            Bytes::File(_, length) => Progress { done: position, total: Some(*length) },
            Bytes::Pipe(input) => input.progress(),
        }
    }

    /// Goes on at `position`, of a plain file.
    pub(super) fn seek(&mut self, position: u64) -> io::Result<()> {
        match self {
            Bytes::File(file, _) => file.seek(SeekFrom::Start(position)).map(drop),
            Bytes::Pipe(_) => Err(ErrorKind::NotSeekable.into()),
        }
    }

    /// Skips `bytes` bytes, all of which must be there.
    pub(super) fn skip(&mut self, bytes: u32) -> io::Result<()> {
        match self {
            Bytes::File(file, length) => {
                // A seek past the end would go unnoticed.
                if file.stream_position()? + u64::from(bytes) > *length {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                file.seek_relative(i64::from(bytes))
            }
            Bytes::Pipe(input) => {
                let skipped = io::copy(&mut input.take(u64::from(bytes)), &mut io::sink())?;
                if skipped < u64::from(bytes) {
                    Err(ErrorKind::UnexpectedEof.into())
                } else {
                    Ok(())
                }
            }
        }
    }
}

impl Read for Bytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Bytes::File(file, _) => file.read(buffer),
            Bytes::Pipe(input) => input.read(buffer),
        }
    }
}
