//! Helpers of the tests of all formats: random streams, writing them into memory, reading bytes
//! back into a plain list of references.

// A helper that no format's tests happen to need is not a mistake.
#![allow(dead_code)]

use std::io::{self, Cursor, Read};

use octavo_oracle::strategies::{self, RandomStream, Step as RandomStep};
use octavo_oracle::{NaiveReferences, Reference};
use octavo_types::{AddressWidth, Consumer, Event, Item, ItemKind, Segment, VirtAddr};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::Format;
use crate::ring::{Decoder, Encoder, StreamConsumer};
use crate::sink::memory::Memory;
use crate::sink::{Output, PlainSink, ReferenceWriter, Sink, Written};
use crate::source::{Batch, Facts, Input, InputOptions, Source, Step, TraceError};
use crate::stream::{StreamEnd, StreamIdentity};

/// All that a source returned.
#[derive(Debug)]
pub(crate) struct Drained {
    /// All references, in order.
    pub(crate) references: Vec<Reference>,
    /// Each event, and how many references came before it.
    pub(crate) events: Vec<(usize, Event)>,
    /// Each execution: the segment and its data addresses.
    pub(crate) executed: Vec<(Segment, Vec<VirtAddr>)>,
    /// The error that ended it, if one did.
    pub(crate) error: Option<TraceError>,
    /// The facts at the end.
    pub(crate) facts: Facts,
}

impl Drained {
    /// The references, where no error ended them.
    pub(crate) fn whole(self) -> Vec<Reference> {
        assert_eq!(self.error, None);
        self.references
    }

    /// The sentence of the error that ended it.
    pub(crate) fn sentence(&self) -> String {
        self.error.as_ref().expect("an error ends it").to_string()
    }
}

/// Keeps executions and events.
#[derive(Default)]
pub(crate) struct Log {
    pub(crate) references: NaiveReferences,
    /// Each event, and how many references came before it.
    pub(crate) events: Vec<(usize, Event)>,
    /// Each execution: the segment and its data addresses.
    pub(crate) executed: Vec<(Segment, Vec<VirtAddr>)>,
}

impl StreamConsumer for Log {
    fn width(&self) -> Option<AddressWidth> {
        None
    }
}

impl Consumer for Log {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.references.segment(segment, addresses);
        self.executed.push((segment.clone(), addresses.to_vec()));
    }

    fn event(&mut self, event: &Event) {
        self.events.push((self.references.references.len(), event.clone()));
    }
}

/// Reads a source of one stream to its end.
pub(crate) fn drain(source: &mut dyn Source) -> Drained {
    drain_with(source, false)
}

/// As [`drain`]; with `wants_places`, also that executions have one place each, or none at all.
pub(crate) fn drain_with(source: &mut dyn Source, wants_places: bool) -> Drained {
    let (mut log, mut decoder) = (Log::default(), Decoder::default());
    let mut batch = Batch { wants_places, ..Batch::default() };
    let (mut began, mut ended) = (false, false);
    let error = loop {
        match source.next(&mut batch) {
            Ok(Some(Step::Began(_))) => {
                assert!(!began, "one stream");
                began = true;
            }
            Ok(Some(Step::Batch(stream))) => {
                assert!(began && !ended && stream == 0);
                let before = log.executed.len();
                decoder.decode(&batch.words, &mut log).expect("sources write sound words");
                let executed = log.executed.len() - before;
                assert!(batch.places.is_empty() || batch.places.len() == executed);
            }
            Ok(Some(Step::Ended(..))) => {
                assert!(began && !ended);
                ended = true;
            }
            Ok(None) => {
                assert!(ended, "no stream is left open");
                break None;
            }
            Err(error) => break Some(error),
        }
    };
    assert_eq!(source.next(&mut batch), Ok(None), "nothing follows the end");
    let Log { references, events, executed } = log;
    let references = references.references;
    Drained { references, events, executed, error, facts: source.facts() }
}

/// Reads `bytes` as a trace of `format` named `trace`.
pub(crate) fn read(format: &Format, bytes: &[u8]) -> Drained {
    read_from(format, Box::new(Cursor::new(bytes.to_vec())))
}

/// Reads what `reader` gives as a trace of `format` named `trace`.
pub(crate) fn read_from(format: &Format, reader: Box<dyn Read + Send>) -> Drained {
    let input = Input::from_reader("trace", reader, InputOptions::default());
    match input.and_then(format.open) {
        Ok(mut source) => drain(&mut *source),
        Err(error) => Drained {
            references: Vec::new(),
            events: Vec::new(),
            executed: Vec::new(),
            error: Some(error),
            facts: Facts::of(format.name),
        },
    }
}

