//! The members of a zip archive, one after the other.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::Crc;
use flate2::bufread::DeflateDecoder;

use super::directory::{Member, members_of};
use super::record::RECORD_BYTES;
use crate::source::{Counted, InputOptions, Progress, TraceError};

/// The compression methods that DynamoRIO's archives have.
const STORED: u16 = 0;
const DEFLATED: u16 = 8;
/// How much compressed data is read at once.
const BUFFER_BYTES: usize = 1 << 15;

/// Whether `head` is the start of a zip archive, be it empty.
pub(super) fn is_zip(head: &[u8]) -> bool {
    head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06")
}

/// An archive's members on their way in.
pub(super) struct Members {
    file: File,
    members: Vec<Member>,
    next: usize,
    current: Option<Current>,
    read_bytes: Arc<AtomicU64>,
    total_bytes: u64,
}

/// The member that is being read.
struct Current {
    data: Box<dyn Read + Send>,
    left: u64,
    checksum: Crc,
}

impl Members {
    /// The members of the archive `path`.
    pub(super) fn open(path: &Path, options: InputOptions) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let wrong = |what: String| TraceError::whole(&name, what);
        let file = File::open(path).map_err(|error| wrong(error.to_string()))?;
        let metadata = file.metadata().map_err(|error| wrong(error.to_string()))?;
        let members = members_of(&file).map_err(wrong)?;
        let mut total: u64 = 0;
        for Member { name, bytes, method, encrypted, .. } in &members {
            let what = if *encrypted {
                "is encrypted".to_owned()
            } else if !matches!(*method, STORED | DEFLATED) {
                format!("is compressed by the method {method}, which is not read")
            } else if !bytes.is_multiple_of(RECORD_BYTES as u64) {
                format!("has {bytes} bytes, which are not whole records")
            } else {
                total = total.saturating_add(*bytes);
                continue;
            };
            return Err(wrong(format!("its member `{name}` {what}")));
        }
        if total > options.max_expanded_bytes {
            let most = options.max_expanded_bytes;
            return Err(wrong(format!("expands to more than {most} bytes; raise --max-expansion")));
        }
        Ok(Members {
            file,
            members,
            next: 0,
            current: None,
            read_bytes: Arc::default(),
            total_bytes: metadata.len(),
        })
    }

    /// How much of the file has been read.
    pub(super) fn progress(&self) -> Progress {
        let done = self.read_bytes.load(Ordering::Relaxed);
        Progress { done: done.min(self.total_bytes), total: Some(self.total_bytes) }
    }

    fn begin(&mut self) -> io::Result<()> {
        let member = &self.members[self.next];
        self.next += 1;
        let mut file = self.file.try_clone()?;
        file.seek(SeekFrom::Start(member.start))?;
        let counted = Counted { inner: file, count: self.read_bytes.clone() };
        let stored = BufReader::with_capacity(BUFFER_BYTES, counted.take(member.stored_bytes));
        let data: Box<dyn Read + Send> = match member.method {
            DEFLATED => Box::new(DeflateDecoder::new(stored)),
            _ => Box::new(stored),
        };
        self.current = Some(Current { data, left: member.bytes, checksum: Crc::new() });
        Ok(())
    }
}

impl Read for Members {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some(current) = &mut self.current else {
                if self.next == self.members.len() || buffer.is_empty() {
                    return Ok(0);
                }
                self.begin()?;
                continue;
            };
            let Member { name, bytes, checksum, .. } = &self.members[self.next - 1];
            if current.left == 0 {
                if current.checksum.sum() != *checksum {
                    let what = format!("its member `{name}` is broken: its checksum differs");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                }
                self.current = None;
                continue;
            }
            let room = buffer.len().min(usize::try_from(current.left).unwrap_or(usize::MAX));
            let what = match current.data.read(&mut buffer[..room]) {
                Ok(0) => "is cut off",
                Ok(read) => {
                    current.checksum.update(&buffer[..read]);
                    current.left -= read as u64;
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => "is cut off",
                Err(_) => "is broken",
            };
            let after = bytes - current.left;
            let what = format!("its member `{name}` {what} after {after} expanded bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
    }
}
