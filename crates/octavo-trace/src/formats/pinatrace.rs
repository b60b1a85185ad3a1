//! The text of Pin's example tool `pinatrace`.
//!
//! `0x7f..: R 0x7f..` a line: the instruction, whether it reads or writes, and where; `#eof` on
//! the last. Each memory operand has a line, whatever its size, and an instruction without one
//! has none: so there is no count of instructions here, and nothing may be divided by it. Null
//! pointers are `(nil)`, as glibc prints them.

use octavo_types::{ItemKind, VirtAddr};

use super::lines::{Lines, head_lines, quoted};
use super::numbers::hex;
use super::reader::{Learning, Reader, ReaderSource};
use super::{Format, Likeness};
use crate::learn::Reference;
use crate::source::{ASSUMED_BYTES, Facts, Place, Progress, TraceError};

/// The format's entry in the list.
pub static FORMAT: Format = Format {
    name: "pinatrace",
    about: "text of Pin's example tool `pinatrace`: data addresses without sizes or instructions",
    suffixes: &["pinatrace"],
    recognise,
    open: |input| {
        let lines = Lines::new(input);
        let state = State { references: 0, ended: false };
        Ok(Box::new(ReaderSource::new(PinatraceReader { lines, state })))
    },
    create: None,
};

/// The last line.
const END: &[u8] = b"#eof";

/// The kind and the address of a reference.
#[inline]
fn parse(text: &[u8]) -> Option<(ItemKind, u64)> {
    let pointer = |text| if text == b"(nil)" { Some(0) } else { hex(text) };
    let colon = memchr::memchr(b':', text)?;
    pointer(&text[..colon])?;
    let (kind, address) = match &text[colon + 1..] {
        [b' ', b'R', b' ', address @ ..] => (ItemKind::Load, address),
        [b' ', b'W', b' ', address @ ..] => (ItemKind::Store, address),
        _ => return None,
    };
    Some((kind, pointer(address.trim_ascii_end())?))
}

fn recognise(head: &[u8]) -> Likeness {
    let is_ours = |line: &[u8]| parse(line).is_some() || line == END;
    if head_lines(head).all(is_ours) { Likeness::Yes } else { Likeness::No }
}

/// The text on its way in.
struct PinatraceReader {
    lines: Lines,
    state: State,
}

struct State {
    references: u64,
    /// The last line was read.
    ended: bool,
}

impl State {
    #[inline]
    fn line(&mut self, text: &[u8], place: Place, out: &mut Learning) -> Result<(), String> {
        let Some((kind, addr)) = parse(text) else { return self.other(text) };
        if self.ended {
            return Err(format!("`{}` follows `#eof`", quoted(text)));
        }
        self.references += 1;
        out.reference(Reference::new(kind, VirtAddr::new(addr), ASSUMED_BYTES), place);
        Ok(())
    }

    /// A line that is not a reference.
    fn other(&mut self, text: &[u8]) -> Result<(), String> {
        match text.trim_ascii() {
            b"" => Ok(()),
            END => {
                self.ended = true;
                Ok(())
            }
            _ => Err(format!("`{}` is not pinatrace's", quoted(text))),
        }
    }
}

impl Reader for PinatraceReader {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let more = self.lines.read_some(|text, place| self.state.line(text, place, out))?;
        if !more && !self.state.ended {
            return Err(self.lines.wrong("ends without `#eof`: the trace is cut short"));
        }
        if !more && self.state.references == 0 {
            return Err(self.lines.wrong_whole("has no references"));
        }
        Ok(more)
    }

    fn facts(&self) -> Facts {
        Facts {
            has_instructions: false,
            has_sizes: false,
            notes: vec![
                "the format has data references only: nothing is known of instructions".to_owned(),
            ],
            ..Facts::of(FORMAT.name)
        }
    }

    fn progress(&self) -> Progress {
        self.lines.progress()
    }

    fn place(&self) -> Place {
        self.lines.place()
    }
}

#[cfg(test)]
mod tests {
    use super::super::lines::CUT;
    use super::*;
    use crate::formats::testing::read;

    const TEXT: &str = "0x7ffff7fe4540: W 0x7fffffffe2a8\n0x7ffff7fe4540: R 0xffffffffffffffff\n\
                        0x401000: R (nil)\n#eof\n";

    #[test]
    fn pinatraces_lines() {
        assert_eq!(recognise(TEXT.as_bytes()), Likeness::Yes);
        let drained = read(&FORMAT, TEXT.as_bytes());
        assert!(!drained.facts.has_instructions && !drained.facts.has_sizes);
        let references = drained.whole();
        let references = references
            .iter()
            .map(|reference| (reference.kind, reference.addr.raw(), reference.size_bytes));
        assert!(references.eq([
            (ItemKind::Store, 0x7fffffffe2a8, 1),
            (ItemKind::Load, u64::MAX, 1),
            (ItemKind::Load, 0, 1),
        ]));
    }

    #[test]
    fn wrong_texts_are_named() {
        let cut = "ends without `#eof`: the trace is cut short";
        for (text, sentence) in [
            (TEXT.replace("#eof\n", ""), format!("`trace`, line 3: {cut}")),
            (
                TEXT.to_owned() + TEXT,
                "`trace`, line 5: `0x7ffff7fe4540: W 0x7fffffffe2a8` follows \
                                      `#eof`"
                    .to_owned(),
            ),
            ("#eof\n".to_owned(), "`trace` has no references".to_owned()),
            (
                "0x1: X 0x2\n".to_owned(),
                "`trace`, line 1: `0x1: X 0x2` is not pinatrace's".to_owned(),
            ),
            ("0x1: R 0x2\n0x1: R".to_owned(), format!("`trace`, line 2: {CUT}")),
        ] {
            assert_eq!(read(&FORMAT, text.as_bytes()).sentence(), sentence);
        }
        assert_eq!(read(&FORMAT, b"0x1: R 0x2\n").references.len(), 1);
        for text in ["0x1: X 0x2\n", "2 10\n", "", "I  04016b80,3\n"] {
            assert_eq!(recognise(text.as_bytes()), Likeness::No, "{text}");
        }
    }
}