/// Writes `stream` by `writer`, which `create` makes.
pub(crate) fn write_with(
    create: impl FnOnce(Output) -> Box<dyn ReferenceWriter>,
    stream: &RandomStream,
) -> Result<(Vec<u8>, Written), TraceError> {
    let memory = Memory::default();
    let writer = create(Output::to_writer("memory", Box::new(memory.clone())));
    let mut sink = Box::new(PlainSink::new("memory", writer));
    let mut encoder = Encoder::default();
    stream.play(&mut encoder);
    sink.begin(&StreamIdentity::only())?;
    sink.words(0, encoder.words())?;
    sink.end(0, &StreamEnd::PLAIN)?;
    let written = sink.finish()?;
    Ok((memory.bytes(), written))
}

/// Writes `stream` as `format`.
pub(crate) fn write(
    format: &Format,
    stream: &RandomStream,
) -> Result<(Vec<u8>, Written), TraceError> {
    write_with(format.create.expect("the format can be written"), stream)
}

/// The plain list of what `stream` touches.
pub(crate) fn references_of(stream: &RandomStream) -> Vec<Reference> {
    let mut references = NaiveReferences::default();
    stream.play(&mut references);
    references.references
}

/// `references` as a format without modifies has them.
pub(crate) fn split_modifies(references: &[Reference]) -> Vec<Reference> {
    let mut split = Vec::new();
    for &reference in references {
        if reference.kind == ItemKind::Modify {
            split.push(Reference { kind: ItemKind::Load, ..reference });
            split.push(Reference { kind: ItemKind::Store, ..reference });
        } else {
            split.push(reference);
        }
    }
    split
}

/// Asserts that `got` is `expected` as a format without sizes has it: data has one byte, an
/// instruction its own size where the next one follows it, and at most 15 bytes otherwise.
pub(crate) fn same_but_for_sizes(got: &[Reference], expected: &[Reference]) {
    let bare = |all: &[Reference]| {
        all.iter().map(|reference| (reference.kind, reference.addr)).collect::<Vec<_>>()
    };
    assert_eq!(bare(got), bare(expected));
    let is_fetch = |reference: &&Reference| reference.kind == ItemKind::Fetch;
    assert!(
        got.iter()
            .filter(|reference| !is_fetch(reference))
            .all(|reference| reference.size_bytes == crate::source::ASSUMED_BYTES)
    );
    let mut next = expected.iter().filter(is_fetch).skip(1);
    for (got, expected) in got.iter().filter(is_fetch).zip(expected.iter().filter(is_fetch)) {
        let end = expected.addr.wrapping_add(u64::from(expected.size_bytes));
        if next.next().is_some_and(|next| next.addr == end) {
            assert_eq!(got, expected);
        }
        assert!((1..=15).contains(&got.size_bytes));
    }
}

/// Returns bytes in pieces of `piece` bytes, as a pipe may.
pub(crate) struct Pieces {
    pub(crate) bytes: Cursor<Vec<u8>>,
    pub(crate) piece: usize,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = buffer.len().min(self.piece);
        self.bytes.read(&mut buffer[..count])
    }
}

/// [`strategies::stream`], and beside its guarded items and modifies: segments cut in two
/// anywhere, so that the second half may begin with data, and addresses of all 64 bits.
pub(crate) fn stream(steps: std::ops::Range<usize>) -> impl Strategy<Value = RandomStream> {
    let lift = prop_oneof![2 => Just(0u64), 1 => Just(1 << 56), 1 => Just(0xffff_8000_0000_0000)];
    (strategies::stream(steps), vec(any::<Index>(), 8), lift)
        .prop_map(|(stream, cuts, lift)| cut(&stream, &cuts, lift))
}

fn cut(stream: &RandomStream, cuts: &[Index], lift: u64) -> RandomStream {
    let lifted = |addr: VirtAddr| match addr {
        VirtAddr::NULL => addr,
        _ => VirtAddr::new(addr.raw() | lift),
    };
    let (mut segments, mut data_before) = (Vec::new(), Vec::new());
    for (segment, cut) in stream.segments.iter().zip(cuts) {
        let mut items: Vec<Item> = segment.items().to_vec();
        for item in &mut items {
            item.addr = lifted(item.addr);
        }
        // The first half keeps an instruction; the second half may be empty of them.
        let rest = items.split_off(1 + cut.index(items.len()));
        data_before.push(items.iter().filter(|item| item.kind != ItemKind::Fetch).count());
        for half in [items, rest] {
            segments.push(Segment::new(half, Vec::new()).expect("every item is sound"));
        }
    }
    let mut steps = Vec::new();
    for step in &stream.steps {
        match step {
            RandomStep::Segment(index, addresses) => {
                let addresses: Vec<_> = addresses.iter().copied().map(lifted).collect();
                let (first, second) = addresses.split_at(data_before[*index]);
                steps.push(RandomStep::Segment(2 * index, first.to_vec()));
                if !segments[2 * index + 1].items().is_empty() {
                    steps.push(RandomStep::Segment(2 * index + 1, second.to_vec()));
                }
            }
            RandomStep::Event(event) => steps.push(RandomStep::Event(event.clone())),
        }
    }
    RandomStream { segments, steps }
}

