//! Encodes segments and events as the ring's words, as the tracer does, for streams that Octavo
//! itself makes.

use octavo_types::{
    AddrRange, AddressPlace, Consumer, Dependences, Event, Item, ItemKind, MapSource, Protection,
    Segment, VirtAddr, WindowPlace,
};
use rustc_hash::FxHashMap;

use super::format::{self, ItemWord, kind};

/// Writes ring words.
#[derive(Debug, Default)]
pub struct WordWriter {
    words: Vec<u64>,
}

impl WordWriter {
    /// The words so far.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// The words so far, to be taken out or cleared.
    pub fn words_mut(&mut self) -> &mut Vec<u64> {
        &mut self.words
    }

    /// Writes one execution of a defined segment, with an address for each of its address groups.
    #[inline]
    pub fn execute(&mut self, number: u32, addresses: &[u64]) {
        self.words.push(u64::from(number));
        self.words.extend_from_slice(addresses);
    }

    /// Defines a segment: new numbers are given in order from 0, and a known one is redefined. A
    /// segment without dependences gets empty ones.
    pub fn define(&mut self, number: u32, segment: &Segment) {
        let places = segment.groups().flat_map(|items| {
            let leads = std::iter::once(true).chain(std::iter::repeat(false));
            items.iter().zip(leads).map(|(item, leads)| AddressPlace { leads, offset: item.offset })
        });
        let places: Vec<_> = places.collect();
        self.define_items(number, segment.items(), segment.dependences(), &places);
    }

    /// Defines a segment from the arguments of [`Segment::with_places`].
    pub(crate) fn define_items(
        &mut self,
        number: u32,
        items: &[Item],
        dependences: &[Dependences],
        places: &[AddressPlace],
    ) {
        let mut places = places.iter().copied();
        self.record(kind::DEFINE, |words| {
            let instructions = items.iter().filter(|item| item.kind == ItemKind::Fetch).count();
            words.push(u64::from(number) | (items.len() as u64) << 32);
            words.push(instructions as u64);
            for item in items {
                if item.kind == ItemKind::Fetch {
                    words.extend([ItemWord::new(item, AddressPlace::OWN).0, item.addr.raw()]);
                } else {
                    let place = places.next().unwrap_or(AddressPlace::OWN);
                    words.push(ItemWord::new(item, place).0);
                }
            }
            for index in 0..instructions {
                let entry = dependences.get(index).copied().unwrap_or_default();
                let late = [entry.late_producers, entry.late_reads];
                if late == [0, 0] {
                    words.extend([entry.producers, entry.reads, entry.writes]);
                } else {
                    words.extend([entry.producers, entry.reads | format::HAS_LATE, entry.writes]);
                    words.extend(late);
                }
            }
        });
    }

    fn number(&mut self, kind: u8, value: u64) {
        self.record(kind, |words| words.push(value));
    }

    fn window(&mut self, kind: u8, at: WindowPlace) {
        let words =
            [at.instructions, at.milliseconds].map(|number| number.unwrap_or(format::UNKNOWN));
        self.record(kind, |payload| payload.extend(words));
    }

    fn record(&mut self, kind: u8, payload: impl FnOnce(&mut Vec<u64>)) {
        let header = self.words.len();
        self.words.push(0);
        payload(&mut self.words);
        let count = self.words.len() - header - 1;
        self.words[header] = format::RECORD | u64::from(kind) << 48 | count as u64;
    }

    /// Writes an event.
    pub fn event(&mut self, event: &Event) {
        use Event::{
            Advise, Allocate, AllocationStack, Exec, Exit, Fork, Map, Mark, Present, Protect,
            Release, Remap, Signal, ThreadEnd, ThreadStart, ThreadSwitch, Translation, Unmap,
            WindowBegin, WindowEnd,
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
            Translation { virt, phys } => {
                self.record(kind::TRANSLATION, |words| words.extend([virt.raw(), phys.raw()]));
            }
            WindowBegin { at } => self.window(kind::WINDOW_BEGIN, *at),
            WindowEnd { at } => self.window(kind::WINDOW_END, *at),
            AllocationStack { number, frames } => self.record(kind::ALLOCATION_STACK, |words| {
                words.extend([u64::from(*number), frames.len() as u64]);
                words.extend(frames.iter().map(|frame| frame.addr.raw()));
                frames.iter().for_each(|frame| push_text(words, &frame.function));
            }),
            Allocate { block, stack, freed, inherited } => self.record(kind::ALLOCATE, |words| {
                push_range(words, *block);
                let inherited = if *inherited { format::INHERITED } else { 0 };
                words.extend([u64::from(*stack) | inherited, freed.map_or(0, VirtAddr::raw)]);
            }),
            Release { start } => self.number(kind::RELEASE, start.raw()),
            Present { range, known, first } => self.record(kind::PRESENT, |words| {
                push_range(words, *range);
                let known = u64::from(*known) * format::KNOWN;
                words.push(known | (u64::from(*first) * format::FIRST));
            }),
            Exit { code } => self.number(kind::EXIT, *code as u64),
        }
    }
}

/// Encodes the stream that it consumes. A segment is defined when it first executes.
#[derive(Default)]
pub struct Encoder {
    out: WordWriter,
    segments: FxHashMap<Segment, u32>,
}

impl Encoder {
    /// The words so far.
    pub fn words(&self) -> &[u64] {
        self.out.words()
    }
}

impl Consumer for Encoder {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let known = self.segments.get(segment).copied();
        let number = known.unwrap_or_else(|| {
            let number = self.segments.len() as u32;
            self.segments.insert(segment.clone(), number);
            self.out.define(number, segment);
            number
        });
        self.out.execute(number, &segment.addresses_of_groups(addresses));
    }

    fn event(&mut self, event: &Event) {
        self.out.event(event);
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
