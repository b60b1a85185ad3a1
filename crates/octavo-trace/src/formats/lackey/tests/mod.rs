//! The reader against a line-by-line one.

mod examples;
mod random;

use std::io::{ErrorKind, Read};

use octavo_oracle::{NaiveReferences, Reference, strategies};
use octavo_types::{Consumer, ItemKind, Segment, VirtAddr};
use proptest::collection::vec;
use proptest::prelude::*;

use super::line::{Fault, Line};
use super::*;
use crate::formats::testing::Log;
use crate::ring::Decoder;
use crate::source::{Batch, InputOptions, Source, Step};

/// About the number of bytes that are read at once.
const BLOCK_BYTES: usize = 1 << 15;

/// All that the reader delivered.
#[derive(Default)]
struct Notes {
    log: Log,
    places: Vec<Place>,
    messages: Vec<String>,
    lines: u64,
    has_instructions: bool,
}

impl Notes {
    /// Each segment as the place of its first instruction and the kinds of its items.
    fn segments(&self) -> Vec<String> {
        let kind = |kind| match kind {
            ItemKind::Fetch => 'I',
            ItemKind::Load => 'L',
            ItemKind::Store => 'S',
            ItemKind::Modify => 'M',
        };
        let describe = |segment: &Segment| {
            let kinds: String = segment.items().iter().map(|item| kind(item.kind)).collect();
            format!("{} {kinds}", segment.items()[0].addr)
        };
        self.log.executed.iter().map(|(segment, _)| describe(segment)).collect()
    }

    /// The references of each segment.
    fn cut(&self) -> Vec<Vec<Reference>> {
        let references = |(segment, addresses): &(Segment, Vec<VirtAddr>)| {
            let mut one = NaiveReferences::default();
            one.segment(segment, addresses);
            one.references
        };
        self.log.executed.iter().map(references).collect()
    }
}

/// Returns bytes in pieces of `sizes`, over and over; a size of 0 is an interruption.
struct Pieces {
    text: std::io::Cursor<Vec<u8>>,
    sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
}

impl Pieces {
    fn new(text: &[u8], mut sizes: Vec<usize>) -> Self {
        sizes.push(100);
        Pieces { text: std::io::Cursor::new(text.to_vec()), sizes: sizes.into_iter().cycle() }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let size = self.sizes.next().expect("they go on for ever");
        if size == 0 {
            return Err(ErrorKind::Interrupted.into());
        }
        let size = size.min(buffer.len());
        self.text.read(&mut buffer[..size])
    }
}

fn read_from(
    reader: impl Read + Send + 'static,
    wants_places: bool,
) -> (Notes, Result<(), TraceError>) {
    let input = Input::from_reader("text", Box::new(reader), InputOptions::default());
    let mut source = live_source(input.expect("its head can be read"));
    let (mut notes, mut decoder) = (Notes::default(), Decoder::default());
    let mut batch = Batch::default();
    let mut is_begun = false;
    let outcome = loop {
        batch.wants_places = wants_places;
        match source.next(&mut batch) {
            Ok(Some(Step::Began(_))) => is_begun = true,
            Ok(Some(Step::Batch(0))) => {
                assert!(is_begun);
                let segments = notes.log.executed.len();
                decoder.decode(&batch.words, &mut notes.log).expect("words are sound");
                if batch.wants_places {
                    assert_eq!(batch.places.len(), notes.log.executed.len() - segments);
                }
                notes.places.append(&mut batch.places);
            }
            Ok(Some(_)) => {}
            Ok(None) => break Ok(()),
            Err(error) => break Err(error),
        }
    };
    if outcome.is_err() {
        assert_eq!(source.next(&mut batch), Ok(None), "nothing follows an error");
    }
    let Place::Line(lines) = source.place() else { panic!("Lackey's places are lines") };
    notes.lines = lines;
    notes.has_instructions = source.facts().has_instructions;
    notes.messages = source.reader.messages().map(str::to_owned).collect();
    (notes, outcome)
}

fn read(text: impl AsRef<[u8]>) -> (Notes, Result<(), TraceError>) {
    read_from(Pieces::new(text.as_ref(), vec![1 << 20]), false)
}

fn error(text: impl AsRef<[u8]>) -> String {
    read(text).1.expect_err("this text is faulty").to_string()
}

/// Reads the text line by line: returns the references with their lines, the number of lines, and
/// the number of the first faulty one, if there is one.
fn read_plainly(text: &[u8]) -> (Vec<(Reference, u64)>, u64, Option<u64>) {
    let mut references = Vec::new();
    let mut lines = 0;
    for line in text.split_inclusive(|&byte| byte == b'\n') {
        let whole = line.ends_with(b"\n");
        let parsed = Line::parse(line.strip_suffix(b"\n").unwrap_or(line));
        if !whole && matches!(parsed, Err(Fault::Unknown | Fault::Size)) {
            continue;
        }
        lines += 1;
        match parsed {
            Ok(Line::Reference(crate::learn::Reference { kind, addr, size_bytes, .. })) => {
                references.push((Reference { kind, addr, size_bytes }, lines));
            }
            Err(_) => return (references, lines, Some(lines)),
            Ok(_) => {}
        }
    }
    (references, lines, None)
}

/// Segments as the learner promises to cut them, from references.
fn cut(references: &[(Reference, u64)]) -> Vec<Vec<Reference>> {
    let mut segments: Vec<Vec<Reference>> = Vec::new();
    let (mut next_fetch, mut fetches, mut data) = (None, 0, 0);
    for &(reference, _) in references {
        let begins = if reference.kind == ItemKind::Fetch {
            next_fetch != Some(reference.addr) || fetches == 64
        } else {
            data == 255
        };
        if begins || segments.is_empty() {
            segments.push(Vec::new());
            (next_fetch, fetches, data) = (None, 0, 0);
        }
        if reference.kind == ItemKind::Fetch {
            next_fetch = Some(reference.addr.wrapping_add(u64::from(reference.size_bytes)));
            (fetches, data) = (fetches + 1, 0);
        } else {
            data += 1;
        }
        segments.last_mut().expect("one has begun").push(reference);
    }
    segments
}

/// Reads `text` in blocks of `sizes` and compares with the plain reading.
fn check(text: &[u8], sizes: &[usize]) -> Result<(), TestCaseError> {
    let (references, lines, faulty) = read_plainly(text);
    let segments = cut(&references);
    let places: Vec<Place> = references.iter().map(|(_, line)| Place::Line(*line)).collect();
    for wants_places in [false, true] {
        let (notes, outcome) = read_from(Pieces::new(text, sizes.to_vec()), wants_places);
        if !wants_places {
            prop_assert!(notes.cut() == segments);
        }
        // With places, every reference is a segment of its own.
        let all: Vec<Reference> = notes.cut().concat();
        prop_assert!(all.iter().eq(references.iter().map(|(reference, _)| reference)));
        if wants_places {
            prop_assert_eq!(&notes.places, &places);
        }
        let place = outcome.err().map(|error| error.place);
        prop_assert_eq!(place, faulty.map(Place::Line));
        prop_assert_eq!(notes.lines, lines);
    }
    Ok(())
}
