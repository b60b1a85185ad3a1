//! The text of Valgrind's Lackey (`--tool=lackey --trace-mem=yes`).
//!
//! One line a reference, `I  04016b80,3` or ` L 1ffeffe7e8,8`, with Valgrind's own messages
//! between. The text knows no segments: they are learnt on the way in ([`learn`]), and from the
//! second time on a line is compared with the one expected rather than parsed.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read};

use octavo_types::{Consumer, VirtAddr};

mod learn;
mod line;

use learn::Learner;
use line::{Fault, Line};

/// The longest line that may be a reference.
const MAX_LINE_BYTES: usize = 4096;
/// How much text is read at once.
const BUFFER_BYTES: usize = 1 << 18;
/// How much of a faulty line an error quotes.
const MAX_QUOTED_BYTES: usize = 80;
/// How many of Valgrind's messages are kept, the last ones.
const MAX_MESSAGES: usize = 64;
/// How much of each.
const MAX_MESSAGE_BYTES: usize = 512;
/// The widest line that the fast path looks at: label, 16 digits, comma, 4 digits, newline.
const WINDOW_BYTES: usize = 32;

/// What has been read so far, and delivered to the consumer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LackeyCounts {
    /// Bytes of text.
    pub bytes: u64,
    /// Lines, those that are no reference among them.
    pub lines: u64,
    /// Executions of segments.
    pub segments: u64,
    /// Instruction fetches.
    pub instructions: u64,
    /// Loads, those of modifies among them.
    pub loads: u64,
    /// Stores, those of modifies among them.
    pub stores: u64,
}

/// What a whole text held.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LackeySummary {
    /// How much of each.
    pub counts: LackeyCounts,
    /// The last of Valgrind's own messages, without their `==pid==`.
    pub messages: Vec<String>,
    /// Whether `should_stop` ended the reading.
    pub stopped: bool,
    /// Whether the text ended inside a line, as it does when Valgrind is killed. That line was
    /// used if it reads as a reference, and left out if not.
    pub unterminated: bool,
}

/// Why a text could not be read to its end. What came before was delivered.
#[derive(Debug, thiserror::Error)]
pub enum LackeyError {
    /// The text could not be read.
    #[error("Lackey's text cannot be read: {0}")]
    Read(#[from] std::io::Error),
    /// A line is not one of Lackey's.
    #[error("line {line} is not Lackey's: `{text}`")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// The beginning of it.
        text: String,
    },
    /// A line does not end.
    #[error("line {line} is longer than {MAX_LINE_BYTES} bytes: `{text}`")]
    LongLine {
        /// Its number, from 1.
        line: u64,
        /// The beginning of it.
        text: String,
    },
    /// A reference of no bytes, or of more than a base page.
    #[error("line {line} has a size outside 1..=4096 bytes: `{text}`")]
    Size {
        /// Its number, from 1.
        line: u64,
        /// The line.
        text: String,
    },
    /// Data before any instruction.
    #[error("line {line} touches data before any instruction is fetched: `{text}`")]
    DataBeforeFetch {
        /// Its number, from 1.
        line: u64,
        /// The line.
        text: String,
    },
    /// More data than any instruction touches.
    #[error("line {line} is one data reference too many for a single instruction: `{text}`")]
    TooMuchData {
        /// Its number, from 1.
        line: u64,
        /// The line.
        text: String,
    },
}

/// Reads Lackey's text from `reader` to its end, an error, or until `should_stop` says so, which
/// is asked after each segment and after each read.
///
/// A segment ends where the next instruction does not follow in memory, or after 64. Interrupted
/// reads are repeated, once `should_stop` was asked.
pub fn read_lackey<R, C, S>(
    reader: R,
    consumer: &mut C,
    should_stop: S,
) -> Result<LackeySummary, LackeyError>
where
    R: Read,
    C: Consumer + ?Sized,
    S: FnMut(&LackeyCounts) -> bool,
{
    let sink = Sink { consumer, should_stop, counts: LackeyCounts::default(), stopped: false };
    let mut text = Text {
        learner: Learner::new(),
        sink,
        messages: VecDeque::new(),
        unterminated: false,
        in_long_message: false,
    };
    let outcome = text.read(reader);
    // What came before an error is whole, and the consumer's to have.
    if !text.sink.stopped {
        text.learner.finish(&mut text.sink);
    }
    outcome?;
    Ok(LackeySummary {
        counts: text.sink.counts,
        messages: text.messages.into(),
        stopped: text.sink.stopped,
        unterminated: text.unterminated,
    })
}

