//! Tables of comma-separated values, one row a reference.
//!
//! The first row names the columns, in any order and either case: `kind` (`fetch`, `load`, `store`,
//! `modify`, or `I`, `L`, `S`, `M`, or `R` and `W` for loads and stores), `address` (decimal, or
//! hexadecimal after `0x`), and if there are any, `size` in bytes, `instructions` (how many have
//! executed up to and including this reference; they never decrease) and `thread`. Other columns
//! are ignored, with a note. Quotes are those of RFC 4180.

use std::io::{ErrorKind, Read};
use std::ops::Range;

use csv_core::ReadRecordResult;
use octavo_types::{Event, ItemKind, VirtAddr};

use super::executed::ATOMIC_AND_REGISTERS;
use super::line_writer::{LineFormat, LineWriter};
use super::lines::{CUT, quoted};
use super::numbers::{decimal, number, push_decimal, push_hex};
use super::reader::{Learning, Reader, ReaderSource};
use super::rows::{FIRST_THREAD, Row, Rows, Running};
use super::{Format, Likeness};
use crate::source::{Facts, Input, Place, Progress, TraceError};

/// The format's entry in the list.
pub static FORMAT: Format = Format {
    name: "csv",
    about: "comma-separated columns kind, address, and if known size, instructions, thread",
    suffixes: &["csv"],
    recognise,
    open: |input| Ok(Box::new(ReaderSource::new(CsvReader::new(input)))),
    create: Some(|output| {
        LineWriter::create(output, CsvLines(Running(FIRST_THREAD)), "kind,address,size,thread\n")
    }),
};

/// How long a row may be, without quotes and commas.
const MAX_ROW_BYTES: usize = 4096;
/// How many columns a table may have.
const MAX_COLUMNS: usize = 64;
/// How much text is read at once.
const BUFFER_BYTES: usize = if cfg!(fuzzing) { 1 << 13 } else { 1 << 18 };

/// A row as text.
struct Fields {
    bytes: [u8; MAX_ROW_BYTES],
    ends: [usize; MAX_COLUMNS],
    /// How much of both is filled.
    filled: (usize, usize),
}

impl Fields {
    fn new() -> Box<Self> {
        Box::new(Fields { bytes: [0; MAX_ROW_BYTES], ends: [0; MAX_COLUMNS], filled: (0, 0) })
    }

    fn get(&self, column: usize) -> &[u8] {
        let start = if column == 0 { 0 } else { self.ends[column - 1] };
        self.bytes[start..self.ends[column]].trim_ascii()
    }

    fn count(&self) -> usize {
        self.filled.1
    }
}

/// Where the columns stand.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Columns {
    kind: usize,
    address: usize,
    size: Option<usize>,
    instructions: Option<usize>,
    thread: Option<usize>,
    count: usize,
    ignored: Vec<String>,
}

impl Columns {
    fn parse(header: &Fields) -> Result<Self, String> {
        let mut places = [None; 5];
        let mut ignored = Vec::new();
        for column in 0..header.count() {
            let text = header.get(column);
            let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
            let names = ["kind", "address", "size", "instructions", "thread"];
            match names.iter().position(|name| text.eq_ignore_ascii_case(name.as_bytes())) {
                None => ignored.push(quoted(text)),
                Some(name) if places[name].is_some() => {
                    return Err(format!("two columns are named `{}`", names[name]));
                }
                Some(name) => places[name] = Some(column),
            }
        }
        let [kind, address, size, instructions, thread] = places;
        Ok(Columns {
            kind: kind.ok_or("no column is named `kind`")?,
            address: address.ok_or("no column is named `address`")?,
            size,
            instructions,
            thread,
            count: header.count(),
            ignored,
        })
    }

    #[inline]
    fn row(&self, fields: &Fields) -> Result<Row, String> {
        if fields.count() != self.count {
            return Err(format!("has {} of {} columns", fields.count(), self.count));
        }
        let wrong = |text: &[u8], what| format!("`{}` is {what}", quoted(text));
        let kind = fields.get(self.kind);
        let what = "not a kind of reference: give fetch, load, store or modify";
        let kind = kind_of(kind).ok_or_else(|| wrong(kind, what))?;
        let address = fields.get(self.address);
        let what = "not an address (hexadecimal ones begin with 0x)";
        let addr = number(address).ok_or_else(|| wrong(address, what))?;
        let optional = |column: Option<usize>, what| {
            let Some(column) = column else { return Ok(None) };
            let text = fields.get(column);
            number(text).map(Some).ok_or_else(|| wrong(text, what))
        };
        let thread = match self.thread {
            None => None,
            Some(column) => {
                let text = fields.get(column);
                let number = decimal(text).and_then(|number| u32::try_from(number).ok());
                Some(number.ok_or_else(|| wrong(text, "not a thread's number"))?)
            }
        };
        Ok(Row {
            kind,
            addr,
            size: optional(self.size, "not a size")?,
            instructions: optional(self.instructions, "not a number of instructions")?,
            thread,
        })
    }
}

#[inline]
fn kind_of(text: &[u8]) -> Option<ItemKind> {
    let is = |name: &str| text.eq_ignore_ascii_case(name.as_bytes());
    match text {
        [letter] => Some(match letter.to_ascii_uppercase() {
            b'I' => ItemKind::Fetch,
            b'L' | b'R' => ItemKind::Load,
            b'S' | b'W' => ItemKind::Store,
            b'M' => ItemKind::Modify,
            _ => return None,
        }),
        _ if is("load") => Some(ItemKind::Load),
        _ if is("fetch") => Some(ItemKind::Fetch),
        _ if is("store") => Some(ItemKind::Store),
        _ if is("modify") => Some(ItemKind::Modify),
        _ => None,
    }
}

