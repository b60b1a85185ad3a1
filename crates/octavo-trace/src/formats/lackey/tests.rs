//! The reader against a line-by-line one, by every set of instructions that this processor has.

use std::io::{ErrorKind, Read};

use octavo_oracle::{NaiveReferences, Reference, strategies};
use octavo_types::{Consumer, Event, ItemKind, Segment, VirtAddr};
use proptest::collection::vec;
use proptest::prelude::*;

use super::line::{Fault, Line};
use super::*;
use crate::ring::{Decoder, WordConsumer};
use crate::source::{Batch, InputOptions, Source, Step};

/// About what is read at once.
const BLOCK_BYTES: usize = 1 << 15;

/// Notes each segment delivered, and all references.
#[derive(Default)]
struct Notes {
    segments: Vec<(Segment, Vec<VirtAddr>)>,
    references: NaiveReferences,
    places: Vec<Place>,
    messages: Vec<String>,
    lines: u64,
    facts: Vec<String>,
}

impl WordConsumer for Notes {}

impl Consumer for Notes {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.segments.push((segment.clone(), addresses.to_vec()));
        self.references.segment(segment, addresses);
    }

    fn event(&mut self, _: &Event) {}
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
        self.segments.iter().map(|(segment, _)| describe(segment)).collect()
    }

    /// The references of each segment.
    fn cut(&self) -> Vec<Vec<Reference>> {
        let references = |(segment, addresses): &(Segment, Vec<VirtAddr>)| {
            let mut one = NaiveReferences::default();
            one.segment(segment, addresses);
            one.references
        };
        self.segments.iter().map(references).collect()
    }
}

