//! The text of the Dinero cache simulators.
//!
//! `din` (Dinero III's): `label address` a line, hexadecimal, what follows on the line a comment.
//! Labels are 0 read, 1 write, 2 instruction fetch, 3 of unknown kind, 4 flush. Dinero IV takes
//! these as its own access types, of which 3 is *miscellaneous*, treated like a read but for
//! prefetching, 4 is *copy back* and 5 *invalidate*; and it rounds addresses down to 4 bytes.
//! `xdin` (Dinero IV's): `r|w|i|m|c|v address size`, the letters for the same six types in
//! another order, in either case. Both may have `0x` before numbers.
//!
//! Octavo takes accesses of unknown kind for loads and leaves out flushes and invalidations, both
//! with a note; addresses are not rounded. Sizes must be 1 to 4096.

use octavo_types::{ItemKind, PageSize, VirtAddr};

use super::executed::ATOMIC_AND_REGISTERS;
use super::lengths::{self, Fetch, Lengths};
use super::line_writer::{LineFormat, LineWriter};
use super::lines::{Lines, head_lines, quoted, words};
use super::numbers::{hex, push_hex};
use super::reader::{Learning, Reader, ReaderSource};
use super::{Format, Likeness};
use crate::learn::Reference;
use crate::source::{ASSUMED_BYTES, Facts, Place, Progress, TraceError};

/// Dinero III's format.
pub static DIN: Format = Format {
    name: "din",
    about: "text of the Dinero III cache simulator: label and address, without sizes",
    suffixes: &["din"],
    recognise: |head| recognise(head, false),
    open: |input| Ok(Box::new(ReaderSource::new(DinReader::new(Lines::new(input), false)))),
    create: Some(|output| LineWriter::create(output, DinLines, "")),
};

/// Dinero IV's format.
pub static XDIN: Format = Format {
    name: "xdin",
    about: "text of the Dinero IV cache simulator: access type, address, size",
    suffixes: &["xdin"],
    recognise: |head| recognise(head, true),
    open: |input| Ok(Box::new(ReaderSource::new(DinReader::new(Lines::new(input), true)))),
    create: Some(|output| LineWriter::create(output, XdinLines, "")),
};

/// The content of a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Reference(ItemKind, u64, u16),
    /// A reference of unknown kind.
    Unknown(u64, u16),
    /// A flush or an invalidation.
    Flush,
    Blank,
}

impl Line {
    /// Reads a line; the error says what is wrong with it.
    #[inline]
    fn parse(text: &[u8], extended: bool) -> Result<Self, &'static str> {
        let mut words = words(text);
        let Some(label) = words.next() else { return Ok(Line::Blank) };
        let kind = match (label, extended) {
            (b"0", false) | (b"r" | b"R", true) => Some(ItemKind::Load),
            (b"1", false) | (b"w" | b"W", true) => Some(ItemKind::Store),
            (b"2", false) | (b"i" | b"I", true) => Some(ItemKind::Fetch),
            (b"3" | b"4" | b"5", false) | (b"m" | b"M" | b"c" | b"C" | b"v" | b"V", true) => None,
            (_, false) => return Err("has a label that is none of 0 to 5"),
            (_, true) => return Err("has an access type that is none of r, w, i, m, c and v"),
        };
        let address = words.next().ok_or("has no address")?;
        let address = hex(address).ok_or("has an address that is not hexadecimal")?;
        let mut size = u64::from(ASSUMED_BYTES);
        if extended {
            let text = words.next().ok_or("has no size")?;
            size = hex(text).ok_or("has a size that is not hexadecimal")?;
        }
        let is_misc = matches!(label, b"3" | b"m" | b"M");
        if kind.is_none() && !is_misc {
            return Ok(Line::Flush);
        }
        if size == 0 || size > PageSize::BASE.bytes() {
            return Err("has a size outside 1..=4096 bytes");
        }
        let size = size as u16;
        Ok(match kind {
            Some(kind) => Line::Reference(kind, address, size),
            None => Line::Unknown(address, size),
        })
    }
}

/// Recognises a text whose first lines are all Dinero's.
fn recognise(head: &[u8], extended: bool) -> Likeness {
    let mut references = 0;
    for line in head_lines(head) {
        match Line::parse(line, extended) {
            Ok(Line::Reference(..) | Line::Unknown(..)) => references += 1,
            Ok(Line::Flush | Line::Blank) => {}
            Err(_) => return Likeness::No,
        }
    }
    if references > 0 { Likeness::Yes } else { Likeness::No }
}

