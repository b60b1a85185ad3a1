//! Traces of text, line by line.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use octavo_types::spelling::printable;

use crate::source::{Input, Place, Progress, TraceError};

/// The longest line.
pub(crate) const MAX_LINE_BYTES: usize = 4096;
/// How much text is read at once.
const BUFFER_BYTES: usize = if cfg!(fuzzing) { 1 << 13 } else { 1 << 18 };
/// The error of a last line without its newline: cut off, it may read as another, shorter line.
pub(crate) const CUT: &str =
    "the trace ends inside this line: it was cut off, or lacks its last newline";
/// How much of a faulty line an error quotes.
const MAX_QUOTED_BYTES: usize = 80;

/// A text on its way in.
pub(crate) struct Lines {
    input: Input,
    buffer: Vec<u8>,
    /// The part of the buffer that was not yet returned as lines.
    filled: Range<usize>,
    /// The number of the last line given out.
    number: u64,
    /// Whether there was anything at all.
    any: bool,
}

impl Lines {
    /// The lines of `input`.
    pub(crate) fn new(input: Input) -> Self {
        Lines { input, buffer: vec![0; BUFFER_BYTES], filled: 0..0, number: 0, any: false }
    }

    /// Reads some more, and gives each whole line of it to `take`, without its end and with its
    /// place. An error of `take` is reported at that line. Returns false at the end of the text.
    pub(crate) fn read_some(
        &mut self,
        mut take: impl FnMut(&[u8], Place) -> Result<(), String>,
    ) -> Result<bool, TraceError> {
        self.buffer.copy_within(self.filled.clone(), 0);
        self.filled = 0..self.filled.len();
        let read = match self.input.read(&mut self.buffer[self.filled.end..]) {
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => return Ok(true),
            Err(error) => return Err(self.wrong(error.to_string())),
        };
        if read == 0 {
            return self.end();
        }
        self.any = true;
        self.filled.end += read;
        let text = &self.buffer[..self.filled.end];
        let mut used = 0;
        while let Some(length) = memchr::memchr(b'\n', &text[used..]) {
            let line = &text[used..used + length];
            used += length + 1;
            self.number += 1;
            if line.len() > MAX_LINE_BYTES {
                return Err(self.too_long());
            }
            take(without_return(line), Place::Line(self.number))
                .map_err(|what| self.wrong(what))?;
        }
        self.filled.start = used;
        if self.filled.len() > MAX_LINE_BYTES {
            self.number += 1;
            return Err(self.too_long());
        }
        Ok(true)
    }

    /// Nothing may follow the last newline.
    fn end(&mut self) -> Result<bool, TraceError> {
        if !self.any {
            return Err(TraceError::whole(self.input.name(), "is empty"));
        }
        if !self.filled.is_empty() {
            self.number += 1;
            return Err(self.wrong(CUT));
        }
        Ok(false)
    }

    fn too_long(&self) -> TraceError {
        self.wrong(format!("is longer than {MAX_LINE_BYTES} bytes"))
    }

    /// An error at the last line.
    pub(crate) fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::at(self.input.name(), self.place(), what)
    }

    /// An error of the whole trace.
    pub(crate) fn wrong_whole(&self, what: impl Into<String>) -> TraceError {
        TraceError::whole(self.input.name(), what)
    }

    /// How much of the input was read.
    pub(crate) fn progress(&self) -> Progress {
        self.input.progress()
    }

    /// The last line given out.
    pub(crate) fn place(&self) -> Place {
        Place::Line(self.number)
    }
}

/// The whole lines of the first bytes of a text, or the beginning of its only line.
pub(crate) fn head_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let whole = memchr::memrchr(b'\n', head).map_or(head, |last| &head[..last]);
    whole.split(|&byte| byte == b'\n').map(without_return)
}

/// The words of a line, which blanks and tabs separate.
pub(crate) fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|byte| matches!(byte, b' ' | b'\t')).filter(|word| !word.is_empty())
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The start of `text`, whatever it holds, fit to print.
pub(crate) fn quoted(text: &[u8]) -> String {
    quoted_to(text, MAX_QUOTED_BYTES)
}

/// At most `bytes` of `text`, whatever it holds, fit to print.
pub(crate) fn quoted_to(text: &[u8], bytes: usize) -> String {
    let mut quoted = printable(&String::from_utf8_lossy(&text[..text.len().min(bytes)]));
    if text.len() > bytes {
        quoted.push('…');
    }
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::InputOptions;

    /// The lines of `text`, and the error that ends them.
    fn lines_of(text: &str) -> (Vec<String>, Option<String>) {
        let reader = Box::new(std::io::Cursor::new(text.to_owned().into_bytes()));
        let input = Input::from_reader("t", reader, InputOptions::default()).unwrap();
        let (mut lines, mut taken) = (Lines::new(input), Vec::new());
        let error = loop {
            let more = lines.read_some(|line, _| {
                if line == b"bad" {
                    return Err("is bad".to_owned());
                }
                taken.push(String::from_utf8(line.to_vec()).unwrap());
                Ok(())
            });
            match more {
                Ok(true) => {}
                Ok(false) => break None,
                Err(error) => break Some(error.to_string()),
            }
        };
        (taken, error)
    }

    #[test]
    fn lines_and_their_ends() {
        let taken = ["a", "", "b b"].map(String::from).to_vec();
        assert_eq!(lines_of("a\r\n\nb b\n"), (taken, None));
        assert_eq!(lines_of("").1.unwrap(), "`t` is empty");
        assert_eq!(lines_of("a\nbad\nc").1.unwrap(), "`t`, line 2: is bad");
        assert_eq!(lines_of("a\nb"), (vec!["a".to_owned()], Some(format!("`t`, line 2: {CUT}"))));
    }

    #[test]
    fn many_lines_and_long_ones() {
        let (taken, error) = lines_of(&"0123456789\n".repeat(100_000));
        assert!(taken.len() == 100_000 && taken.iter().all(|line| line == "0123456789"));
        assert_eq!(error, None);
        for text in ["a".repeat(5000), "a".repeat(5000) + "\n", "a".repeat(1 << 19)] {
            let (taken, error) = lines_of(&format!("b\n{text}"));
            assert_eq!(taken, ["b"]);
            assert_eq!(error.unwrap(), "`t`, line 2: is longer than 4096 bytes");
        }
    }

    #[test]
    fn heads() {
        let heads =
            |text: &'static str| head_lines(text.as_bytes()).map(<[u8]>::len).collect::<Vec<_>>();
        assert_eq!(heads("ab\r\nc\ncut"), [2, 1]);
        assert_eq!(heads("only"), [4]);
    }
}