/// Gives as many bytes at a time as `sizes` says, over and over, interrupted for each 0.
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
    instructions: Instructions,
    wants_places: bool,
) -> (Notes, Result<(), TraceError>) {
    let input = Input::from_reader("text", Box::new(reader), InputOptions::default());
    let mut source = source_with(input.expect("its head can be read"), instructions);
    let (mut notes, mut decoder) = (Notes::default(), Decoder::default());
    let mut batch = Batch::default();
    let mut is_begun = false;
    let outcome = loop {
        batch.wants_places = wants_places;
        match source.next(&mut batch) {
            Ok(Some(Step::Began(_))) => is_begun = true,
            Ok(Some(Step::Batch(0))) => {
                assert!(is_begun);
                let segments = notes.segments.len();
                decoder.decode(&batch.words, &mut notes).expect("words are sound");
                if batch.wants_places {
                    assert_eq!(batch.places.len(), notes.segments.len() - segments);
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
    notes.messages = source.reader.messages().map(str::to_owned).collect();
    notes.facts = source.facts().notes;
    (notes, outcome)
}

fn read(text: impl AsRef<[u8]>) -> (Notes, Result<(), TraceError>) {
    read_from(Pieces::new(text.as_ref(), vec![1 << 20]), Instructions::best(), false)
}

fn error(text: impl AsRef<[u8]>) -> String {
    read(text).1.expect_err("this text is faulty").to_string()
}

/// The same text read line by line: the references with their lines, how many lines there are,
/// and the number of the first faulty one, if there is one.
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
                if references.is_empty() && kind != ItemKind::Fetch {
                    return (references, lines, Some(lines));
                }
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
        if begins {
            segments.push(Vec::new());
            (next_fetch, fetches, data) = (None, 0, 0);
        }
        if reference.kind == ItemKind::Fetch {
            next_fetch = Some(reference.addr.wrapping_add(u64::from(reference.size_bytes)));
            (fetches, data) = (fetches + 1, 0);
        } else {
            data += 1;
        }
        segments.last_mut().expect("a fetch came first").push(reference);
    }
    segments
}

/// Reads `text` by every set of instructions and compares with the plain reading, for `sizes`.
fn check(text: &[u8], sizes: &[usize]) -> Result<(), TestCaseError> {
    let (references, lines, faulty) = read_plainly(text);
    let segments = cut(&references);
    let places: Vec<Place> = references.iter().map(|(_, line)| Place::Line(*line)).collect();
    for instructions in Instructions::all() {
        for wants_places in [false, true] {
            let pieces = Pieces::new(text, sizes.to_vec());
            let (notes, outcome) = read_from(pieces, instructions, wants_places);
            if !wants_places {
                prop_assert!(notes.cut() == segments, "{:?}", instructions);
            }
            // Every reference has its place then, and so is a segment of its own.
            let all: Vec<Reference> = notes.cut().concat();
            prop_assert!(all.iter().eq(references.iter().map(|(of, _)| of)), "{:?}", instructions);
            if wants_places {
                prop_assert_eq!(&notes.places, &places);
            }
            let place = outcome.err().map(|error| error.place);
            prop_assert_eq!(place, faulty.map(Place::Line));
            prop_assert_eq!(notes.lines, lines);
        }
    }
    Ok(())
}

#[test]
fn segments_end_where_instructions_do_not_follow() {
    let text = "==7== Lackey, an example Valgrind tool\n\
                ==7== \n\
                I  04016b80,3\n\
                \x20L 1ffeffe7e8,8\n\
                I  04016b83,5\n\
                \x20S 1ffeffe7e0,8\n\
                SB 04016b90\n\
                I  04016b90,2\r\n\
                \x20M 0000000010,1\r\n\
                I  04016b90,2\n\
                I  04016b92,1\n\
                \n\
                ==7== Exit code:       0\n";
    let (notes, outcome) = read(text);
    assert_eq!(notes.segments(), ["0x4016b80 ILIS", "0x4016b90 IM", "0x4016b90 II"]);
    assert_eq!(outcome, Ok(()));
    assert_eq!(notes.lines, 13);
    assert_eq!(notes.messages, ["Lackey, an example Valgrind tool", "Exit code:       0"]);
    assert!(notes.facts.is_empty());
}

/// Lines that Lackey would write shorter are read all the same.
#[test]
fn odd_spellings_are_the_same_references() {
    let text = "I  00000000000001000,2\n L 10,000000000008\n";
    assert_eq!(error(text), "`text`, line 1: `I  00000000000001000,2` is not Lackey's");
    let text = "I  0000000000001000,2\n L 0AbC,000000000008\n".repeat(30);
    let (notes, _) = read(&text);
    assert_eq!(notes.segments(), ["0x1000 IL"; 30]);
    assert!(notes.segments.iter().all(|(_, addresses)| *addresses == [VirtAddr::new(0xabc)]));
    check(text.as_bytes(), &[1000]).unwrap();
}

/// A branch that goes one way, the other, and back: the same segments whether foreseen or not.
#[test]
fn repeats_and_their_changes_are_the_same_segments() {
    let (start, through, jump) =
        ("I  00001000,2\n L 8000,8\n", "I  00001002,2\n", "I  00002000,5\n");
    let ways = [start, through, jump, start, jump, start, jump, start, through, jump, jump];
    let (notes, outcome) = read(ways.concat());
    let (long, short) = ("0x1000 ILI", "0x1000 IL");
    let jump = "0x2000 I";
    assert_eq!(notes.segments(), [long, jump, short, jump, short, jump, long, jump, jump]);
    assert_eq!((outcome, notes.lines), (Ok(()), 15));
    check(ways.concat().repeat(20).as_bytes(), &[500]).unwrap();
}

#[test]
fn a_segment_has_at_most_64_instructions() {
    let line = |place: u64| format!("I  {:08x},4\n S {place:x},4\n", 0x1000 + 4 * place);
    let text = (0..200).map(line).collect::<String>();
    let (notes, _) = read(text.repeat(3));
    let lengths: Vec<u32> = notes.segments.iter().map(|(s, _)| s.instructions()).collect();
    assert_eq!(lengths, [64, 64, 64, 8].repeat(3));
    let line = |place: u64| format!("I  {:08x},4\n", 0x1000 + 4 * place);
    let text = (0..100).map(line).collect::<String>();
    check(text.repeat(3).as_bytes(), &[1 << 20]).unwrap();
}

/// A loop's piece is cut while the text stands at its end.
#[test]
fn a_piece_that_follows_itself_is_cut() {
    let (head, tail) = ("I  00001000,2\nI  00001002,2\n", "I  00001004,2\n L 10,8\n");
    let text = [head, tail, head, tail, head, tail, head, head, tail, head, "I  00003000,1\n"];
    check(text.concat().repeat(8).as_bytes(), &[1 << 20]).unwrap();
}

/// One instruction whose data differ in number, kind and length: more kinds than are kept.
#[test]
fn data_may_differ_in_every_way() {
    let mut text = String::new();
    for round in 0..3 {
        for number in 0..200u64 {
            text += "I  00001000,4\n";
            for item in 0..number % 6 {
                let label = ['L', 'S', 'M'][((number + item) % 3) as usize];
                text += &format!(" {label} {:x},8\n", 1u64 << ((number * item * 7 + round) % 64));
            }
            text += "I  00001004,4\n";
        }
    }
    check(text.as_bytes(), &[1 << 20]).unwrap();
}

#[test]
fn more_data_than_an_instruction_has_is_a_segment_of_its_own() {
    let text = ("I  00001000,2\n".to_owned() + &" L 10,8\n".repeat(1000)).repeat(2);
    check(text.as_bytes(), &[1 << 20]).unwrap();
    assert_eq!(read(&text).0.segments.len(), 8);
}

/// More of everything than is kept.
#[test]
fn what_is_forgotten_is_learnt_anew() {
    let line = |place: u64| format!("I  {:08x},4\n S {place:x},4\n", 0x1000 + 8 * place);
    let text = (0..600).map(line).collect::<String>();
    check(text.repeat(3).as_bytes(), &[1 << 20]).unwrap();
    let text = (0..600).map(|place| line(place % 37).repeat(3)).collect::<String>();
    check(text.as_bytes(), &[1 << 20]).unwrap();
}

#[test]
fn faulty_lines_are_named() {
    for (text, expected) in [
        ("I  1000,2\nhello\n", "`text`, line 2: `hello` is not Lackey's"),
        ("\n I 10\x1b,2\n", "`text`, line 2: ` I 10\u{fffd},2` is not Lackey's"),
        (
            &("I  00001000,2\n".repeat(90) + " L 10,0\n"),
            "`text`, line 91: ` L 10,0` has a size outside 1..=4096 bytes",
        ),
        (
            "==1== x\n L 10,8\n",
            "`text`, line 2: ` L 10,8` touches data before any instruction is fetched",
        ),
    ] {
        assert_eq!(error(text), expected);
    }
    assert_eq!(error(b"\xff\n"), "`text`, line 1: `\u{fffd}` is not Lackey's");
    let quote = "x".repeat(80);
    for length in [4097, BLOCK_BYTES, 3 * BLOCK_BYTES] {
        for end in ["", "\n", "\nI  1000,2\n"] {
            assert_eq!(
                error("I  1000,2\n".to_owned() + &"x".repeat(length) + end),
                format!("`text`, line 2: `{quote}…` is longer than 4096 bytes")
            );
        }
    }
    assert_eq!(
        error("x".repeat(4096) + "\n"),
        format!("`text`, line 1: `{quote}…` is not Lackey's")
    );
}

#[test]
fn what_came_before_an_error_is_delivered() {
    struct Broken;
    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            Err(std::io::Error::other("the pipe broke"))
        }
    }
    // More than the head of the input.
    let text = "I  00001000,2\n L 10,8\n".repeat(1000) + "I  00001002";
    let reader = Pieces::new(text.as_bytes(), vec![]).chain(Broken);
    let (notes, outcome) = read_from(reader, Instructions::best(), false);
    assert_eq!(outcome.unwrap_err().to_string(), "`text`, line 2000: the pipe broke");
    assert_eq!(notes.segments(), ["0x1000 IL"; 1000]);
    let (notes, _) = read("I  1000,2\n L 10,8\n?\nI  1002,2\n");
    assert_eq!(notes.segments(), ["0x1000 IL"]);
}

