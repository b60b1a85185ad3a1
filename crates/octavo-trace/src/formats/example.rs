//! Accesses as plain text: `fetch|load|store ADDRESS BYTES` a line, the address hexadecimal, the
//! size decimal, 1 to 4096.

use octavo_types::{ItemKind, PageSize, VirtAddr};

use super::lines::{Lines, head_lines, quoted, words};
use super::numbers::{decimal, hex};
use super::reader::{Learning, Reader, ReaderSource};
use super::{Format, Likeness};
use crate::learn::Reference;
use crate::source::{Facts, Place, Progress, TraceError};

/// The format's entry in the list.
pub static FORMAT: Format = Format {
    name: "accesses",
    about: "plain text: kind, address and size of each access",
    suffixes: &["accesses"],
    recognise: |head| {
        let is_ours = head_lines(head).all(|line| parse(line).is_ok());
        if is_ours { Likeness::Yes } else { Likeness::No }
    },
    open: |input| {
        Ok(Box::new(ReaderSource::new(Accesses { lines: Lines::new(input), fetches: 0 })))
    },
    create: None,
};

/// The reference of a line, or what is wrong with the line.
fn parse(line: &[u8]) -> Result<Reference, &'static str> {
    let mut words = words(line);
    let kind = match words.next() {
        Some(b"fetch") => ItemKind::Fetch,
        Some(b"load") => ItemKind::Load,
        Some(b"store") => ItemKind::Store,
        _ => return Err("begins with none of fetch, load and store"),
    };
    let address = words.next().and_then(hex).ok_or("has no hexadecimal address")?;
    let size_bytes = words.next().and_then(decimal).ok_or("has no size")?;
    if !(1..=PageSize::BASE.bytes()).contains(&size_bytes) {
        return Err("has a size outside 1..=4096 bytes");
    }
    Ok(Reference::new(kind, VirtAddr::new(address), size_bytes as u16))
}

struct Accesses {
    lines: Lines,
    fetches: u64,
}

impl Reader for Accesses {
    fn read_some(&mut self, out: &mut Learning) -> Result<bool, TraceError> {
        self.lines.read_some(|text, place| {
            let reference = parse(text).map_err(|what| format!("`{}` {what}", quoted(text)))?;
            self.fetches += u64::from(reference.kind == ItemKind::Fetch);
            out.reference(reference, place);
            Ok(())
        })
    }

    fn facts(&self) -> Facts {
        Facts { has_instructions: self.fetches > 0, ..Facts::of(FORMAT.name) }
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
    use super::*;
    use crate::formats::testing::read;

    #[test]
    fn every_line_is_a_reference() {
        let text = b"fetch 401000 4\nload 0x7ffe10 8\nstore 7ffe18 1\n";
        assert_eq!((FORMAT.recognise)(text), Likeness::Yes);
        let drained = read(&FORMAT, text);
        assert!(drained.facts.has_instructions);
        let references = drained.whole();
        let found = references.iter().map(|of| (of.kind, of.addr.raw(), of.size_bytes));
        assert!(found.eq([
            (ItemKind::Fetch, 0x401000, 4),
            (ItemKind::Load, 0x7ffe10, 8),
            (ItemKind::Store, 0x7ffe18, 1),
        ]));
    }

    #[test]
    fn wrong_lines_are_named_after_all_that_came_before() {
        for (line, what) in [
            ("jump 10 4", "begins with none of fetch, load and store"),
            ("load xyz 4", "has no hexadecimal address"),
            ("load 10", "has no size"),
            ("load 10 5000", "has a size outside 1..=4096 bytes"),
        ] {
            let drained = read(&FORMAT, format!("load 20 8\n{line}\n").as_bytes());
            assert_eq!(drained.sentence(), format!("`trace`, line 2: `{line}` {what}"));
            assert_eq!(drained.references.len(), 1);
            assert_eq!((FORMAT.recognise)(line.as_bytes()), Likeness::No);
        }
    }
}
