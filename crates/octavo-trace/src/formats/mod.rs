//! Trace formats, one file each, and the list of them. A new format is its file and a line here.

mod champsim;
pub mod columns;
mod csv;
mod din;
mod drmemtrace;
#[cfg(test)]
mod example;
mod executed;
mod gem5;
mod lackey;
mod lengths;
mod line_writer;
mod lines;
mod numbers;
mod open;
mod perf;
mod pieces;
mod pinatrace;
mod reader;
mod rows;
#[cfg(test)]
pub(crate) mod testing;

pub(crate) use lackey::live_source as lackey_source;
pub use open::{
    NATIVE, OpenOptions, STDIN, SYNTHETIC, format_named, format_names, looks_like_a_trace, open,
    open_input,
};

use std::path::Path;

use crate::sink::{Output, ReferenceWriter};
use crate::source::{Input, Source, TraceError};

/// How sure a format is that some bytes are its own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Likeness {
    /// They are not.
    No,
    /// They may be: nothing contradicts it.
    Maybe,
    /// They are: a magic number, or a syntax that no other format shares.
    Yes,
}

/// A trace format.
pub struct Format {
    /// The name that `--format` takes.
    pub name: &'static str,
    /// One line on what writes it and what it holds.
    pub about: &'static str,
    /// How its files' names end, without the dot and before any suffix of compression.
    pub suffixes: &'static [&'static str],
    /// Recognises the format by the first bytes (after decompression) of a trace.
    pub recognise: fn(head: &[u8]) -> Likeness,
    /// Begins to read.
    pub open: fn(Input) -> Result<Box<dyn Source>, TraceError>,
    /// Begins to write, where that is possible. It holds a single stream.
    pub create: Option<fn(Output) -> Box<dyn ReferenceWriter>>,
}

/// All formats, but for the native one, which is not plain references.
pub static FORMATS: &[&Format] = &[
    &lackey::FORMAT,
    &din::DIN,
    &din::XDIN,
    &pinatrace::FORMAT,
    &csv::FORMAT,
    &champsim::FORMAT,
    &champsim::CLOUDSUITE,
    &drmemtrace::FORMAT,
    &gem5::FORMAT,
    &perf::FORMAT,
];

/// The format of a trace that is a directory of files, if `path` is one.
pub fn recognise_directory(path: &Path) -> Option<&'static Format> {
    drmemtrace::is_directory(path).then_some(&drmemtrace::FORMAT)
}
