//! The text of Valgrind's Lackey (`--tool=lackey --trace-mem=yes`).
//!
//! One line a reference, `I  04016b80,3` or ` L 1ffeffe7e8,8`, with Valgrind's own messages
//! between. The text knows no segments: they are learnt on the way in ([`crate::learn`]).

use std::collections::VecDeque;

use octavo_types::ItemKind;

use super::lines::{CUT, quoted, quoted_to};
use super::reader::{Learning, Reader, ReaderSource};
use super::{Format, Likeness};
use crate::learn::Reference;
use crate::source::{Blocks, Facts, Input, MAX_REST_BYTES, Place, Progress, TraceError};

mod line;
#[cfg(test)]
mod tests;
mod write;

use line::{Fault, Line, plain_reference};

/// The format's entry in the list.
pub static FORMAT: Format = Format {
    name: "lackey",
    about: "text of `valgrind --tool=lackey --trace-mem=yes`",
    suffixes: &["lackey"],
    recognise,
    open: |input| {
        let mut source = live_source(input);
        source.reader.live = false;
        Ok(Box::new(source))
    },
    create: Some(write::create),
};

/// The longest line that may be a reference.
const MAX_LINE_BYTES: usize = 4096;
const _: () = assert!(MAX_LINE_BYTES <= MAX_REST_BYTES);
/// How much is read before its references are handed on.
const BATCH_BYTES: usize = 1 << 18;
/// How many of Valgrind's messages are kept, the last ones.
const MAX_MESSAGES: usize = 64;
/// How much of each.
const MAX_MESSAGE_BYTES: usize = 512;

/// Recognises a text whose first line besides messages and empty ones is a reference.
fn recognise(head: &[u8]) -> Likeness {
    for text in head.split_inclusive(|&byte| byte == b'\n') {
        let Some(text) = text.strip_suffix(b"\n") else { return Likeness::No };
        match Line::parse(text) {
            Ok(Line::Nothing | Line::Message(_)) => {}
            Ok(Line::Reference(_)) => return Likeness::Yes,
            Err(_) => return Likeness::No,
        }
    }
    Likeness::No
}

/// Lackey's text as a source.
pub(crate) type LackeySource = ReaderSource<LackeyReader>;

/// Reads the output of a running Valgrind.
pub(crate) fn live_source(input: Input) -> LackeySource {
    ReaderSource::new(LackeyReader {
        blocks: Blocks::new(input),
        text: Text::default(),
        live: true,
    })
}

/// Lackey's text on its way in.
pub(crate) struct LackeyReader {
    blocks: Blocks,
    text: Text,
    /// The text may end inside a line, as it does when Valgrind is killed: that line is used if it
    /// reads as a reference, and left out if not. A file that ends so is refused.
    live: bool,
}

impl LackeyReader {
    /// The last of Valgrind's own messages, without their `==pid==`.
    pub(crate) fn messages(&self) -> impl Iterator<Item = &str> {
        self.text.messages.iter().map(String::as_str)
    }

    fn wrong(&self, what: String) -> TraceError {
        TraceError::at(self.blocks.name(), self.place(), what)
    }
}

impl Reader for LackeyReader {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let mut total = 0;
        loop {
            let more = self.blocks.more();
            let read = match &more {
                Ok(read) => *read,
                Err(_) => 0,
            };
            let used = self.text.lines_of(self.blocks.text(), out);
            // The rest is less than a line, and at most `MAX_LINE_BYTES`.
            let used = used.map_err(|what| self.wrong(what))?;
            self.blocks.consume(used);
            more.map_err(|error| self.wrong(error.to_string()))?;
            let last = self.blocks.text();
            if read == 0 {
                if self.text.lines == 0 && last.is_empty() && !self.text.in_long_message {
                    return Err(TraceError::whole(self.blocks.name(), "is empty"));
                }
                if self.live {
                    self.text.last_line(last, out).map_err(|what| self.wrong(what))?;
                } else if !last.is_empty() || self.text.in_long_message {
                    self.text.lines += 1;
                    return Err(self.wrong(CUT.to_owned()));
                }
                return Ok(false);
            }
            total += read;
            if read < self.blocks.room_bytes() || total >= BATCH_BYTES {
                return Ok(true);
            }
        }
    }

    fn facts(&self) -> Facts {
        Facts { has_instructions: self.text.has_fetches, ..Facts::of(FORMAT.name) }
    }

    fn progress(&self) -> Progress {
        self.blocks.progress()
    }

    fn place(&self) -> Place {
        Place::Line(self.text.lines)
    }
}

/// The state of the reader between lines.
#[derive(Default)]
struct Text {
    lines: u64,
    /// Whether any line was an instruction's: a user may have filtered them out.
    has_fetches: bool,
    messages: VecDeque<String>,
    /// The start of the buffer is the rest of a message too long to hold.
    in_long_message: bool,
}

impl Text {
    /// Takes the whole lines of `text`, and returns how many bytes they have.
    fn lines_of(&mut self, text: &[u8], out: &mut Learning) -> Result<usize, String> {
        let mut used = 0;
        loop {
            // Nearly all lines are of this kind.
            while !self.in_long_message
                && let Some((reference, length)) = plain_reference(&text[used..])
            {
                used += length;
                self.lines += 1;
                self.reference(reference, out);
            }
            let Some(length) = memchr::memchr(b'\n', &text[used..]) else { break };
            self.line(&text[used..used + length], out)?;
            used += length + 1;
        }
        let rest = &text[used..];
        if rest.len() > MAX_LINE_BYTES {
            self.line(rest, out)?;
            self.lines -= 1;
            self.in_long_message = true;
            used = text.len();
        }
        Ok(used)
    }

    /// Takes what follows the last newline.
    fn last_line(&mut self, text: &[u8], out: &mut Learning) -> Result<(), String> {
        if text.is_empty() && !self.in_long_message {
            return Ok(());
        }
        // The line may be cut off anywhere, and then not be Lackey's.
        let cut = !matches!(Line::parse(text), Ok(_) | Err(Fault::TooLong));
        if cut { Ok(()) } else { self.line(text, out) }
    }

    /// Takes one line, without its newline.
    fn line(&mut self, text: &[u8], out: &mut Learning) -> Result<(), String> {
        self.lines += 1;
        if std::mem::take(&mut self.in_long_message) {
            return Ok(());
        }
        match Line::parse(text) {
            Ok(Line::Reference(reference)) => {
                self.reference(reference, out);
            }
            Ok(Line::Message(message)) => self.keep(message),
            Ok(Line::Nothing) => {}
            Err(fault) => return Err(wrong(fault, text)),
        }
        Ok(())
    }

    /// Takes the reference of the last line.
    #[inline]
    fn reference(&mut self, reference: Reference, out: &mut Learning) {
        self.has_fetches |= reference.kind == ItemKind::Fetch;
        out.reference(reference, Place::Line(self.lines));
    }

    fn keep(&mut self, message: &[u8]) {
        if message.is_empty() {
            return;
        }
        if self.messages.len() == MAX_MESSAGES {
            self.messages.pop_front();
        }
        self.messages.push_back(quoted_to(message, MAX_MESSAGE_BYTES));
    }
}

fn wrong(fault: Fault, text: &[u8]) -> String {
    let text = quoted(text);
    match fault {
        Fault::Unknown => format!("`{text}` is not Lackey's"),
        Fault::TooLong => format!("`{text}` is longer than {MAX_LINE_BYTES} bytes"),
        Fault::Size => format!("`{text}` has a size outside 1..=4096 bytes"),
    }
}
