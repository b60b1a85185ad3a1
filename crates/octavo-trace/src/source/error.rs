//! Errors of traces, with their places.

use std::fmt;

use octavo_types::spelling::printable;

/// The name of the trace that is written to standard output.
pub const STANDARD_OUTPUT: &str = "standard output";

/// A place in a trace, as a user would look it up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// The trace as a whole.
    #[default]
    Whole,
    /// A line of text, from 1.
    Line(u64),
    /// An offset in bytes, after decompression where the trace is compressed.
    Byte(u64),
    /// A chunk of the native format, from 0, and its offset in the file.
    Chunk {
        /// Its number.
        number: u64,
        /// Where it begins in the file.
        byte: u64,
    },
    /// A reference of a synthetic trace, from 0.
    Reference(u64),
    /// A row of a table, from 0.
    Row(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Whole => write!(f, "the trace"),
            Place::Line(line) => write!(f, "line {line}"),
            Place::Byte(byte) => write!(f, "byte {byte}"),
            Place::Chunk { number, byte } => write!(f, "chunk {number} (at byte {byte})"),
            Place::Reference(reference) => write!(f, "reference {reference}"),
            Place::Row(row) => write!(f, "row {row}"),
        }
    }
}

/// A trace that cannot be read, or written: one sentence that names the file and the place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", sentence(self))]
pub struct TraceError {
    /// The file's name, or another name of the trace.
    pub trace: String,
    /// Where in it.
    pub place: Place,
    /// A description without a full stop: a clause, or a verb phrase whose subject is the trace.
    pub what: String,
    /// The trace cannot be written.
    pub is_of_output: bool,
    /// The reader of the output has gone (`octavo convert … - | head`): no error of the trace.
    pub is_reader_gone: bool,
}

impl TraceError {
    /// `trace` is wrong at `place`.
    pub fn at(trace: &str, place: Place, what: impl Into<String>) -> Self {
        let (trace, what) = (trace.to_owned(), what.into());
        TraceError { trace, place, what, is_of_output: false, is_reader_gone: false }
    }

    /// `trace` is wrong as a whole.
    pub fn whole(trace: &str, what: impl Into<String>) -> Self {
        Self::at(trace, Place::Whole, what)
    }

    /// `trace` cannot be written.
    pub fn unwritable(trace: &str, why: impl fmt::Display) -> Self {
        TraceError { is_of_output: true, ..Self::whole(trace, why.to_string()) }
    }
}

fn sentence(error: &TraceError) -> String {
    let (trace, what) = (printable(&error.trace), printable(&error.what));
    match (error.is_of_output, error.trace.as_str()) {
        (true, STANDARD_OUTPUT) => format!("cannot write to {trace}: {what}"),
        (true, _) => format!("cannot write `{trace}`: {what}"),
        (false, _) => format!("`{trace}`{}{what}", at(error.place, &error.what)),
    }
}

/// The text between the name of the trace and the description.
fn at(place: Place, what: &str) -> String {
    let verb = what.split(' ').next().unwrap_or_default();
    match place {
        Place::Whole if VERBS.contains(&verb) => " ".to_owned(),
        Place::Whole => ": ".to_owned(),
        place => format!(", {place}: "),
    }
}

/// The first words of descriptions whose subject is the trace.
const VERBS: [&str; 9] =
    ["is", "was", "has", "holds", "begins", "does", "may", "expands", "cannot"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_sentences() {
        let whole = |what: &str| TraceError::whole("t", what).to_string();
        assert_eq!(whole("is empty"), "`t` is empty");
        assert_eq!(whole("isolated words"), "`t`: isolated words");
        let line = TraceError::at("t", Place::Line(3), "has no address").to_string();
        assert_eq!(line, "`t`, line 3: has no address");
        let strange = TraceError::whole("a\u{1b}[2J", "is \u{7}odd").to_string();
        assert_eq!(strange, r"`a\x1b[2J` is \x07odd");
        let unwritable = |name: &str| TraceError::unwritable(name, "full").to_string();
        assert_eq!(unwritable("t"), "cannot write `t`: full");
        assert_eq!(unwritable(STANDARD_OUTPUT), "cannot write to standard output: full");
    }
}
