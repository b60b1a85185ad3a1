//! The first references and events of a trace, to be read by people.

use std::collections::BTreeMap;

use octavo_types::{AddressWidth, Consumer, Event, Item, ItemKind, Segment, VirtAddr};

use crate::ring::{Decoder, StreamConsumer};
use crate::source::{Batch, Source, Step, TraceError};

/// One line.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The stream.
    pub stream: u32,
    /// How many instructions of the stream came before it; of a data reference, the number of the
    /// instruction that makes it.
    pub instruction: u64,
    /// Its content.
    pub content: Content,
}

/// The content of a line of a listing.
#[derive(Clone, Debug)]
pub enum Content {
    /// A reference.
    Reference {
        /// Fetch, load or store.
        kind: ItemKind,
        /// Its first byte.
        addr: VirtAddr,
        /// How many bytes it touches.
        size_bytes: u16,
        /// Whether it is an atomic read-modify-write.
        atomic: bool,
    },
    /// An event.
    Event(Event),
}

/// Options of a listing.
#[derive(Clone, Copy, Debug)]
pub struct ListingOptions {
    /// How many lines.
    pub entries: usize,
    /// From which instruction of each stream on.
    pub from_instruction: u64,
    /// Only this stream.
    pub stream: Option<u32>,
    /// Leave out references.
    pub events_only: bool,
}

/// Returns the lines, and the error that ended them, if one did.
pub fn list(source: &mut dyn Source, options: ListingOptions) -> (Vec<Entry>, Option<TraceError>) {
    let mut lister = Lister { options, entries: Vec::new(), stream: 0, instruction: 0 };
    let mut streams: BTreeMap<u32, (Decoder, u64)> = BTreeMap::new();
    if options.from_instruction > 0 && !options.events_only {
        source.skip_instructions(options.from_instruction);
    }
    let (mut batch, mut skipped) = (Batch::default(), 0);
    while lister.entries.len() < options.entries {
        match source.next(&mut batch) {
            Ok(Some(Step::Batch(stream))) => {
                let (decoder, instruction) = streams.entry(stream).or_default();
                // Instructions are skipped only in traces of a single stream.
                *instruction += source.skipped_instructions() - skipped;
                skipped = source.skipped_instructions();
                (lister.stream, lister.instruction) = (stream, *instruction);
                let decoded = decoder.decode(&batch.words, &mut lister);
                *instruction = lister.instruction;
                if let Err(error) = decoded {
                    return (lister.entries, Some(source.undecodable(&error)));
                }
            }
            Ok(Some(_)) => {}
            Ok(None) => break,
            Err(error) => return (lister.entries, Some(error)),
        }
    }
    (lister.entries, None)
}

struct Lister {
    options: ListingOptions,
    entries: Vec<Entry>,
    stream: u32,
    /// Instructions of the stream so far.
    instruction: u64,
}

impl Lister {
    fn wants(&self, instruction: u64) -> bool {
        self.entries.len() < self.options.entries
            && instruction >= self.options.from_instruction
            && self.options.stream.is_none_or(|stream| stream == self.stream)
    }
}

impl Consumer for Lister {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let end = self.instruction + u64::from(segment.instructions());
        if !self.options.events_only && self.wants(end) {
            let (mut at, mut data) = (self.instruction, addresses.iter());
            for item in segment.items() {
                let fetch = item.kind == ItemKind::Fetch;
                let addr = if fetch { item.addr } else { *data.next().expect("one for each") };
                let instruction = if fetch { at } else { at.saturating_sub(1) };
                at += u64::from(fetch);
                let absent = item.guarded && addr == VirtAddr::NULL;
                if self.wants(instruction) && !absent {
                    let Item { kind, size_bytes, atomic, .. } = *item;
                    let content = Content::Reference { kind, addr, size_bytes, atomic };
                    self.entries.push(Entry { stream: self.stream, instruction, content });
                }
            }
        }
        self.instruction = end;
    }

    fn event(&mut self, event: &Event) {
        if self.wants(self.instruction) {
            let content = Content::Event(event.clone());
            let entry = Entry { stream: self.stream, instruction: self.instruction, content };
            self.entries.push(entry);
        }
    }
}

impl StreamConsumer for Lister {
    fn width(&self) -> Option<AddressWidth> {
        None
    }
}
