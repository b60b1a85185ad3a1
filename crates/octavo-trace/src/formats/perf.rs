//! Memory samples of Linux's perf, as text.
//!
//! Two texts are read, each as perf's own source prints it (`builtin-script.c`, `builtin-mem.c`):
//!
//! * `perf script -F comm,tid,pid,time,event,addr,ip`, with or without `cpu`, `period`, `sym`,
//!   `symoff`, `dso`, `data_src` (and then `weight`), `phys_addr`, `data_page_size`,
//!   `code_page_size`, call chains, and the default fields of `perf mem record`. After the event's
//!   name and its colon come the data address, then the instruction's; a physical address is the
//!   last column that is 16 wide. A line with a single address must have a call chain below it: it
//!   would be the instruction's otherwise.
//! * `perf mem report -D`, with or without `-x`, `--phys-data` and `--data-page-size`.
//!
//! A sample's kind comes from its data source, or from its event's name (`mem-stores`); else it is
//! taken for a load. Samples show where memory is touched, not how often.

use octavo_types::{Event, ItemKind, PhysAddr, VirtAddr};

use super::lines::{Lines, head_lines, quoted};
use super::numbers::hex;
use super::reader::{Learning, Reader, ReaderSource};
use super::{Format, Likeness};
use crate::learn::Reference;
use crate::source::{ASSUMED_BYTES, Facts, Place, Progress, TraceError};

/// The format's entry in the list.
pub static FORMAT: Format = Format {
    name: "perf",
    about: "memory samples of Linux's perf: text of `perf script` or `perf mem report -D`",
    suffixes: &["perf"],
    recognise,
    open: |input| {
        let reader = PerfReader { lines: Lines::new(input), text: Text::default() };
        Ok(Box::new(ReaderSource::new(reader)))
    },
    create: None,
};

/// The first columns of `perf mem report -D`.
const RAW_HEADER: &[u8] = b"# PID, TID, IP, ADDR, ";
/// How wide `perf script` prints an address at least.
const COLUMN_BYTES: usize = 16;
/// How wide physical addresses are.
const PHYSICAL_BITS: u32 = 52;

fn recognise(head: &[u8]) -> Likeness {
    let mut lines = head_lines(head).filter(|line| !line.is_empty());
    loop {
        match lines.next() {
            Some(line) if line.starts_with(RAW_HEADER) => return Likeness::Yes,
            Some([b'#', ..]) => {}
            Some(line) if is_message(line) => return Likeness::Yes,
            Some(line) if Sample::of_script(line).is_some() => return Likeness::Yes,
            _ => return Likeness::No,
        }
    }
}

/// One sample.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Sample {
    /// None for a prefetch.
    kind: Option<ItemKind>,
    addr: u64,
    phys: Option<u64>,
    /// The line also has the instruction's address, so that `addr` is surely the data address.
    certain: bool,
}

/// The columns of `perf mem report -D`.
#[derive(Clone, Copy, PartialEq, Debug)]
struct RawColumns {
    phys: bool,
    page_size: bool,
}

impl Sample {
    /// The sample in a line of `perf script`.
    fn of_script(line: &[u8]) -> Option<Self> {
        let mut words = Words { line, at: 0 };
        let mut before: &[u8] = b"";
        let (event, addr) = loop {
            let word = words.next()?;
            if let Some(addr) = word.address()
                && is_event(before)
            {
                break (before, addr);
            }
            before = word.text;
        };
        let is_store = event.windows(5).any(|part| part.eq_ignore_ascii_case(b"store"));
        let mut kind = Some(if is_store { ItemKind::Store } else { ItemKind::Load });
        // Columns after the address, the last of them if nothing but page sizes followed, and
        // whether it stands after a file's name.
        let (mut columns, mut last, mut after_file) = (0, None, false);
        let mut has_source = false;
        let mut before: &[u8] = b"";
        for word in words {
            if let Some(value) = word.address() {
                columns += 1;
                (last, after_file) = (Some(value), before.ends_with(b")"));
            } else if word.text == b"|OP" {
                // The column before is the data source itself.
                has_source = true;
                columns -= i32::from(last.take().is_some());
            } else {
                if before == b"|OP" {
                    kind = of_operation(word.text, kind);
                }
                last = last.filter(|_| is_page_size(word.text));
            }
            before = word.text;
        }
        // Where there is a data source there is a weight, which looks like an address.
        let is_phys = if has_source { after_file || columns > 2 } else { columns > 1 };
        let phys = last.filter(|&phys| is_phys && phys != 0 && phys >> PHYSICAL_BITS == 0);
        Some(Sample { kind, addr, phys, certain: columns > 0 })
    }

