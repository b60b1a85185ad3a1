//! Traces made by hand: streams, archives, directories.

mod archives;
mod directories;
mod files;
mod random;

use std::fs;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};

use octavo_oracle::Reference;
use octavo_types::{Event, ItemKind, PhysAddr, VirtAddr};
use proptest::prelude::*;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::super::testing::{self, Drained, drain};
use super::record::{kind, marker};
use super::*;
use crate::source::{Batch, InputOptions, Progress, Step};

type Raw = (u16, u16, u64);

fn bytes_of(records: &[Raw]) -> Vec<u8> {
    let record = |(kind, size, value): &Raw| {
        [&kind.to_le_bytes()[..], &size.to_le_bytes(), &value.to_le_bytes()].concat()
    };
    records.iter().flat_map(record).collect()
}

/// The records that begin the file of a thread.
fn header(thread: u64, process: u64) -> Vec<Raw> {
    vec![
        (kind::HEADER, 0, 7),
        (kind::MARKER, marker::VERSION, 7),
        (kind::MARKER, marker::FILE_TYPE, 0x640),
        (kind::THREAD, 4, thread),
        (kind::PID, 4, process),
        (kind::MARKER, 10, 64),
        (kind::MARKER, 20, 10_000_000),
        (kind::MARKER, 18, 4096),
    ]
}

fn time(value: u64) -> Vec<Raw> {
    vec![(kind::MARKER, marker::TIMESTAMP, value), (kind::MARKER, 3, 0)]
}

fn end(thread: u64) -> Vec<Raw> {
    vec![(kind::THREAD_EXIT, 4, thread), (kind::FOOTER, 0, 0)]
}

fn whole(records: &[Raw]) -> Vec<u8> {
    bytes_of(&[&header(11, 11)[..], &time(1), records, &end(11)].concat())
}

fn read(bytes: &[u8]) -> Drained {
    testing::read(&FORMAT, bytes)
}

fn fetch(addr: u64, size_bytes: u16) -> Reference {
    Reference { kind: ItemKind::Fetch, addr: VirtAddr::new(addr), size_bytes }
}

fn load(addr: u64, size_bytes: u16) -> Reference {
    Reference { kind: ItemKind::Load, ..fetch(addr, size_bytes) }
}

fn store(addr: u64, size_bytes: u16) -> Reference {
    Reference { kind: ItemKind::Store, ..fetch(addr, size_bytes) }
}

/// A directory of its own, removed in the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("octavo-dr-{}-{name}", std::process::id()));
        drop(fs::remove_dir_all(&path));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn zipped(members: &[(&str, Vec<u8>)], method: CompressionMethod) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in members {
        let options = SimpleFileOptions::default().compression_method(method);
        zip.start_file(*name, options).unwrap();
        zip.write_all(bytes).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

fn gzipped(bytes: &[u8]) -> Vec<u8> {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(bytes).unwrap();
    gzip.finish().unwrap()
}

fn read_path(path: &Path) -> Drained {
    let opened = Input::open(path, InputOptions::default()).and_then(FORMAT.open);
    match opened {
        Ok(mut source) => drain(&mut *source),
        Err(error) => {
            let mut drained = read(b"");
            drained.error = Some(error);
            drained
        }
    }
}
