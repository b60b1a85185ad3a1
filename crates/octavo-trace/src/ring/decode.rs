//! From words to segments and events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use octavo_types::{
    AddrRange, Consumer, Dependences, Event, Item, ItemKind, MapSource, PhysAddr, Protection,
    Segment, SegmentError, VirtAddr,
};
use twox_hash::xxhash3_128::Hasher;

use super::format::{self, kind};
use crate::relocation::Relocation;

/// How many items the segments of streams that are read together may have, a segment itself
/// counting as [`SEGMENT_ITEMS`]: some two gigabytes of memory. The largest programs stay below a
/// twentieth of it.
const MAX_ITEMS: usize = 1 << 25;
/// What a segment takes beside its items, in items.
const SEGMENT_ITEMS: usize = 4;

/// Words that no tracer of ours writes.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// A segment executes that was never defined.
    #[error("segment {0} executes but was never defined")]
    Undefined(u64),
    /// An execution or a record ends outside its chunk.
    #[error("a chunk ends in the middle of an item")]
    Torn,
    /// A definition is out of order.
    #[error("segment {got} is defined where {expected} is the next new one")]
    DefinitionOrder {
        /// The next new number.
        expected: usize,
        /// The number that came.
        got: u64,
    },
    /// A definition is no segment.
    #[error("segment {id} is not well formed: {source}")]
    Segment {
        /// Its number.
        id: u64,
        /// What is wrong.
        source: SegmentError,
    },
    /// More definitions than memory is given for.
    #[error("the segments have more than {MAX_ITEMS} items together")]
    TooManyItems,
    /// A record is too short or its kind unknown.
    #[error("a record of kind {kind} with {words} payload words is not known")]
    Record {
        /// Its kind.
        kind: u8,
        /// Its length.
        words: usize,
    },
}

/// What a process says of itself when its stream begins.
#[derive(Clone, Debug, Default)]
pub struct Start {
    /// The executable.
    pub program: String,
    /// From traced addresses to those that Linux would have given.
    pub relocation: Relocation,
    /// The most that the main stack may grow to, as traced.
    pub stack: Option<AddrRange>,
}

/// What takes a decoded stream. Most take executions and events as any [`Consumer`] does; one that
/// keeps or passes on the words themselves finds them here.
pub trait WordConsumer: Consumer {
    /// One execution of `segment`: its number, and its data addresses.
    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        self.segment(segment, VirtAddr::slice_from_raw(&words[1..]));
    }

    /// A record, and what it tells if that is an event. The description of the process, and
    /// definitions, come here too.
    fn record(&mut self, words: &[u64], event: Option<&Event>) {
        let _ = words;
        if let Some(event) = event {
            self.event(event);
        }
    }

    /// The process has described itself.
    fn started(&mut self, start: &Start) {
        let _ = start;
    }
}

/// The memory that the decoders of one trace have for segments, all together: a trace may have
/// many streams.
#[derive(Clone, Debug, Default)]
pub struct SegmentRoom(Arc<AtomicUsize>);

/// Decodes one stream: holds its segments, and hashes what passes.
#[derive(Default)]
pub struct Decoder {
    segments: Vec<Segment>,
    /// By segment, how many addresses come with an execution. Apart, as where the next execution is
    /// has to be known before anything else can be done: these numbers stay in the nearest cache.
    addresses: Vec<u32>,
    /// How many items these have together.
    items: usize,
    room: SegmentRoom,
    start: Option<Start>,
    /// By a crate that uses AVX2 where the processor has it: every word of every stream is hashed.
    hash: Hasher,
}

impl Decoder {
    /// A decoder of one stream among several: their segments share `room`.
    pub fn sharing(room: &SegmentRoom) -> Self {
        let mut decoder = Decoder::default();
        decoder.room = room.clone();
        decoder
    }

    /// The process's description, once it has come.
    pub fn start(&self) -> Option<&Start> {
        self.start.as_ref()
    }

    /// How many segments are defined.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// The xxh3-128 of every word so far.
    pub fn hash(&self) -> u128 {
        self.hash.finish_128()
    }

