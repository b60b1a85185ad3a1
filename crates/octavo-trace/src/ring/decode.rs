//! Decodes words to segments and events.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use octavo_types::{
    AddressRoom, AddressWidth, Consumer, DataItem, Event, Outline, Segment, SegmentCounts, VirtAddr,
};

use super::error::{DecodeError, MAX_ITEMS};
use super::format::{self, kind};
use super::record::{Start, read_definition, read_event, read_start};
use crate::words_hash::WordsHash;

/// The memory of a segment beside its items, in items.
const SEGMENT_ITEMS: usize = 6;

/// A consumer of a decoded stream that also gets the encoded words: for consumers that keep or pass
/// on words, or that need the numbers of segments. Others implement [`StreamConsumer`].
pub trait WordConsumer {
    /// The width of the addresses that it takes: addresses that are not canonical in this width are
    /// folded for it. With `None` it gets all addresses as written.
    fn width(&self) -> Option<AddressWidth> {
        Some(AddressWidth::LA57)
    }

    /// One execution of `segment`: its number, and the addresses of its address groups.
    fn execution(&mut self, segment: &Segment, words: &[u64]);

    /// Takes executions from the beginning of `words`, as many as it can take faster than one by
    /// one, and returns how many words they have. The next execution is passed to
    /// [`Self::execution`].
    #[inline(always)]
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        let _ = (segments, words);
        0
    }

    /// An execution of which some data addresses were folded; `written` are its words before.
    fn folded_execution(&mut self, segment: &Segment, words: &[u64], written: &[u64]) {
        let _ = written;
        self.execution(segment, words);
    }

    /// A record, with its event if it encodes one. The description of the process and definitions
    /// come here, too.
    fn record(&mut self, words: &[u64], event: Option<&Event>);

    /// The process has described itself.
    fn started(&mut self, start: &Start) {
        let _ = start;
    }

    /// The next execution is the first, or the first after others that were left out: memory may
    /// have been touched meanwhile. Never called where nothing is left out.
    fn resumed(&mut self) {}
}

/// A [`Consumer`] of a decoded stream, which takes executions and events without their words.
pub trait StreamConsumer: Consumer {
    /// As [`WordConsumer::width`].
    fn width(&self) -> Option<AddressWidth> {
        Some(AddressWidth::LA57)
    }

    /// As [`WordConsumer::executions`].
    #[inline(always)]
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        let _ = (segments, words);
        0
    }

    /// As [`WordConsumer::started`].
    fn started(&mut self, start: &Start) {
        let _ = start;
    }

    /// As [`WordConsumer::resumed`].
    fn resumed(&mut self) {}
}

impl<C: StreamConsumer> WordConsumer for C {
    #[inline(always)]
    fn width(&self) -> Option<AddressWidth> {
        StreamConsumer::width(self)
    }

    #[inline(always)]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        self.segment(segment, segment.addresses(&words[1..], &mut AddressRoom::new()));
    }

    #[inline(always)]
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        StreamConsumer::executions(self, segments, words)
    }

    #[inline(always)]
    fn record(&mut self, _: &[u64], event: Option<&Event>) {
        if let Some(event) = event {
            self.event(event);
        }
    }

    fn started(&mut self, start: &Start) {
        StreamConsumer::started(self, start);
    }

    fn resumed(&mut self) {
        StreamConsumer::resumed(self);
    }
}

/// The segments of a stream by their numbers.
#[derive(Default)]
pub struct Segments {
    all: Vec<Segment>,
    outlines: Vec<Option<Outline>>,
    /// How many addresses come with an execution. A vector of its own, which stays in the nearest
    /// cache: the position of the next execution depends on these numbers.
    addresses: Vec<u32>,
    counts: Vec<Option<SegmentCounts>>,
}

impl Segments {
    /// The outline of the segment that is executed by an item whose first word is `word`: `None`
    /// for a record, and for a segment that has no outline or is not defined.
    #[inline(always)]
    pub fn outline(&self, word: u64) -> Option<&Outline> {
        // The number of a record is greater than that of any segment.
        self.outlines.get(word as usize)?.as_ref()
    }

    /// A segment by its number, which must be defined.
    pub fn segment(&self, number: u64) -> &Segment {
        &self.all[number as usize]
    }

    /// The counts of each execution of a segment, by its number. `None` if an item may be skipped, or if a count has more
    /// than 16 bits.
    #[inline(always)]
    pub fn counts(&self, number: u64) -> Option<SegmentCounts> {
        self.counts[number as usize]
    }

