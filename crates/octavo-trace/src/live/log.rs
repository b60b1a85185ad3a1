//! The log: messages of Valgrind and of the tracer.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use crate::memory_file;

/// How much text is kept.
const KEPT_BYTES: usize = 4096;

/// A file in memory that all traced processes append to.
pub struct Log(File);

impl Log {
    /// An empty log.
    pub fn create() -> io::Result<Self> {
        memory_file::create(c"octavo-log").map(Log)
    }

    /// The descriptor that the program is started with.
    pub fn writer(&self) -> io::Result<OwnedFd> {
        memory_file::open_for_child(&self.0, libc::O_APPEND)
    }

    /// Its text, cut where it grows long.
    pub fn text(&self) -> String {
        let mut bytes = vec![0; KEPT_BYTES + 1];
        let mut used = 0;
        while let Ok(got @ 1..) = self.0.read_at(&mut bytes[used..], used as u64) {
            used += got;
        }
        let mut text = String::from_utf8_lossy(&bytes[..used.min(KEPT_BYTES)]).into_owned();
        if used > KEPT_BYTES {
            text.push_str("…\n");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn writers_append_to_one_text() {
        let log = Log::create().unwrap();
        let mut first = File::from(log.writer().unwrap());
        let mut second = File::from(log.writer().unwrap());
        first.write_all(b"one\n").unwrap();
        second.write_all(b"two\n").unwrap();
        assert_eq!(log.text(), "one\ntwo\n");
    }

    #[test]
    fn long_text_is_cut() {
        let log = Log::create().unwrap();
        File::from(log.writer().unwrap()).write_all("é".repeat(3000).as_bytes()).unwrap();
        assert_eq!(log.text(), "é".repeat(2048) + "…\n");
    }
}