    /// Decodes `words`, whole items only, into `consumer`.
    pub fn decode<C: WordConsumer>(
        &mut self,
        words: &[u64],
        consumer: &mut C,
    ) -> Result<(), DecodeError> {
        // SAFETY: any bytes of a slice of words may be read as bytes.
        let bytes = unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), 8 * words.len()) };
        self.hash.write(bytes);
        let mut rest = words;
        loop {
            rest = self.execute(rest, consumer)?;
            let [header, tail @ ..] = rest else { return Ok(()) };
            let count = format::record_words(*header);
            let payload = tail.get(..count).ok_or(DecodeError::Torn)?;
            let record = &rest[..=count];
            rest = &tail[count..];
            match format::record_kind(*header) {
                kind::DEFINE => {
                    self.define(payload)?;
                    consumer.record(record, None);
                }
                kind::START => {
                    let start = read_start(payload)?;
                    consumer.record(record, None);
                    consumer.started(&start);
                    self.start = Some(start);
                }
                _ => consumer.record(record, Some(&read_event(*header, payload)?)),
            }
        }
    }

    /// Executes segments up to the next record; returns the words from it on.
    #[inline(always)]
    fn execute<'w, C: WordConsumer>(
        &self,
        words: &'w [u64],
        consumer: &mut C,
    ) -> Result<&'w [u64], DecodeError> {
        let mut rest = words;
        while let Some(header) = rest.first() {
            if header & format::RECORD != 0 {
                break;
            }
            let Some(addresses) = self.addresses.get(*header as usize) else {
                return Err(DecodeError::Undefined(*header));
            };
            let (execution, after) =
                rest.split_at_checked(1 + *addresses as usize).ok_or(DecodeError::Torn)?;
            consumer.execution(&self.segments[*header as usize], execution);
            rest = after;
        }
        Ok(rest)
    }

    fn define(&mut self, payload: &[u64]) -> Result<(), DecodeError> {
        let (id, segment) = read_definition(payload)?;
        let room = room_of(&segment);
        self.items += room;
        if self.room.0.fetch_add(room, Ordering::Relaxed) + room > MAX_ITEMS {
            return Err(DecodeError::TooManyItems);
        }
        let expected = self.segments.len();
        let addresses = segment.data().len() as u32;
        if let Some(known) = self.segments.get_mut(id as usize) {
            self.items -= room_of(known);
            self.room.0.fetch_sub(room_of(known), Ordering::Relaxed);
            *known = segment;
            self.addresses[id as usize] = addresses;
        } else if id == expected as u64 {
            self.segments.push(segment);
            self.addresses.push(addresses);
        } else {
            return Err(DecodeError::DefinitionOrder { expected, got: id });
        }
        Ok(())
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.items, Ordering::Relaxed);
    }
}

fn room_of(segment: &Segment) -> usize {
    segment.items().len() + SEGMENT_ITEMS
}

/// Reads a record's payload word by word.
struct Payload<'w> {
    kind: u8,
    all: &'w [u64],
    rest: &'w [u64],
}

impl<'w> Payload<'w> {
    fn new(kind: u8, words: &'w [u64]) -> Self {
        Payload { kind, all: words, rest: words }
    }

    fn bad(&self) -> DecodeError {
        DecodeError::Record { kind: self.kind, words: self.all.len() }
    }

    fn word(&mut self) -> Result<u64, DecodeError> {
        let (first, rest) = self.rest.split_first().ok_or_else(|| self.bad())?;
        self.rest = rest;
        Ok(*first)
    }

    fn range(&mut self) -> Result<AddrRange, DecodeError> {
        let start = VirtAddr::new(self.word()?);
        Ok(AddrRange::new(start, self.word()?))
    }

    fn number(&mut self) -> Result<u32, DecodeError> {
        Ok(self.word()? as u32)
    }