/// Where finished segments go.
struct Sink<'a, C: ?Sized, S> {
    consumer: &'a mut C,
    should_stop: S,
    counts: LackeyCounts,
    stopped: bool,
}

impl<C: Consumer + ?Sized, S: FnMut(&LackeyCounts) -> bool> Sink<'_, C, S> {
    #[inline]
    fn deliver(&mut self, segment: &octavo_types::Segment, addresses: &[VirtAddr]) {
        self.consumer.segment(segment, addresses);
        self.counts.segments += 1;
        self.counts.instructions += u64::from(segment.instructions());
        self.counts.loads += u64::from(segment.loads());
        self.counts.stores += u64::from(segment.stores());
        self.ask();
    }

    #[inline]
    fn ask(&mut self) {
        self.stopped |= (self.should_stop)(&self.counts);
    }
}

/// A text on its way in.
struct Text<'a, C: ?Sized, S> {
    learner: Learner,
    sink: Sink<'a, C, S>,
    messages: VecDeque<String>,
    unterminated: bool,
    /// The start of the buffer is the rest of a message too long to hold.
    in_long_message: bool,
}

impl<C: Consumer + ?Sized, S: FnMut(&LackeyCounts) -> bool> Text<'_, C, S> {
    fn read(&mut self, mut reader: impl Read) -> Result<(), LackeyError> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut filled = 0;
        loop {
            let read = match reader.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => 0,
                Err(error) => return Err(error.into()),
            };
            self.sink.counts.bytes += read as u64;
            filled += read;
            let used = self.lines_of(&buffer[..filled])?;
            if !self.sink.stopped {
                self.sink.ask();
            }
            if self.sink.stopped {
                return Ok(());
            }
            // What is left is less than a line, and less than `MAX_LINE_BYTES`.
            buffer.copy_within(used..filled, 0);
            filled -= used;
        }
        if filled > 0 || self.in_long_message {
            self.unterminated = true;
            match self.line(&buffer[..filled]) {
                Err(LackeyError::Line { .. } | LackeyError::Size { .. }) => {}
                outcome => outcome?,
            }
        }
        Ok(())
    }

    /// Takes all whole lines of `text` and says how many bytes they were.
    fn lines_of(&mut self, text: &[u8]) -> Result<usize, LackeyError> {
        let mut used = 0;
        while !self.sink.stopped {
            if !self.in_long_message {
                used += self.learner.follow(&text[used..], &mut self.sink);
                if self.sink.stopped {
                    break;
                }
            }
            let rest = &text[used..];
            let Some(length) = memchr::memchr(b'\n', rest) else {
                if rest.len() > MAX_LINE_BYTES {
                    self.line(rest)?;
                    self.sink.counts.lines -= 1;
                    self.in_long_message = true;
                    used = text.len();
                }
                break;
            };
            self.line(&rest[..length])?;
            used += length + 1;
        }
        Ok(used)
    }

    /// Takes one line that the learner did not foresee, without its newline.
    #[cold]
    fn line(&mut self, text: &[u8]) -> Result<(), LackeyError> {
        if std::mem::take(&mut self.in_long_message) {
            self.sink.counts.lines += 1;
            return Ok(());
        }
        let fault = match Line::parse(text) {
            Ok(Line::Reference(reference)) => {
                self.learner.learn(reference, text, &mut self.sink).err()
            }
            Ok(Line::Message(message)) => {
                self.keep(message);
                None
            }
            Ok(Line::Nothing) => None,
            Err(fault) => Some(fault),
        };
        self.sink.counts.lines += 1;
        let Some(fault) = fault else { return Ok(()) };
        let line = self.sink.counts.lines;
        let text = quoted(text, MAX_QUOTED_BYTES);
        Err(match fault {
            Fault::Unknown => LackeyError::Line { line, text },
            Fault::TooLong => LackeyError::LongLine { line, text },
            Fault::Size => LackeyError::Size { line, text },
            Fault::DataBeforeFetch => LackeyError::DataBeforeFetch { line, text },
            Fault::TooMuchData => LackeyError::TooMuchData { line, text },
        })
    }

    fn keep(&mut self, message: &[u8]) {
        if message.is_empty() {
            return;
        }
        if self.messages.len() == MAX_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(quoted(message, MAX_MESSAGE_BYTES));
    }
}

