//! The directory of a zip archive (PKWARE's APPNOTE.TXT, sections 4.3 and 4.5).
//!
//! It is read here and not by a library because libraries allocate room for as many members as an
//! archive claims to have, before they have read any.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The longest directory: some 250,000 chunks, each of which has ten million instructions.
const MAX_DIRECTORY_BYTES: u64 = 16 << 20;
/// The record at the end, without its comment.
const END_BYTES: usize = 22;
/// A member's entry, and its header before its data, without what varies.
const ENTRY_BYTES: usize = 46;
const HEADER_BYTES: u64 = 30;
/// How much of a member's name is kept.
const MAX_NAME: usize = 80;

/// Where a member stands in the archive, and what the archive says of it.
pub(super) struct Member {
    pub(super) name: String,
    /// Where its data begins, and how long it is as stored.
    pub(super) start: u64,
    pub(super) stored_bytes: u64,
    /// Expanded.
    pub(super) bytes: u64,
    pub(super) checksum: u32,
    /// 0 for stored, 8 for deflated.
    pub(super) method: u16,
    pub(super) encrypted: bool,
}

/// The members of an archive, in the order of its directory.
pub(super) fn members_of(file: &File) -> Result<Vec<Member>, String> {
    let length = file.metadata().map_err(|error| error.to_string())?.len();
    let archive = Archive { file, length };
    let (count, directory) = archive.directory()?;
    let mut rest = directory.as_slice();
    let mut members = Vec::new();
    for _ in 0..count {
        let broken = || format!("the entry {} of its directory is broken", members.len() + 1);
        let entry = rest.get(..ENTRY_BYTES).filter(|entry| entry.starts_with(b"PK\x01\x02"));
        let entry = entry.ok_or_else(broken)?;
        let [name, extra, comment] = [28, 30, 32].map(|at| usize::from(u16_at(entry, at)));
        let fields = rest.get(ENTRY_BYTES..ENTRY_BYTES + name + extra + comment);
        let fields = fields.ok_or_else(broken)?;
        let (name, after) = fields.split_at(name);
        let mut sizes = [24, 20, 42].map(|at| u64::from(u32_at(entry, at)));
        zip64(&mut sizes, &after[..extra]).ok_or_else(broken)?;
        let [bytes, stored_bytes, header] = sizes;
        let name: String = name.escape_ascii().take(MAX_NAME).map(char::from).collect();
        let start = archive.data_of(header, stored_bytes);
        members.push(Member {
            start: start.ok_or_else(|| format!("its member `{name}` is not where it should be"))?,
            name,
            stored_bytes,
            bytes,
            checksum: u32_at(entry, 16),
            method: u16_at(entry, 10),
            encrypted: u16_at(entry, 8) & 1 != 0,
        });
        rest = &rest[ENTRY_BYTES + fields.len()..];
    }
    Ok(members)
}

/// Takes the sizes of a member that 32 bits do not hold from its extra fields.
fn zip64(sizes: &mut [u64; 3], mut extra: &[u8]) -> Option<()> {
    while extra.len() >= 4 {
        let (kind, length) = (u16_at(extra, 0), usize::from(u16_at(extra, 2)));
        let field = extra.get(4..4 + length)?;
        extra = &extra[4 + length..];
        if kind == 1 {
            let mut values = field.chunks_exact(8).map(|value| u64_at(value, 0));
            for size in sizes.iter_mut().filter(|size| **size == u64::from(u32::MAX)) {
                *size = values.next()?;
            }
        }
    }
    Some(())
}

struct Archive<'a> {
    file: &'a File,
    length: u64,
}

impl Archive<'_> {
    /// How many members there are, and the entries of the directory.
    fn directory(&self) -> Result<(u64, Vec<u8>), String> {
        let tail_bytes = self.length.min(END_BYTES as u64 + u64::from(u16::MAX));
        let tail_at = self.length - tail_bytes;
        let tail = self.bytes(tail_at, tail_bytes).ok_or("cannot be read")?;
        let is_end = |at: &usize| {
            let end = &tail[*at..];
            end.starts_with(b"PK\x05\x06") && usize::from(u16_at(end, 20)) == end.len() - END_BYTES
        };
        let end = (0..(tail.len() + 1).saturating_sub(END_BYTES)).rev().find(is_end);
        let at = end.ok_or("is a zip archive without a directory at its end: it may be cut off")?;
        let end = &tail[at..];
        let mut count = u64::from(u16_at(end, 10));
        let mut place = [12, 16].map(|at| u64::from(u32_at(end, at)));
        if count == u64::from(u16::MAX) || place.contains(&u64::from(u32::MAX)) {
            // A larger record stands elsewhere; the locator right before this record has its place.
            let locator = (tail_at + at as u64).checked_sub(20).and_then(|at| self.bytes(at, 20));
            if let Some(locator) = locator.filter(|locator| locator.starts_with(b"PK\x06\x07")) {
                let end = self.bytes(u64_at(&locator, 8), 56);
                let end = end.filter(|end| end.starts_with(b"PK\x06\x06"));
                let end = end.ok_or("is a zip archive whose directory is not to be found")?;
                count = u64_at(&end, 32);
                place = [40, 48].map(|at| u64_at(&end, at));
            }
        }
        let [bytes, at] = place;
        if bytes > MAX_DIRECTORY_BYTES {
            return Err(format!("is a zip archive whose directory has {bytes} bytes"));
        }
        let directory = self.bytes(at, bytes);
        let directory = directory.ok_or("is a zip archive whose directory is not to be found")?;
        Ok((count, directory))
    }

    /// Where the data of the member begins whose header is at `header`, if all of it is there.
    fn data_of(&self, header: u64, stored_bytes: u64) -> Option<u64> {
        let local = self.bytes(header, HEADER_BYTES)?;
        let lengths = u64::from(u16_at(&local, 26)) + u64::from(u16_at(&local, 28));
        let start = header + HEADER_BYTES + lengths;
        let fits = start.checked_add(stored_bytes)? <= self.length;
        (local.starts_with(b"PK\x03\x04") && fits).then_some(start)
    }

    /// The `count` bytes from `at` on, if the file has them. Callers ask for no more than a
    /// directory has.
    fn bytes(&self, at: u64, count: u64) -> Option<Vec<u8>> {
        if at.checked_add(count)? > self.length {
            return None;
        }
        let mut bytes = vec![0; count as usize];
        self.file.read_exact_at(&mut bytes, at).ok()?;
        Some(bytes)
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