mod all_formats {
    use super::*;
    use crate::formats::FORMATS;

    /// Reads `bytes` as every format; the result does not matter, but it must end.
    fn read_as_all(bytes: &[u8]) {
        for format in FORMATS {
            (format.recognise)(&bytes[..bytes.len().min(4096)]);
            let drained = read(format, bytes);
            if let Some(error) = drained.error {
                let sentence = error.to_string();
                assert!(sentence.starts_with("`trace`") && !sentence.ends_with('.'), "{sentence}");
                assert!(!sentence.contains('\n') && sentence.len() < 400, "{sentence}");
            }
        }
    }

    /// Bytes that look like the text of some trace more often than chance would have it.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        let word = prop_oneof![
            4 => proptest::sample::select(vec![
                "0", "1", "2", "3", "4", " ", " ", ",", "\n", "\n", "\r\n", "0x", "\"", "I  ", " L ",
                "r", "w", "R", "W", ": ", "#eof", "kind", "address", "size", "thread", "instructions",
                "fetch", "load", "store", "modify", "ffffffffffffffffff", "-", "==1== ", "SB ",
            ]).prop_map(|word| word.as_bytes().to_vec()),
            1 => any::<u64>().prop_map(|number| format!("{number:x}").into_bytes()),
            1 => vec(any::<u8>(), 0..4),
        ];
        vec(word, 0..200).prop_map(|words| words.concat())
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(128))]

        #[test]
        fn any_bytes_are_read_or_refused(bytes in vec(any::<u8>(), 0..3000)) {
            read_as_all(&bytes);
        }

        #[test]
        fn any_text_is_read_or_refused(bytes in text()) {
            read_as_all(&bytes);
        }

        /// A trace with one flipped bit, or cut anywhere, is read or refused, and the part before
        /// the damage is complete.
        #[test]
        fn damaged_traces_are_read_or_refused(
            random in stream(1..20), at in any::<Index>(), bit in 0u8..8, cut in any::<bool>(),
        ) {
            for format in FORMATS.iter().filter(|format| format.create.is_some()) {
                let Ok((mut bytes, _)) = write(format, &random) else { continue };
                if bytes.is_empty() {
                    continue;
                }
                let at = at.index(bytes.len());
                if cut { bytes.truncate(at) } else { bytes[at] ^= 1 << bit }
                read_as_all(&bytes);
            }
        }
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(16))]

        /// It does not matter where one read ends and the next begins, nor who asks for places.
        #[test]
        fn pieces_make_no_difference(random in stream(60..120), piece in 10usize..400) {
            for format in FORMATS.iter().filter(|format| format.create.is_some()) {
                let Ok((bytes, _)) = write(format, &random) else { continue };
                let whole = read(format, &bytes);
                let pieces = Pieces { bytes: Cursor::new(bytes.clone()), piece };
                let pieced = read_from(format, Box::new(pieces));
                prop_assert_eq!(&pieced.error, &whole.error);
                prop_assert_eq!(&pieced.references, &whole.references);
                prop_assert_eq!(&pieced.events, &whole.events);
                let reader = Box::new(Cursor::new(bytes));
                let input = Input::from_reader("trace", reader, InputOptions::default());
                let mut source = (format.open)(input.unwrap()).unwrap();
                prop_assert_eq!(drain_with(&mut *source, true).references, whole.references);
            }
        }
    }

    #[test]
    fn an_empty_trace_is_refused() {
        // Lackey's reader takes an empty text for a program that did nothing.
        for format in FORMATS.iter().filter(|format| format.name != "lackey") {
            assert_eq!(read(format, b"").sentence(), "`trace` is empty", "{}", format.name);
        }
    }

    #[test]
    fn format_names_are_unique() {
        for (index, format) in FORMATS.iter().enumerate() {
            assert!(FORMATS[..index].iter().all(|other| other.name != format.name));
        }
    }
}