#[test]
fn a_text_may_end_inside_a_line() {
    for (last, segment) in
        [("I  1002,2", "0x1000 II"), ("I  1002", "0x1000 I"), ("I  1002,", "0x1000 I")]
    {
        let (notes, outcome) = read("I  1000,2\n".to_owned() + last);
        assert_eq!(outcome, Ok(()));
        assert_eq!(notes.facts, ["the text ends inside a line"]);
        assert_eq!(notes.segments(), [segment], "{last}");
    }
}

/// Many batches, lines across their ends.
#[test]
fn long_texts_are_read_to_their_end() {
    let line = |place: u64| format!("I  {:08x},4\n L {place:x},8\n", 0x1000 + place % 13 * 4);
    let text = (0..60_000).map(line).collect::<String>() + "I  0000";
    check(text.as_bytes(), &[1 << 20]).unwrap();
}

#[test]
fn an_empty_text_is_an_error() {
    assert_eq!(error(""), "`text`: is empty");
}

#[test]
fn long_messages_are_cut_and_only_the_last_kept() {
    for length in [4000, 4096, 4097, 10_000, BLOCK_BYTES, 3 * BLOCK_BYTES] {
        // What follows in the long message looks like a line, but is none.
        let message = format!("==1== {}", "I  1000,2".repeat(length / 9));
        let (notes, outcome) = read(format!("I  1000,2\n{message}\n L 10,8\n{message}"));
        assert_eq!(outcome, Ok(()));
        assert_eq!(notes.segments(), ["0x1000 IL"]);
        assert_eq!(notes.lines, 4);
        assert_eq!(notes.messages.len(), 2);
        assert!(notes.messages[0].len() < 520);
    }
    let text: String = (0..1000).map(|number| format!("==1== {number}\n")).collect();
    let messages = read(text).0.messages;
    assert_eq!(messages.len(), MAX_MESSAGES);
    assert_eq!(messages.last().unwrap(), "999");
}