    fn text(&mut self) -> Result<String, DecodeError> {
        let length = self.word()? as usize;
        if length > 8 * self.rest.len() {
            return Err(self.bad());
        }
        let words = length.div_ceil(8);
        let bytes: Vec<u8> =
            self.rest[..words].iter().flat_map(|word| word.to_le_bytes()).collect();
        self.rest = &self.rest[words..];
        Ok(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

fn read_definition(payload: &[u64]) -> Result<(u64, Segment), DecodeError> {
    let mut words = Payload::new(kind::DEFINE, payload);
    let first = words.word()?;
    let (id, count) = (first & 0xffff_ffff, (first >> 32) as usize);
    let instructions = words.word()? as usize;
    if count > payload.len() || instructions > payload.len() {
        return Err(words.bad());
    }
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        let word = words.word()?;
        let kind = match word & 3 {
            0 => ItemKind::Fetch,
            1 => ItemKind::Load,
            2 => ItemKind::Store,
            _ => ItemKind::Modify,
        };
        let addr = if kind == ItemKind::Fetch { words.word()? } else { 0 };
        items.push(Item {
            kind,
            guarded: word & 4 != 0,
            atomic: word & 8 != 0,
            size_bytes: (word >> 16) as u16,
            addr: VirtAddr::new(addr),
        });
    }
    let mut dependences = Vec::with_capacity(instructions);
    for _ in 0..instructions {
        let (producers, reads, writes) = (words.word()?, words.word()?, words.word()?);
        dependences.push(Dependences { producers, reads, writes });
    }
    let segment =
        Segment::new(items, dependences).map_err(|source| DecodeError::Segment { id, source })?;
    Ok((id, segment))
}

fn read_start(payload: &[u64]) -> Result<Start, DecodeError> {
    let mut words = Payload::new(kind::START, payload);
    let mut moves = Vec::new();
    for _ in 0..format::LAYOUT_RANGES {
        let (start, end, delta) = (words.word()?, words.word()?, words.word()?);
        if start < end {
            moves.push((AddrRange::new(VirtAddr::new(start), end - start), delta));
        }
    }
    let (start, end) = (words.word()?, words.word()?);
    let stack = AddrRange::new(VirtAddr::new(start), end.saturating_sub(start));
    Ok(Start {
        program: words.text()?,
        relocation: Relocation::new(moves),
        stack: (!stack.is_empty()).then_some(stack),
    })
}

fn read_event(header: u64, payload: &[u64]) -> Result<Event, DecodeError> {
    let mut words = Payload::new(format::record_kind(header), payload);
    Ok(match words.kind {
        kind::MAP => {
            let range = words.range()?;
            let protection = Protection::from_bits(words.word()?);
            let (flags, source, offset_bytes) = (words.word()?, words.word()?, words.word()?);
            let path = words.text()?;
            let source = match source {
                0 => MapSource::Anonymous,
                1 => MapSource::File { path, offset_bytes },
                2 => MapSource::Stack,
                3 => MapSource::Heap,
                4 => MapSource::Shared,
                _ => return Err(words.bad()),
            };
            Event::Map { range, protection, source, flags }
        }
        kind::UNMAP => Event::Unmap { range: words.range()? },
        kind::REMAP => Event::Remap { from: words.range()?, to: words.range()? },
        kind::PROTECT => Event::Protect {
            range: words.range()?,
            protection: Protection::from_bits(words.word()?),
        },
        kind::ADVISE => Event::Advise { range: words.range()?, advice: words.word()? },
        kind::THREAD_START => Event::ThreadStart { thread: words.number()? },
        kind::THREAD_SWITCH => Event::ThreadSwitch { thread: words.number()? },
        kind::THREAD_END => Event::ThreadEnd { thread: words.number()? },
        kind::FORK => Event::Fork { child: words.number()? },
        kind::EXEC => Event::Exec { path: words.text()? },
        kind::SIGNAL => Event::Signal { signal: words.number()? },
        kind::MARK => Event::Mark { value: words.word()? },
        kind::TRANSLATION => Event::Translation {
            virt: VirtAddr::new(words.word()?),
            phys: PhysAddr::new(words.word()?),
        },
        kind::EXIT => Event::Exit { code: words.word()? as i32 },
        _ => return Err(words.bad()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::WordWriter;

    struct Nothing;

    impl Consumer for Nothing {
        fn segment(&mut self, _: &Segment, _: &[VirtAddr]) {}
        fn event(&mut self, _: &Event) {}
    }

    impl WordConsumer for Nothing {}

    /// Segments of 1000 fetches each, the same for every stream.
    fn definitions(count: u32) -> Vec<u64> {
        let item = Item {
            kind: ItemKind::Fetch,
            guarded: false,
            atomic: false,
            size_bytes: 1,
            addr: VirtAddr::new(0x1000),
        };
        let mut words = WordWriter::default();
        (0..count).for_each(|number| words.define_items(number, &[item; 1000], &[]));
        words.words().to_vec()
    }

    /// However the words are cut into chunks, and whoever computes it.
    #[test]
    fn the_hash_is_xxh3_of_all_words() {
        for definitions_each in [1, 7, 100] {
            let (mut decoder, mut all) = (Decoder::default(), Vec::new());
            for _ in 0..3 {
                let words = definitions(definitions_each);
                decoder.decode(&words, &mut Nothing).unwrap();
                all.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
                assert_eq!(decoder.hash(), xxhash_rust::xxh3::xxh3_128(&all));
            }
        }
    }

    #[test]
    fn the_streams_of_a_trace_share_the_room_for_segments() {
        let (words, room) = (definitions(1000), SegmentRoom::default());
        let mut decoders = Vec::new();
        let refused = loop {
            let mut decoder = Decoder::sharing(&room);
            let decoded = decoder.decode(&words, &mut Nothing);
            decoders.push(decoder);
            if decoded.is_err() {
                break decoded;
            }
        };
        assert!(matches!(refused, Err(DecodeError::TooManyItems)));
        assert_eq!(decoders.len(), MAX_ITEMS / 1_004_000 + 1);
        decoders.clear();
        assert_eq!(room.0.load(Ordering::Relaxed), 0);
        assert!(Decoder::sharing(&room).decode(&words, &mut Nothing).is_ok());
    }
}