    /// The sample in a line of `perf mem report -D`.
    fn of_raw(line: &[u8], columns: RawColumns) -> Option<Self> {
        let mut words = line.split(|byte| b" \t,;|".contains(byte)).filter(|word| !word.is_empty());
        let address = |word: &[u8]| hex(word.strip_prefix(b"0x")?);
        let (_process, _thread) = (words.next()?, words.next()?);
        let _instruction = address(words.next()?)?;
        let addr = words.next()?;
        // perf prints `0x016%lx` where it means `0x%016lx`, on the first line at least.
        let addr = match addr.strip_prefix(b"0x016") {
            Some(digits) => hex(digits)?,
            None => address(addr)?,
        };
        let phys = if columns.phys { Some(address(words.next()?)?) } else { None };
        if columns.page_size && !is_page_size(words.next()?) {
            return None;
        }
        let (_weight, source) = (words.next()?, address(words.next()?)?);
        // `union perf_mem_data_src`: the lowest bits are the operation's.
        let kind = match source {
            _ if source & 0x4 != 0 => Some(ItemKind::Store),
            _ if source & 0x2 != 0 => Some(ItemKind::Load),
            _ if source & 0x8 != 0 => None,
            _ => Some(ItemKind::Load),
        };
        Some(Sample { kind, addr, phys: phys.filter(|&phys| phys != 0), certain: true })
    }
}

/// The words of a line, and how many blanks precede each.
struct Words<'a> {
    line: &'a [u8],
    at: usize,
}

struct Word<'a> {
    text: &'a [u8],
    /// Including the blanks before the word.
    width: usize,
}

impl<'a> Iterator for Words<'a> {
    type Item = Word<'a>;

    fn next(&mut self) -> Option<Word<'a>> {
        let rest = &self.line[self.at..];
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        let blanks = rest.iter().take_while(|byte| is_blank(byte)).count();
        let length = rest[blanks..].iter().take_while(|byte| !is_blank(byte)).count();
        self.at += blanks + length;
        let text = &rest[blanks..blanks + length];
        (length > 0).then_some(Word { text, width: blanks + length })
    }
}

impl Word<'_> {
    /// The word as an address, if its column is as wide as one: symbols may look like numbers.
    fn address(&self) -> Option<u64> {
        if self.width < COLUMN_BYTES || self.text.starts_with(b"0x") {
            None
        } else {
            hex(self.text)
        }
    }
}

/// Whether a word is an event's name: it ends with a colon, and is not a time.
fn is_event(word: &[u8]) -> bool {
    let name = word.strip_suffix(b":");
    name.is_some_and(|name| name.iter().any(u8::is_ascii_alphabetic))
}

fn is_page_size(word: &[u8]) -> bool {
    let digits = word.strip_suffix(b"K").or(word.strip_suffix(b"M")).or(word.strip_suffix(b"G"));
    let digits = digits.unwrap_or(word);
    word == b"N/A" || (!digits.is_empty() && digits.iter().all(u8::is_ascii_digit))
}

/// The kind in the text after `|OP`, such as `LOAD|LVL`.
fn of_operation(word: &[u8], otherwise: Option<ItemKind>) -> Option<ItemKind> {
    if word.starts_with(b"STORE") {
        Some(ItemKind::Store)
    } else if word.starts_with(b"LOAD") {
        Some(ItemKind::Load)
    } else if word.starts_with(b"PFETCH") {
        None
    } else {
        otherwise
    }
}

/// Samples on their way in.
struct PerfReader {
    lines: Lines,
    text: Text,
}

/// The state of the reader between lines.
#[derive(Default)]
struct Text {
    raw: Option<RawColumns>,
    /// A sample that a call chain must follow.
    pending: Option<Sample>,
    /// The lines may be those of a call chain.
    in_chain: bool,
    samples: u64,
    placed: u64,
    nowhere: u64,
    prefetches: u64,
}

