//! From segments and events to the ring's words: what the tracer does, for streams of our own
//! making.

use octavo_types::{
    AddrRange, Consumer, Event, ItemKind, MapSource, Protection, Segment, VirtAddr,
};
use rustc_hash::FxHashMap;

use super::format::{self, kind};

/// Encodes the stream that it consumes. A segment is defined when it first executes.
#[derive(Default)]
pub struct Encoder {
    words: Vec<u64>,
    segments: FxHashMap<Segment, u64>,
}

impl Encoder {
    /// The words so far.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The number of a segment, defined if it is new; one without dependences gets empty ones.
    fn intern(&mut self, segment: &Segment) -> u64 {
        if let Some(id) = self.segments.get(segment) {
            return *id;
        }
        let id = self.segments.len() as u64;
        self.segments.insert(segment.clone(), id);
        self.record(kind::DEFINE, |words| {
            words.push(id | (segment.items().len() as u64) << 32);
            words.push(u64::from(segment.instructions()));
            for item in segment.items() {
                let kind = match item.kind {
                    ItemKind::Fetch => 0,
                    ItemKind::Load => 1,
                    ItemKind::Store => 2,
                    ItemKind::Modify => 3,
                };
                let flags = u64::from(item.guarded) << 2 | u64::from(item.atomic) << 3;
                words.push(kind | flags | u64::from(item.size_bytes) << 16);
                if item.kind == ItemKind::Fetch {
                    words.push(item.addr.raw());
                }
            }
            for index in 0..segment.instructions() as usize {
                let of = segment.dependences().get(index).copied().unwrap_or_default();
                words.extend([of.producers, of.reads, of.writes]);
            }
        });
        id
    }

    fn number(&mut self, kind: u8, value: u64) {
        self.record(kind, |words| words.push(value));
    }

    fn record(&mut self, kind: u8, payload: impl FnOnce(&mut Vec<u64>)) {
        let header = self.words.len();
        self.words.push(0);
        payload(&mut self.words);
        let count = self.words.len() - header - 1;
        self.words[header] = format::RECORD | u64::from(kind) << 48 | count as u64;
    }
}

impl Consumer for Encoder {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let id = self.intern(segment);
        self.words.push(id);
        self.words.extend(addresses.iter().map(|addr| addr.raw()));
    }

    fn event(&mut self, event: &Event) {
        use Event::{
            Advise, Exec, Exit, Fork, Map, Mark, Protect, Remap, Signal, ThreadEnd, ThreadStart,
            ThreadSwitch, Unmap,
        };
        match event {
            Map { range, protection, source, flags } => {
                let empty = String::new();
                let (number, offset, path) = match source {
                    MapSource::Anonymous => (0, 0, &empty),
                    MapSource::File { path, offset_bytes } => (1, *offset_bytes, path),
                    MapSource::Stack => (2, 0, &empty),
                    MapSource::Heap => (3, 0, &empty),
                    MapSource::Shared => (4, 0, &empty),
                };
                self.record(kind::MAP, |words| {
                    push_range(words, *range);
                    words.extend([bits(*protection), *flags, number, offset]);
                    push_text(words, path);
                });
            }
            Unmap { range } => self.record(kind::UNMAP, |words| push_range(words, *range)),
            Remap { from, to } => self.record(kind::REMAP, |words| {
                push_range(words, *from);
                push_range(words, *to);
            }),
            Protect { range, protection } => self.record(kind::PROTECT, |words| {
                push_range(words, *range);
                words.push(bits(*protection));
            }),
            Advise { range, advice } => self.record(kind::ADVISE, |words| {
                push_range(words, *range);
                words.push(*advice);
            }),
            ThreadStart { thread } => self.number(kind::THREAD_START, u64::from(*thread)),
            ThreadSwitch { thread } => self.number(kind::THREAD_SWITCH, u64::from(*thread)),
            ThreadEnd { thread } => self.number(kind::THREAD_END, u64::from(*thread)),
            Fork { child } => self.number(kind::FORK, u64::from(*child)),
            Exec { path } => self.record(kind::EXEC, |words| push_text(words, path)),
            Signal { signal } => self.number(kind::SIGNAL, u64::from(*signal)),
            Mark { value } => self.number(kind::MARK, *value),
            Exit { code } => self.number(kind::EXIT, *code as u64),
        }
    }
}

fn push_range(words: &mut Vec<u64>, range: AddrRange) {
    words.extend([range.start().raw(), range.bytes()]);
}

fn push_text(words: &mut Vec<u64>, text: &str) {
    words.push(text.len() as u64);
    for part in text.as_bytes().chunks(8) {
        let mut word = [0; 8];
        word[..part.len()].copy_from_slice(part);
        words.push(u64::from_le_bytes(word));
    }
}

fn bits(protection: Protection) -> u64 {
    u64::from(protection.read)
        | u64::from(protection.write) << 1
        | u64::from(protection.execute) << 2
}