/// At most `bytes` of `text`, whatever it holds, fit to print.
fn quoted(text: &[u8], bytes: usize) -> String {
    let mut quoted: String = String::from_utf8_lossy(&text[..text.len().min(bytes)])
        .chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect();
    if text.len() > bytes {
        quoted.push('…');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_oracle::{NaiveReferences, Reference, strategies};
    use octavo_types::{Event, ItemKind, Segment};
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Notes each segment delivered as `start: kinds`, and all references.
    #[derive(Default)]
    struct Notes {
        segments: Vec<(Segment, Vec<VirtAddr>)>,
        references: NaiveReferences,
    }

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
    }

    /// Gives as many bytes at a time as `sizes` says, over and over, interrupted for each 0.
    struct Pieces<'a> {
        text: &'a [u8],
        sizes: std::iter::Cycle<std::vec::IntoIter<usize>>,
    }

    impl<'a> Pieces<'a> {
        fn new(text: &'a [u8], mut sizes: Vec<usize>) -> Self {
            sizes.push(100);
            Pieces { text, sizes: sizes.into_iter().cycle() }
        }
    }

    impl Read for Pieces<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            let size = self.sizes.next().expect("they go on for ever");
            if size == 0 {
                return Err(ErrorKind::Interrupted.into());
            }
            let size = size.min(buffer.len());
            self.text.read(&mut buffer[..size])
        }
    }

    fn read(text: impl AsRef<[u8]>) -> (Notes, Result<LackeySummary, LackeyError>) {
        let mut notes = Notes::default();
        let outcome = read_lackey(text.as_ref(), &mut notes, |_| false);
        (notes, outcome)
    }

    fn error(text: impl AsRef<[u8]>) -> String {
        read(text).1.expect_err("this text is faulty").to_string()
    }

    /// The same text read line by line, and the number of its first faulty line, if it has one.
    fn read_plainly(text: &[u8]) -> (Vec<Reference>, Option<u64>) {
        let mut references = Vec::new();
        for (number, line) in (1..).zip(text.split_inclusive(|&byte| byte == b'\n')) {
            let whole = line.ends_with(b"\n");
            match Line::parse(line.strip_suffix(b"\n").unwrap_or(line)) {
                Ok(Line::Reference(line::Reference { kind, addr, size_bytes })) => {
                    if references.is_empty() && kind != ItemKind::Fetch {
                        return (references, Some(number));
                    }
                    references.push(Reference { kind, addr, size_bytes });
                }
                Err(Fault::Unknown | Fault::Size) if !whole => {}
                Err(_) => return (references, Some(number)),
                Ok(_) => {}
            }
        }
        (references, None)
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
        let summary = outcome.unwrap();
        let counts = LackeyCounts {
            bytes: text.len() as u64,
            lines: 13,
            segments: 3,
            instructions: 5,
            loads: 2,
            stores: 2,
        };
        assert_eq!(summary.counts, counts);
        assert_eq!(summary.messages, ["Lackey, an example Valgrind tool", "Exit code:       0"]);
        assert!(!summary.stopped && !summary.unterminated);
    }

    /// Lines that Lackey would write shorter are never foreseen, and are read all the same.
    #[test]
    fn odd_spellings_are_the_same_references() {
        let text = "I  00000000000001000,2\n L 10,000000000008\n";
        assert_eq!(error(text), "line 1 is not Lackey's: `I  00000000000001000,2`");
        let text = "I  0000000000001000,2\n L 0AbC,000000000008\n".repeat(3);
        let (notes, _) = read(&text);
        assert_eq!(notes.segments(), ["0x1000 IL"; 3]);
        let (references, _) = read_plainly(text.as_bytes());
        assert_eq!(notes.references.references, references);
        assert_eq!(references[1].addr, VirtAddr::new(0xabc));
    }

    /// A branch that goes one way, the other, and back: the same segments whether guessed or not.
    #[test]
    fn repeats_and_their_changes_are_the_same_segments() {
        let (start, through, jump) = ("I  1000,2\n L 8000,8\n", "I  1002,2\n", "I  2000,5\n");
        let ways = [start, through, jump, start, jump, start, jump, start, through, jump, jump];
        let (notes, outcome) = read(ways.concat());
        let (long, short) = ("0x1000 ILI", "0x1000 IL");
        let jump = "0x2000 I";
        assert_eq!(notes.segments(), [long, jump, short, jump, short, jump, long, jump, jump]);
        assert_eq!(outcome.unwrap().counts.lines, 15);
    }

    #[test]
    fn a_segment_has_at_most_64_instructions() {
        let line = |place: u64| format!("I  {:08x},4\n S {place:x},4\n", 0x1000 + 4 * place);
        let text = (0..200).map(line).collect::<String>();
        let (notes, _) = read(text.repeat(3));
        let lengths: Vec<u32> = notes.segments.iter().map(|(s, _)| s.instructions()).collect();
        assert_eq!(lengths, [64, 64, 64, 8].repeat(3));
    }

    #[test]
    fn faulty_lines_are_named() {
        assert_eq!(error("I  1000,2\nhello\n"), "line 2 is not Lackey's: `hello`");
        assert_eq!(error("\n I 10\x1b,2\n"), "line 2 is not Lackey's: ` I 10\u{fffd},2`");
        assert_eq!(error(b"\xff\n"), "line 1 is not Lackey's: `\u{fffd}`");
        assert_eq!(
            error("I  1000,2\n".repeat(9) + " L 10,0\n"),
            "line 10 has a size outside 1..=4096 bytes: ` L 10,0`"
        );
        assert_eq!(
            error("==1== x\n L 10,8\n"),
            "line 2 touches data before any instruction is fetched: ` L 10,8`"
        );
        assert_eq!(
            error("I  1000,2\n".to_owned() + &" L 10,8\n".repeat(1000)),
            "line 257 is one data reference too many for a single instruction: ` L 10,8`"
        );
        let quote = "x".repeat(80);
        for length in [4097, BUFFER_BYTES, 3 * BUFFER_BYTES] {
            for end in ["", "\n", "\nI  1000,2\n"] {
                assert_eq!(
                    error("I  1000,2\n".to_owned() + &"x".repeat(length) + end),
                    format!("line 2 is longer than 4096 bytes: `{quote}…`")
                );
            }
        }
        assert_eq!(error("x".repeat(4096) + "\n"), format!("line 1 is not Lackey's: `{quote}…`"));
    }

    #[test]
    fn what_came_before_an_error_is_delivered() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
                Err(std::io::Error::other("the pipe broke"))
            }
        }
        let mut notes = Notes::default();
        let text = b"I  1000,2\n L 10,8\nI  1002".as_slice();
        let error = read_lackey(text.chain(Broken), &mut notes, |_| false).unwrap_err();
        assert_eq!(error.to_string(), "Lackey's text cannot be read: the pipe broke");
        assert_eq!(notes.segments(), ["0x1000 IL"]);
        let (notes, _) = read("I  1000,2\n L 10,8\n?\nI  1002,2\n");
        assert_eq!(notes.segments(), ["0x1000 IL"]);
    }

    #[test]
    fn a_text_may_end_inside_a_line() {
        for (last, segment) in
            [("I  1002,2", "0x1000 II"), ("I  1002", "0x1000 I"), ("I  1002,", "0x1000 I")]
        {
            let (notes, outcome) = read("I  1000,2\n".to_owned() + last);
            assert!(outcome.unwrap().unterminated);
            assert_eq!(notes.segments(), [segment], "{last}");
        }
        assert_eq!(read("").1.unwrap(), LackeySummary::default());
    }

    #[test]
    fn long_messages_are_cut_and_only_the_last_kept() {
        for length in [4000, 4096, 4097, 10_000, BUFFER_BYTES, 3 * BUFFER_BYTES] {
            // What follows in the long message looks like a line, but is none.
            let message = format!("==1== {}", "I  1000,2".repeat(length / 9));
            let (notes, outcome) = read(format!("I  1000,2\n{message}\n L 10,8\n{message}"));
            let summary = outcome.unwrap();
            assert_eq!(notes.segments(), ["0x1000 IL"]);
            assert_eq!(summary.counts.lines, 4);
            assert_eq!(summary.messages.len(), 2);
            assert!(summary.messages[0].len() < 520);
        }
        let text: String = (0..1000).map(|number| format!("==1== {number}\n")).collect();
        let messages = read(text).1.unwrap().messages;
        assert_eq!(messages.len(), MAX_MESSAGES);
        assert_eq!(messages.last().unwrap(), "999");
    }

    #[test]
    fn reading_stops_when_told() {
        let text = "I  1000,2\n L 10,8\n".repeat(1000);
        let mut notes = Notes::default();
        let stop = |counts: &LackeyCounts| counts.instructions >= 10;
        let summary = read_lackey(text.as_bytes(), &mut notes, stop).unwrap();
        assert!(summary.stopped);
        assert_eq!(summary.counts.segments, 10);
        assert_eq!(notes.segments.len(), 10);
        // Also where the text is only waited for.
        let text = Pieces::new(b"", vec![0; 10]);
        assert!(read_lackey(text, &mut notes, |_| true).unwrap().stopped);
    }

    /// Segments as this file promises to cut them, from references.
    fn cut(references: &[Reference]) -> Vec<Vec<Reference>> {
        let mut segments: Vec<Vec<Reference>> = Vec::new();
        let mut next_fetch = None;
        for &reference in references {
            if reference.kind == ItemKind::Fetch {
                let fetches = |segment: &Vec<Reference>| {
                    segment.iter().filter(|item| item.kind == ItemKind::Fetch).count()
                };
                let full = segments.last().is_none_or(|segment| fetches(segment) == 64);
                if full || next_fetch != Some(reference.addr) {
                    segments.push(Vec::new());
                }
                next_fetch = Some(reference.addr.wrapping_add(u64::from(reference.size_bytes)));
            }
            segments.last_mut().expect("a fetch came first").push(reference);
        }
        segments
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        /// Any stream written as Lackey writes it reads back the same, however it arrives.
        #[test]
        fn streams_read_back(
            stream in strategies::stream(0..300),
            sizes in vec(0usize..2000, 0..4),
            noise in vec((any::<prop::sample::Index>(), prop_oneof![
                Just("==7== Process terminating\n"), Just("SB 04016b80\n"), Just("\n"),
            ]), 0..5),
        ) {
            let mut written = NaiveReferences::default();
            stream.play(&mut written);
            let text = written.lackey_text();
            let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
            for (place, line) in noise {
                lines.insert(place.index(lines.len() + 1), line);
            }
            let text = lines.concat();
            let mut notes = Notes::default();
            let summary =
                read_lackey(Pieces::new(text.as_bytes(), sizes), &mut notes, |_| false).unwrap();
            prop_assert_eq!(summary.counts.lines, lines.len() as u64);
            let of_kind = |kinds: &[ItemKind]| {
                let references = written.references.iter();
                references.filter(|reference| kinds.contains(&reference.kind)).count() as u64
            };
            use ItemKind::{Fetch, Load, Modify, Store};
            prop_assert_eq!(summary.counts.instructions, of_kind(&[Fetch]));
            prop_assert_eq!(summary.counts.loads, of_kind(&[Load, Modify]));
            prop_assert_eq!(summary.counts.stores, of_kind(&[Store, Modify]));
            let segments: Vec<Vec<Reference>> = notes.segments.iter().map(|(segment, addresses)| {
                let mut one = NaiveReferences::default();
                one.segment(segment, addresses);
                one.references
            }).collect();
            prop_assert_eq!(segments, cut(&written.references));
            prop_assert_eq!(notes.references.references, written.references);
        }

        /// A text with a few bytes changed reads as it does line by line, up to the same fault.
        #[test]
        fn damaged_texts_read_as_they_do_line_by_line(
            stream in strategies::stream(1..60),
            damage in vec((any::<prop::sample::Index>(), prop_oneof![
                any::<u8>(),
                prop::sample::select(b"\n\r ,=ILSM0f9F".as_slice()),
            ]), 0..6),
            sizes in vec(0usize..300, 0..4),
        ) {
            let mut written = NaiveReferences::default();
            stream.play(&mut written);
            let mut text = written.lackey_text().into_bytes();
            text.extend_from_within(..);
            for (place, byte) in damage {
                let place = place.index(text.len().max(1));
                if let Some(damaged) = text.get_mut(place) {
                    *damaged = byte;
                }
            }
            let mut notes = Notes::default();
            let outcome = read_lackey(Pieces::new(&text, sizes), &mut notes, |_| false);
            let (references, faulty) = read_plainly(&text);
            prop_assert_eq!(notes.references.references, references);
            let line = match outcome {
                Ok(_) => None,
                Err(LackeyError::Line { line, .. }
                    | LackeyError::LongLine { line, .. }
                    | LackeyError::Size { line, .. }
                    | LackeyError::DataBeforeFetch { line, .. }
                    | LackeyError::TooMuchData { line, .. }) => Some(line),
                Err(LackeyError::Read(error)) => panic!("{error}"),
            };
            prop_assert_eq!(line, faulty);
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
            let mut notes = Notes::default();
            let _ = read_lackey(Pieces::new(&bytes, sizes), &mut notes, |_| false);
        }
    }
}