/// Dinero's text on its way in.
struct DinReader {
    lines: Lines,
    state: State,
}

/// The state of the reader between lines.
struct State {
    extended: bool,
    /// The sizes of instructions, in a text without sizes.
    lengths: Lengths,
    references: u64,
    fetches: u64,
    unknown: u64,
    flushes: u64,
}

impl DinReader {
    fn new(lines: Lines, extended: bool) -> Self {
        let lengths = Lengths::new();
        let state = State { extended, lengths, references: 0, fetches: 0, unknown: 0, flushes: 0 };
        DinReader { lines, state }
    }
}

impl State {
    #[inline]
    fn line(&mut self, text: &[u8], place: Place, out: &mut Learning) -> Result<(), String> {
        let (kind, addr, size_bytes) = match Line::parse(text, self.extended) {
            Ok(Line::Reference(kind, addr, size_bytes)) => (kind, addr, size_bytes),
            Ok(Line::Unknown(addr, size_bytes)) => {
                self.unknown += 1;
                (ItemKind::Load, addr, size_bytes)
            }
            Ok(Line::Flush) => {
                self.flushes += 1;
                return Ok(());
            }
            Ok(Line::Blank) => return Ok(()),
            Err(what) => return Err(format!("`{}` {what}", quoted(text))),
        };
        self.references += 1;
        self.fetches += u64::from(kind == ItemKind::Fetch);
        let reference = Reference::new(kind, VirtAddr::new(addr), size_bytes);
        if self.extended {
            out.reference(reference, place);
        } else if kind == ItemKind::Fetch {
            self.lengths.fetch(Fetch { addr, ..Fetch::default() }, place, out);
        } else {
            self.lengths.data(reference, place, out);
        }
        Ok(())
    }
}

impl Reader for DinReader {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let more = self.lines.read_some(|text, place| self.state.line(text, place, out));
        if !matches!(more, Ok(true)) {
            self.state.lengths.finish(out);
        }
        if matches!(more, Ok(false)) && self.state.references == 0 {
            return Err(self.lines.wrong_whole("has no references"));
        }
        more
    }

    fn facts(&self) -> Facts {
        let State { extended, fetches, unknown, flushes, .. } = self.state;
        let mut notes = Vec::new();
        if !extended && fetches > 0 {
            notes.push(lengths::NOTE.to_owned());
        }
        if unknown > 0 {
            notes.push(format!("references of unknown kind, taken for loads: {unknown}"));
        }
        if flushes > 0 {
            notes.push(format!("flushes and invalidations, left out: {flushes}"));
        }
        Facts {
            has_instructions: fetches > 0,
            has_sizes: extended,
            notes,
            ..Facts::of(if extended { XDIN.name } else { DIN.name })
        }
    }

    fn progress(&self) -> Progress {
        self.lines.progress()
    }

    fn place(&self) -> Place {
        self.lines.place()
    }
}

/// A modify as the load and the store that it is.
const MODIFIES: &str = "which loads and stores are one modify: it is written as a load and a store";

struct DinLines;

impl LineFormat for DinLines {
    fn line(&self, out: &mut Vec<u8>, kind: ItemKind, addr: VirtAddr, _size_bytes: u16) {
        let labels: &[u8] = match kind {
            ItemKind::Load => b"0",
            ItemKind::Store => b"1",
            ItemKind::Fetch => b"2",
            ItemKind::Modify => b"01",
        };
        for &label in labels {
            out.extend_from_slice(&[label, b' ']);
            push_hex(out, addr.raw(), 0);
            out.push(b'\n');
        }
    }

    fn losses(&self) -> Vec<String> {
        ["the sizes of all references", MODIFIES, ATOMIC_AND_REGISTERS].map(str::to_owned).to_vec()
    }
}

struct XdinLines;

impl LineFormat for XdinLines {
    fn line(&self, out: &mut Vec<u8>, kind: ItemKind, addr: VirtAddr, size_bytes: u16) {
        let labels: &[u8] = match kind {
            ItemKind::Load => b"r",
            ItemKind::Store => b"w",
            ItemKind::Fetch => b"i",
            ItemKind::Modify => b"rw",
        };
        for &label in labels {
            out.extend_from_slice(&[label, b' ']);
            push_hex(out, addr.raw(), 0);
            out.push(b' ');
            push_hex(out, u64::from(size_bytes), 0);
            out.push(b'\n');
        }
    }