    /// The executions at the beginning of `words`: the numbers of their segments, and the addresses of their groups. Ends at a
    /// record, at a segment that is not defined, and at an execution that is not complete.
    #[inline(always)]
    pub fn executions<'a>(&'a self, words: &'a [u64]) -> impl Iterator<Item = (u64, &'a [u64])> {
        let mut rest = words;
        std::iter::from_fn(move || {
            let [number, after @ ..] = rest else { return None };
            // The number of a record is greater than that of any segment.
            let addresses = *self.addresses.get(*number as usize)?;
            let (groups, after) = after.split_at_checked(addresses as usize)?;
            rest = after;
            Some((*number, groups))
        })
    }

    /// Replaces the segment of this number, which is returned, or appends a new one.
    fn define(&mut self, number: usize, segment: Segment) -> Option<Segment> {
        let (outline, addresses) = (Outline::of(&segment), segment.address_groups() as u32);
        let counts = SegmentCounts::of(&segment).filter(|_| !segment.has_guarded());
        if let Some(known) = self.all.get_mut(number) {
            self.outlines[number] = outline;
            self.addresses[number] = addresses;
            self.counts[number] = counts;
            return Some(std::mem::replace(known, segment));
        }
        self.all.push(segment);
        self.outlines.push(outline);
        self.addresses.push(addresses);
        self.counts.push(counts);
        None
    }
}

/// The memory that the decoders of one trace have together for segments: a trace may have many
/// streams.
#[derive(Clone, Debug, Default)]
pub struct SegmentRoom(Arc<AtomicUsize>);

/// The references of a stream whose addresses were folded to what its consumer takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FoldedReferences {
    /// How many.
    pub count: u64,
    /// The address of the first one as written.
    pub first: Option<VirtAddr>,
    /// The width in bits of the addresses that the consumer takes.
    pub bits: u8,
}

impl FoldedReferences {
    fn add(&mut self, count: u64, addr: VirtAddr, width: AddressWidth) {
        self.count += count;
        self.first.get_or_insert(addr);
        self.bits = width.bits();
    }
}

/// Decodes one stream: holds its segments, and hashes its words.
#[derive(Default)]
pub struct Decoder {
    segments: Segments,
    /// How many items the segments have together.
    items: usize,
    room: SegmentRoom,
    start: Option<Start>,
    folded: FoldedReferences,
    /// By segment, how many of its fetch addresses were folded, and the first of them as written.
    folded_fetches: BTreeMap<u64, (u64, VirtAddr)>,
    hash: WordsHash,
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

    /// The references whose addresses were folded so far.
    pub fn folded(&self) -> FoldedReferences {
        self.folded
    }

    /// How many segments are defined.
    pub fn segments(&self) -> usize {
        self.segments.all.len()
    }

    /// The xxh3-128 of every word so far.
    pub fn hash(&self) -> u128 {
        self.hash.value()
    }

    /// Decodes `words`, whole items only, into `consumer`.
    pub fn decode<C: WordConsumer>(
        &mut self,
        words: &[u64],
        consumer: &mut C,
    ) -> Result<(), DecodeError> {
        self.decode_part(words, words.len(), consumer).map(drop)
    }

