//! The final traces of DynamoRIO's drmemtrace.
//!
//! A trace is a file for each thread (or core), or a directory of them: a zip archive whose members
//! are chunks, a compressed stream, or plain. Each is a sequence of 12-byte records, as DynamoRIO's
//! `trace_entry.h` describes them (<https://dynamorio.org/sec_drcachesim_format.html>), versions 1
//! to 7: the changes between these concern markers that are skipped here. The raw files that the
//! tracer itself writes are another format, which DynamoRIO converts to this one.
//!
//! * Threads are merged by the timestamps in them: the one whose next timestamp is lowest goes on,
//!   until it meets a timestamp above another's.
//! * A chunk after the first begins with the record's ordinal and the last timestamp and processor
//!   again, and repeats encodings: all of these are skipped. A file must end with its footer.
//! * A reference of more than 4096 bytes becomes several, and one of size 0 (DynamoRIO does not
//!   know how much `xsave` touches) one of a byte: a note counts both.
//! * Prefetches and flushes are not references; an iteration of a string instruction after
//!   the first fetches nothing.

mod directory;
mod layout;
mod members;
mod merge;
mod part;
mod program;
mod record;
#[cfg(test)]
mod tests;
mod v2p;

use super::reader::ReaderSource;
use super::{Format, Likeness};
use crate::source::{Input, Source, TraceError};
use merge::Merge;
use record::{RECORD_BYTES, Record, is_version, kind, marker};

pub(super) use layout::is_directory;

/// The format's entry in the list.
pub static FORMAT: Format = Format {
    name: "drmemtrace",
    about: "final traces of DynamoRIO's drmemtrace: a thread's file, or a directory of them",
    suffixes: &["memtrace", "memtrace.zip", "trace", "trace.zip"],
    recognise,
    open,
    create: None,
};

/// A header and what follows it, or a zip archive of chunks.
fn recognise(head: &[u8]) -> Likeness {
    if members::is_zip(head) {
        // A local header's name stands at byte 30.
        let of_chunks = head.get(30..).is_some_and(|name| name.starts_with(b"chunk."));
        return if of_chunks { Likeness::Yes } else { Likeness::No };
    }
    let mut records = head.chunks_exact(RECORD_BYTES).map(Record::read);
    let (Some(first), Some(second)) = (records.next(), records.next()) else {
        return Likeness::No;
    };
    let header = first.kind == kind::HEADER && first.size == 0 && is_version(first.value);
    let follows = match second.kind {
        kind::MARKER => second.size == marker::VERSION && second.value == first.value,
        kind::THREAD => true,
        _ => false,
    };
    if header && follows { Likeness::Yes } else { Likeness::No }
}

fn open(input: Input) -> Result<Box<dyn Source>, TraceError> {
    let directory = input.path().filter(|path| path.is_dir()).map(|path| path.to_owned());
    let merge = match directory {
        Some(path) => Merge::of_directory(&path, input.options())?,
        None => Merge::of_file(input)?,
    };
    Ok(Box::new(ReaderSource::new(merge)))
}
