//! Opens a trace by name: recognises its format and returns its source.

use std::io::Read;
use std::path::Path;

use super::{FORMATS, Format, Likeness, recognise_directory};
use crate::native::NativeSource;
use crate::source::{Input, InputOptions, Source, TraceError};
use crate::synthetic;

/// The name of the native format.
pub const NATIVE: &str = "native";
/// The name of standard input in place of a file's.
pub const STDIN: &str = "-";
/// The beginning of a snapshot of memory (`octavo-os`).
const SNAPSHOT: &[u8] = b"OCTMEM\r\n";

/// How to open a trace.
#[derive(Clone, Debug, Default)]
pub struct OpenOptions {
    /// The format, if the user names one.
    pub format: Option<String>,
    /// The limits of the input.
    pub input: InputOptions,
}

/// The names of all formats that are read, our own first.
pub fn format_names() -> impl Iterator<Item = &'static str> {
    [NATIVE, SYNTHETIC].into_iter().chain(FORMATS.iter().map(|format| format.name))
}

/// The format of a name.
pub fn format_named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name).copied()
}

/// Opens the trace `name`: a file, `-` for standard input, or the URI of a synthetic one.
pub fn open(name: impl AsRef<Path>, options: &OpenOptions) -> Result<Box<dyn Source>, TraceError> {
    let path = name.as_ref();
    // A file's name may be any bytes; a name of ours is text.
    let input = match path.to_str() {
        Some(uri) if uri.starts_with(synthetic::SCHEME) => {
            let spec = synthetic::parse(uri);
            let spec = spec.map_err(|error| TraceError::whole(uri, error.to_string()))?;
            return Ok(spec.source());
        }
        Some(STDIN) => Input::stdin(options.input),
        _ => Input::open(path, options.input),
    }?;
    open_input(input, options)
}

/// The name of synthetic traces, as a format: their description in TOML.
pub const SYNTHETIC: &str = "synthetic";
/// The longest description.
const MAX_TOML_BYTES: u64 = 1 << 20;

fn open_description(mut input: Input) -> Result<Box<dyn Source>, TraceError> {
    let name = input.name().to_owned();
    let mut text = String::new();
    let read = (&mut input).take(MAX_TOML_BYTES + 1).read_to_string(&mut text);
    read.map_err(|error| TraceError::whole(&name, error.to_string()))?;
    if text.len() as u64 > MAX_TOML_BYTES {
        let what = format!("is longer than {MAX_TOML_BYTES} bytes: no description of a trace");
        return Err(TraceError::whole(&name, what));
    }
    let spec = synthetic::Spec::from_toml(&text);
    Ok(spec.map_err(|error| TraceError::whole(&name, error.to_string()))?.source())
}

/// Reads `input` in the requested format, or else in the recognised one.
pub fn open_input(input: Input, options: &OpenOptions) -> Result<Box<dyn Source>, TraceError> {
    match options.format.as_deref() {
        Some(NATIVE) => Ok(Box::new(NativeSource::open(input)?)),
        Some(SYNTHETIC) => open_description(input),
        None if input.name().ends_with(".toml") => open_description(input),
        None if is_directory(&input) => (recognise_directory_of(&input)?.open)(input),
        Some(name) => match format_named(name) {
            Some(format) => (format.open)(input),
            None => {
                let known: Vec<_> = format_names().collect();
                let what = format!("format `{name}` is not known: give {}", known.join(", "));
                Err(TraceError::whole(input.name(), what))
            }
        },
        None if NativeSource::recognises(input.head()) => Ok(Box::new(NativeSource::open(input)?)),
        None => (recognise(&input)?.open)(input),
    }
}

/// Whether the beginning of a file is, or may be, that of a trace.
pub fn looks_like_a_trace(path: &Path) -> bool {
    match Input::open(path, InputOptions::default()) {
        Ok(input) => {
            NativeSource::recognises(input.head())
                || input.name().ends_with(".toml")
                || is_directory(&input) && recognise_directory_of(&input).is_ok()
                || recognise(&input).is_ok()
        }
        Err(_) => false,
    }
}

fn is_directory(input: &Input) -> bool {
    input.path().is_some_and(Path::is_dir)
}

fn recognise_directory_of(input: &Input) -> Result<&'static Format, TraceError> {
    let format = input.path().and_then(recognise_directory);
    format.ok_or_else(|| {
        let what = "is a directory, but no trace of drmemtrace, which would hold a directory \
                    `trace`: give a file";
        TraceError::whole(input.name(), what)
    })
}

/// Recognises the format: the only certain one, or the only possible one that agrees with the
/// file's name. A text of no recognised format is read in the format of its name, so that the error
/// names a line.
fn recognise(input: &Input) -> Result<&'static Format, TraceError> {
    let head = input.head();
    if head.is_empty() {
        return Err(TraceError::whole(input.name(), "is empty"));
    }
    if head.starts_with(SNAPSHOT) {
        let what = "is a snapshot of memory, and no trace; `octavo snapshot --show` reads it";
        return Err(TraceError::whole(input.name(), what));
    }
    let like = |wanted| FORMATS.iter().filter(move |f| (f.recognise)(head) == wanted);
    let certain: Vec<_> = like(Likeness::Yes).collect();
    if let [format] = certain[..] {
        return Ok(format);
    }
    let possible: Vec<_> =
        if certain.is_empty() { like(Likeness::Maybe).collect() } else { certain };
    let is_text = head.iter().all(|byte| !byte.is_ascii_control() || byte.is_ascii_whitespace());
    let may_be = |f: &&Format| possible.iter().any(|p| p.name == f.name);
    let named = FORMATS.iter().filter(|f| may_be(f) || possible.is_empty() && is_text);
    let named: Vec<_> = named.filter(|f| is_named_for(input.name(), f)).collect();
    if let [format] = named[..] {
        return Ok(format);
    }
    let names = |formats: &[&&Format]| {
        formats.iter().map(|format| format.name).collect::<Vec<_>>().join(", ")
    };
    let what = if possible.is_empty() {
        let known: Vec<_> = format_names().collect();
        format!("is a trace of no known format; --format takes {}", known.join(", "))
    } else {
        format!("may be a trace of format {}: say which with --format", names(&possible))
    };
    Err(TraceError::whole(input.name(), what))
}

/// Whether a file's name, but for a suffix of compression, ends as the format's files do.
fn is_named_for(name: &str, format: &Format) -> bool {
    let bare = [".gz", ".xz", ".bz2", ".zst"].iter().find_map(|suffix| name.strip_suffix(suffix));
    let bare = bare.unwrap_or(name);
    format
        .suffixes
        .iter()
        .any(|suffix| bare.strip_suffix(suffix).is_some_and(|stem| stem.ends_with('.')))
}