    /// Decodes items from the beginning of `words`: about `most` words, to the end of an item. Returns the others.
    pub fn decode_part<'w, C: WordConsumer>(
        &mut self,
        words: &'w [u64],
        most: usize,
        consumer: &mut C,
    ) -> Result<&'w [u64], DecodeError> {
        let decoded = self.decode_items(words, most, consumer);
        let rest = decoded.as_ref().map_or(0, |rest| rest.len());
        self.hash.write(&words[..words.len() - rest]);
        decoded
    }

    fn decode_items<'w, C: WordConsumer>(
        &mut self,
        words: &'w [u64],
        most: usize,
        consumer: &mut C,
    ) -> Result<&'w [u64], DecodeError> {
        let width = consumer.width();
        let mut rest = words;
        while words.len() - rest.len() < most {
            let part = &rest[..rest.len().min(most + rest.len() - words.len())];
            let held = match width {
                Some(_) if !self.folded_fetches.is_empty() => 0,
                Some(width) => width.held(part),
                None => part.len(),
            };
            rest = self.execute(rest, held, width, consumer)?;
            if rest.first().is_some_and(|header| header & format::RECORD == 0) {
                continue;
            }
            let [header, tail @ ..] = rest else { return Ok(rest) };
            let count = format::record_words(*header);
            let payload = tail.get(..count).ok_or(DecodeError::Torn)?;
            let record = &rest[..=count];
            rest = &tail[count..];
            match format::record_kind(*header) {
                kind::DEFINE => {
                    self.define(payload, width)?;
                    consumer.record(record, None);
                }
                kind::START => {
                    let start = read_start(payload, width)?;
                    consumer.record(record, None);
                    consumer.started(&start);
                    self.start = Some(start);
                }
                _ => consumer.record(record, Some(&read_event(*header, payload, width)?)),
            }
        }
        Ok(rest)
    }

    /// Executes segments up to the next record, or to the end of the first execution behind the
    /// first `held` words, in which no address has to be folded. Returns the words from there on.
    #[inline(always)]
    fn execute<'w, C: WordConsumer>(
        &mut self,
        words: &'w [u64],
        held: usize,
        width: Option<AddressWidth>,
        consumer: &mut C,
    ) -> Result<&'w [u64], DecodeError> {
        let mut rest = words;
        while let Some(held_rest) = (rest.len() + held).checked_sub(words.len()) {
            rest = &rest[consumer.executions(&self.segments, &rest[..held_rest])..];
            let Some(header) = rest.first().filter(|header| *header & format::RECORD == 0) else {
                break;
            };
            let Some(addresses) = self.segments.addresses.get(*header as usize) else {
                return Err(DecodeError::Undefined(*header));
            };
            let (execution, after) =
                rest.split_at_checked(1 + *addresses as usize).ok_or(DecodeError::Torn)?;
            rest = after;
            let mut folded = Vec::new();
            if words.len() - rest.len() > held
                && let Some(width) = width
                && self.fold(execution, width, &mut folded)
            {
                let segment = self.segments.segment(execution[0]);
                consumer.folded_execution(segment, &folded, execution);
            } else {
                consumer.execution(self.segments.segment(execution[0]), execution);
            }
        }
        Ok(rest)
    }

    /// Whether any data address of an execution has to be folded: if so, `folded` becomes the
    /// execution's words with folded addresses.
    #[inline(never)]
    fn fold(&mut self, execution: &[u64], width: AddressWidth, folded: &mut Vec<u64>) -> bool {
        if let Some((count, addr)) = self.folded_fetches.get(&execution[0]) {
            self.folded.add(*count, *addr, width);
        }
        if width.holds_all(&execution[1..]) {
            return false;
        }
        let segment = self.segments.segment(execution[0]);
        folded.clear();
        folded.extend_from_slice(execution);
        for (items, word) in segment.groups().zip(&mut folded[1..]) {
            let written = VirtAddr::new(*word);
            let addr = width.fold(written, DataItem::reach_of_group(items));
            if addr != written {
                let references = items.iter().map(|item| u64::from(item.references)).sum();
                self.folded.add(references, written, width);
                *word = addr.raw();
            }
        }
        true
    }

    fn define(&mut self, payload: &[u64], width: Option<AddressWidth>) -> Result<(), DecodeError> {
        let (id, segment, folded) = read_definition(payload, width)?;
        let room = room_of(&segment);
        self.items += room;
        if self.room.0.fetch_add(room, Ordering::Relaxed) + room > MAX_ITEMS {
            return Err(DecodeError::TooManyItems);
        }
        let expected = self.segments();
        if id > expected as u64 {
            return Err(DecodeError::DefinitionOrder { expected, got: id });
        }
        if let Some(known) = self.segments.define(id as usize, segment) {
            self.items -= room_of(&known);
            self.room.0.fetch_sub(room_of(&known), Ordering::Relaxed);
        }
        match folded {
            Some(folded) => drop(self.folded_fetches.insert(id, folded)),
            None => drop(self.folded_fetches.remove(&id)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::WordWriter;
    use octavo_types::{Item, ItemKind};

    struct Nothing;

    impl Consumer for Nothing {
        fn segment(&mut self, _: &Segment, _: &[VirtAddr]) {}
        fn event(&mut self, _: &Event) {}
    }

    impl StreamConsumer for Nothing {}

    /// Segments of 1000 fetches each, the same for every stream.
    fn definitions(count: u32) -> Vec<u64> {
        let item = Item::new(ItemKind::Fetch, 1, VirtAddr::new(0x1000));
        let mut words = WordWriter::default();
        (0..count).for_each(|number| words.define_items(number, &[item; 1000], &[], &[]));
        words.words().to_vec()
    }

    /// The hash is independent of how the words are cut into chunks.
    #[test]
    fn the_hash_is_xxh3_of_all_words() {
        for definitions_each in [1, 7, 100] {
            let (mut decoder, mut all) = (Decoder::default(), Vec::new());
            for _ in 0..3 {
                let words = definitions(definitions_each);
                decoder.decode(&words, &mut Nothing).unwrap();
                all.extend(words.iter().flat_map(|word| word.to_ne_bytes()));
                assert_eq!(decoder.hash(), twox_hash::XxHash3_128::oneshot(&all));
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
        assert_eq!(decoders.len(), MAX_ITEMS / 1_006_000 + 1);
        decoders.clear();
        assert_eq!(room.0.load(Ordering::Relaxed), 0);
        assert!(Decoder::sharing(&room).decode(&words, &mut Nothing).is_ok());
    }
}