/// Recognises a table whose first row names the required columns.
fn recognise(head: &[u8]) -> Likeness {
    let (mut parser, mut fields) = (csv_core::Reader::new(), Fields::new());
    let (result, _, bytes, ends) = parser.read_record(head, &mut fields.bytes, &mut fields.ends);
    fields.filled = (bytes, ends);
    let is_row = match result {
        ReadRecordResult::Record => true,
        // A header that no newline follows.
        ReadRecordResult::InputEmpty => {
            let Fields { bytes, ends, filled } = &mut *fields;
            let rest = parser.read_record(&[], &mut bytes[filled.0..], &mut ends[filled.1..]);
            filled.1 += rest.3;
            rest.0 == ReadRecordResult::Record
        }
        _ => false,
    };
    if is_row && Columns::parse(&fields).is_ok() { Likeness::Yes } else { Likeness::No }
}

/// A table on its way in.
struct CsvReader {
    input: Input,
    buffer: Vec<u8>,
    /// The part of the buffer that is not yet parsed.
    filled: Range<usize>,
    parser: csv_core::Reader,
    fields: Box<Fields>,
    columns: Option<Columns>,
    rows: Rows,
    /// The line that ends, or holds the end of, the last row.
    line: u64,
    any: bool,
}

impl CsvReader {
    fn new(input: Input) -> Self {
        CsvReader {
            input,
            buffer: vec![0; BUFFER_BYTES],
            filled: 0..0,
            parser: csv_core::Reader::new(),
            fields: Fields::new(),
            columns: None,
            rows: Rows::new(),
            line: 0,
            any: false,
        }
    }

    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::at(self.input.name(), self.place(), what)
    }

    /// Reads more; returns whether there was more.
    fn fill(&mut self) -> Result<bool, TraceError> {
        loop {
            match self.input.read(&mut self.buffer) {
                Ok(read) => {
                    self.filled = 0..read;
                    self.any |= read > 0;
                    return Ok(read > 0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(self.wrong(error.to_string())),
            }
        }
    }

    /// Takes every row that the buffer holds; at the end of the trace no part of one may be left.
    fn take(&mut self, out: &mut Learning) -> Result<(), TraceError> {
        let at_end = self.filled.is_empty();
        loop {
            let text = &self.buffer[self.filled.clone()];
            let Fields { bytes, ends, filled } = &mut *self.fields;
            let (result, read, wrote, ended) =
                self.parser.read_record(text, &mut bytes[filled.0..], &mut ends[filled.1..]);
            let newline = read > 0 && text[read - 1] == b'\n';
            self.filled.start += read;
            filled.0 += wrote;
            filled.1 += ended;
            self.line = self.parser.line() - u64::from(newline);
            match result {
                ReadRecordResult::InputEmpty | ReadRecordResult::End => return Ok(()),
                ReadRecordResult::OutputFull => {
                    return Err(self.wrong(format!("is longer than {MAX_ROW_BYTES} bytes")));
                }
                ReadRecordResult::OutputEndsFull => {
                    return Err(self.wrong(format!("has more than {MAX_COLUMNS} columns")));
                }
                ReadRecordResult::Record => {
                    if at_end {
                        return Err(self.wrong(CUT));
                    }
                    let taken = self.row(out);
                    self.fields.filled = (0, 0);
                    taken.map_err(|what| self.wrong(what))?;
                }
            }
        }
    }

    /// Takes the row that is complete now.
    #[inline]
    fn row(&mut self, out: &mut Learning) -> Result<(), String> {
        let Some(columns) = &self.columns else {
            self.columns = Some(Columns::parse(&self.fields)?);
            return Ok(());
        };
        let row = columns.row(&self.fields)?;
        self.rows.row(row, Place::Line(self.line), out)
    }
}

impl Reader for CsvReader {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let more = self.fill().and_then(|more| {
            self.take(out)?;
            Ok(more)
        });
        if !matches!(more, Ok(true)) {
            self.rows.finish(out);
        }
        if matches!(more, Ok(false)) && self.rows.count() == 0 {
            let what = if self.any { "has no references" } else { "is empty" };
            return Err(TraceError::whole(self.input.name(), what));
        }
        more
    }

    fn facts(&self) -> Facts {
        let mut facts = self.rows.facts(FORMAT.name);
        for name in self.columns.iter().flat_map(|columns| &columns.ignored) {
            facts.notes.push(format!("the column `{name}` is ignored"));
        }
        facts
    }

    fn progress(&self) -> Progress {
        self.input.progress()
    }

    fn place(&self) -> Place {
        Place::Line(self.line)
    }
}

struct CsvLines(Running);

impl LineFormat for CsvLines {
    fn line(&self, out: &mut Vec<u8>, kind: ItemKind, addr: VirtAddr, size_bytes: u16) {
        out.extend_from_slice(match kind {
            ItemKind::Fetch => b"fetch,0x",
            ItemKind::Load => b"load,0x",
            ItemKind::Store => b"store,0x",
            ItemKind::Modify => b"modify,0x",
        });
        push_hex(out, addr.raw(), 0);
        out.push(b',');
        push_decimal(out, u64::from(size_bytes));
        out.push(b',');
        push_decimal(out, u64::from(self.0.0));
        out.push(b'\n');
    }

    fn event(&mut self, event: &Event) -> bool {
        self.0.event(event)
    }

    fn losses(&self) -> Vec<String> {
        vec![ATOMIC_AND_REGISTERS.to_owned()]
    }
}

#[cfg(test)]
mod tests;