/// The refusal of a line with a single address.
const UNCERTAIN: &str = "the sample before this line has a single address, which may be its \
                         instruction's: ask `perf script` for `-F comm,tid,pid,time,event,addr,ip`";

impl Text {
    fn line(&mut self, line: &[u8], place: Place, out: &mut Learning) -> Result<(), String> {
        if let Some(columns) = self.raw {
            match Sample::of_raw(line, columns) {
                Some(sample) => self.sample(sample, place, out),
                None if line.is_empty() || line[0] == b'#' => {}
                None => {
                    let line = quoted(line);
                    return Err(format!("`{line}` is not a sample of `perf mem report -D`"));
                }
            }
            return Ok(());
        }
        if let Some(sample) = Sample::of_script(line) {
            self.certain()?;
            self.in_chain = true;
            if sample.certain {
                self.sample(sample, place, out);
            } else {
                self.pending = Some(sample);
            }
            return Ok(());
        }
        let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
        match line {
            _ if is_message(line) => self.certain()?,
            [first, ..] if self.in_chain && is_blank(first) => {
                let mut words = Words { line, at: 0 };
                let frame = words.next().and_then(|word| hex(word.text));
                frame.ok_or_else(|| not_perfs(line))?;
                if let Some(sample) = self.pending.take() {
                    self.sample(sample, place, out);
                }
            }
            [] | [b'#', ..] => {
                self.certain()?;
                self.in_chain = false;
                if line.starts_with(RAW_HEADER) {
                    let has = |name: &[u8]| line.windows(name.len()).any(|part| part == name);
                    let (phys, page_size) = (has(b"PHYS ADDR"), has(b"DATA PAGE SIZE"));
                    self.raw = Some(RawColumns { phys, page_size });
                }
            }
            _ => {
                self.certain()?;
                return Err(not_perfs(line));
            }
        }
        Ok(())
    }

    /// Refuses a pending sample, whose single address may be its instruction's.
    fn certain(&self) -> Result<(), String> {
        if self.pending.is_some() { Err(UNCERTAIN.to_owned()) } else { Ok(()) }
    }

    fn sample(&mut self, sample: Sample, place: Place, out: &mut Learning) {
        let Sample { kind, addr, phys, .. } = sample;
        self.samples += 1;
        let Some(kind) = kind else {
            self.prefetches += 1;
            return;
        };
        if addr == 0 {
            self.nowhere += 1;
            return;
        }
        let virt = VirtAddr::new(addr);
        if let Some(phys) = phys {
            self.placed += 1;
            out.event(&Event::Translation { virt, phys: PhysAddr::new(phys) }, place);
        }
        out.reference(Reference::new(kind, virt, ASSUMED_BYTES), place);
    }
}

/// Whether a line is a message that `--show-mmap-events` or a similar option adds.
fn is_message(line: &[u8]) -> bool {
    memchr::memmem::find(line, b" PERF_RECORD_").is_some()
}

fn not_perfs(line: &[u8]) -> String {
    format!("`{}` is not a sample of `perf script` with a data address", quoted(line))
}

impl Reader for PerfReader {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        let more = self.lines.read_some(|line, place| self.text.line(line, place, out))?;
        if !more {
            self.text.certain().map_err(|what| self.lines.wrong(what))?;
            if self.text.samples == 0 {
                return Err(self.lines.wrong_whole("has no samples"));
            }
        }
        Ok(more)
    }

    fn facts(&self) -> Facts {
        let Text { samples, placed, nowhere, prefetches, .. } = self.text;
        let mut notes = vec![
            format!(
                "the trace is of {samples} samples: they show which memory is used, not how often \
                 it is missed"
            ),
            "the samples of all processes in it are taken as one program's".to_owned(),
        ];
        for (count, what) in [
            (placed, "samples have physical addresses"),
            (nowhere, "samples have no data address, and were left out"),
            (prefetches, "prefetches were left out"),
        ] {
            if count > 0 {
                notes.push(format!("{count} {what}"));
            }
        }
        Facts {
            exact: false,
            samples: true,
            has_instructions: false,
            has_sizes: false,
            notes,
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
mod tests;