    fn losses(&self) -> Vec<String> {
        [MODIFIES, ATOMIC_AND_REGISTERS].map(str::to_owned).to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::CUT;
    use super::*;
    use crate::formats::testing::{self, read, references_of, split_modifies};
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(octavo_oracle::cases(64))]

        /// `xdin` drops nothing but that a modify is one reference.
        #[test]
        fn xdin_reads_back_its_own_output(random in testing::stream(1..80)) {
            let (bytes, written) = testing::write(&XDIN, &random).unwrap();
            let expected = split_modifies(&references_of(&random));
            prop_assert_eq!(written.losses[0].as_str(), MODIFIES);
            prop_assume!(!expected.is_empty());
            prop_assert_eq!((XDIN.recognise)(&bytes[..bytes.len().min(4096)]), Likeness::Yes);
            prop_assert_eq!((DIN.recognise)(&bytes[..bytes.len().min(4096)]), Likeness::No);
            prop_assert_eq!(read(&XDIN, &bytes).whole(), expected);
        }

        /// `din` drops sizes as well: data is one byte long, an instruction as long as it was if
        /// the next one follows it.
        #[test]
        fn din_reads_back_its_own_output(random in testing::stream(1..80)) {
            let (bytes, _) = testing::write(&DIN, &random).unwrap();
            let expected = split_modifies(&references_of(&random));
            prop_assume!(!expected.is_empty());
            prop_assert_eq!((DIN.recognise)(&bytes[..bytes.len().min(4096)]), Likeness::Yes);
            prop_assert_eq!((XDIN.recognise)(&bytes[..bytes.len().min(4096)]), Likeness::No);
            testing::same_but_for_sizes(&read(&DIN, &bytes).whole(), &expected);
        }
    }

    fn kinds(format: &Format, text: &str) -> Vec<(ItemKind, u64, u16)> {
        let whole = read(format, text.as_bytes()).whole();
        whole
            .iter()
            .map(|reference| (reference.kind, reference.addr.raw(), reference.size_bytes))
            .collect()
    }

    #[test]
    fn dineros_lines() {
        use ItemKind::{Fetch, Load, Store};
        let text = "2 0 a comment\n0 1000\r\n\n 2\t5\n3 70F60888\n2 0x0\n1 70f6088c\n4 0\n2 400\n";
        assert_eq!(
            kinds(&DIN, text),
            [
                (Fetch, 0, 5),
                (Load, 0x1000, 1),
                (Fetch, 5, 4),
                (Load, 0x70f60888, 1),
                (Fetch, 0, 5),
                (Store, 0x70f6088c, 1),
                (Fetch, 0x400, 4),
            ]
        );
        let notes = read(&DIN, text.as_bytes()).facts.notes;
        assert_eq!(notes[1], "references of unknown kind, taken for loads: 1");
        assert_eq!(notes[2], "flushes and invalidations, left out: 1");
        let text = "i 401000 3\nr 1ffe 10\nW 0x2000 0x1000 comment\nm 8 1\nc 0 0\nv 10 40\n";
        assert_eq!(
            kinds(&XDIN, text),
            [(Fetch, 0x401000, 3), (Load, 0x1ffe, 16), (Store, 0x2000, 4096), (Load, 8, 1)]
        );
    }

    #[test]
    fn wrong_lines_are_named() {
        for (format, text, sentence) in [
            (&DIN, "0 10\n9 10\n", "`trace`, line 2: `9 10` has a label that is none of 0 to 5"),
            (&DIN, "0\n", "`trace`, line 1: `0` has no address"),
            (&DIN, "0 1g\n", "`trace`, line 1: `0 1g` has an address that is not hexadecimal"),
            (&DIN, "\n4 0\n", "`trace` has no references"),
            (&XDIN, "r 10 0\n", "`trace`, line 1: `r 10 0` has a size outside 1..=4096 bytes"),
            (
                &XDIN,
                "r 10 1001\n",
                "`trace`, line 1: `r 10 1001` has a size outside 1..=4096 bytes",
            ),
            (&XDIN, "r 10 4\nr 10", &format!("`trace`, line 2: {CUT}")),
            // The address may have been longer.
            (&DIN, "0 10\n0 20", &format!("`trace`, line 2: {CUT}")),
            (
                &XDIN,
                "0 10 4\n",
                "`trace`, line 1: `0 10 4` has an access type that is none of r, w, i, m, c and v",
            ),
        ] {
            assert_eq!(read(format, text.as_bytes()).sentence(), sentence);
        }
    }
}