#[test]
fn lackeys_text_is_recognised() {
    use Likeness::{No, Yes};
    for (head, likeness) in [
        ("==7== Lackey, an example Valgrind tool\n\nI  04016b80,3\n", Yes),
        ("I  04016b80,3\nI  04", Yes),
        ("hello\nI  04016b80,3\n", No),
        ("", No),
        ("I  04016b80,3", No),
    ] {
        assert_eq!(recognise(head.as_bytes()), likeness, "{head}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Any stream written as Lackey writes it reads back the same, however it arrives.
    #[test]
    fn streams_read_back(
        stream in strategies::stream(0..300),
        repeats in 1usize..4,
        sizes in vec(0usize..20_000, 0..4),
        noise in vec((any::<prop::sample::Index>(), prop_oneof![
            Just("==7== Process terminating\n"), Just("SB 04016b80\n"), Just("\n"),
        ]), 0..5),
    ) {
        let mut written = NaiveReferences::default();
        for _ in 0..repeats {
            stream.play(&mut written);
        }
        let text = written.lackey_text();
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        for (place, line) in noise {
            lines.insert(place.index(lines.len() + 1), line);
        }
        prop_assume!(!lines.is_empty());
        let text = lines.concat();
        let (references, _, _) = read_plainly(text.as_bytes());
        let references: Vec<Reference> = references.into_iter().map(|(one, _)| one).collect();
        prop_assert_eq!(references, written.references);
        check(text.as_bytes(), &sizes)?;
    }

    /// A text with a few bytes changed reads as it does line by line, up to the same fault.
    #[test]
    fn damaged_texts_read_as_they_do_line_by_line(
        stream in strategies::stream(1..60),
        damage in vec((any::<prop::sample::Index>(), prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\0\n\r ,=ILSM0f9F:`gG/".as_slice()),
        ]), 0..6),
        sizes in vec(0usize..3000, 0..4),
    ) {
        let mut written = NaiveReferences::default();
        stream.play(&mut written);
        let mut text = written.lackey_text().into_bytes();
        text.extend_from_within(..);
        text.extend_from_within(..);
        for (place, byte) in damage {
            let place = place.index(text.len().max(1));
            if let Some(damaged) = text.get_mut(place) {
                *damaged = byte;
            }
        }
        prop_assume!(!text.is_empty());
        check(&text, &sizes)?;
    }

    /// Lines of a small set in any order: every kind of divergence.
    #[test]
    fn any_lines_read_as_they_do_line_by_line(
        lines in vec(prop::sample::select([
            "I  00001000,2\n", "I  00001002,3\n", "I  00001002,12\n", "I  00001005,2\n",
            "I  00001007,7\n", "I  10000000100e,7\n", "I  00001000,2\r\n", "I  1000,2\n",
            " L 00000010,8\n", " L 1ffeffe7e8,8\n", " S 1,4\n", " M ffffffffffffffff,16\n",
            " L ABCDEF,8\n",
        ].as_slice()), 1..400),
        sizes in vec(0usize..3000, 0..4),
    ) {
        check(("I  00001000,2\n".to_owned() + &lines.concat()).as_bytes(), &sizes)?;
    }

    /// Nothing makes it panic.
    #[test]
    fn any_bytes_do_no_harm(
        bytes in vec(prop_oneof![
            any::<u8>(),
            prop::sample::select(b"\n\n\r  ,,==--I LSMB0123456789abcdef".as_slice()),
        ], 0..3000),
        sizes in vec(0usize..300, 0..4),
    ) {
        let _ = read_from(Pieces::new(&bytes, sizes), Instructions::best(), false);
    }
}
