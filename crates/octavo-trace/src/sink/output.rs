//! Output files, compressed according to their suffix.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::source::{Compression, STANDARD_OUTPUT, TraceError};

/// How much is gathered before it is written, or compressed.
const BUFFER_BYTES: usize = 1 << 18;

/// A trace file that is being written. The data goes to a file beside the final one and is renamed
/// once complete, so that an incomplete trace never has the final name. Standard output is written
/// directly.
///
/// A suffix `.gz`, `.xz`, `.bz2` or `.zst` of the name selects the compression, at the default
/// level of its own tool.
pub struct Output {
    name: String,
    /// `None` once it is finished.
    writer: Option<BufWriter<Encoder>>,
    /// `None` if it is written in place, and once it has its name.
    place: Option<Place>,
    /// How many bytes came, before any compression.
    bytes: u64,
}

/// A file that is written under a name of its own.
struct Place {
    partial: PathBuf,
    path: PathBuf,
    /// Whether it takes the place of a file that has the name `path` by the end.
    overwrites: bool,
    /// Holds the lock of the file until it has its name.
    _locked: File,
}

impl Output {
    /// Writes the file `path`, over one that exists. Fails while another process writes it.
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let fail = |error: io::Error| TraceError::unwritable(&name, error);
        let file = create_alone(&partial, true).map_err(fail)?;
        let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("");
        let locked = file.try_clone().map_err(fail)?;
        let encoder = Encoder::new(Compression::by_suffix(suffix), Box::new(file)).map_err(fail)?;
        let place = Place { partial, path: path.to_owned(), overwrites: true, _locked: locked };
        Ok(Output { writer: Some(buffered(encoder)), name, place: Some(place), bytes: 0 })
    }

    /// Keeps a file that has the final name by the end: the output then gets another name beside
    /// it, and [`Output::finish`] fails with a message that names it.
    #[must_use]
    pub fn without_overwriting(mut self) -> Self {
        if let Some(place) = &mut self.place {
            place.overwrites = false;
        }
        self
    }

    /// Writes the file `path` in place, uncompressed: an aborted writer leaves the part that it has
    /// written. For a format whose readers recognise cut traces. Fails while another process writes
    /// the file and, without `overwrites`, if the file is not empty.
    pub fn create_in_place(path: &Path, overwrites: bool) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let file =
            create_alone(path, overwrites).map_err(|error| TraceError::unwritable(&name, error))?;
        Ok(Self::to_writer(&name, Box::new(file)))
    }

    /// Writes to `writer`, uncompressed.
    pub fn to_writer(name: &str, writer: Box<dyn Write + Send>) -> Self {
        let writer = Some(buffered(Encoder::Plain(writer)));
        Output { name: name.to_owned(), writer, place: None, bytes: 0 }
    }

    /// Writes to standard output, uncompressed.
    pub fn stdout() -> Self {
        Self::to_writer(STANDARD_OUTPUT, Box::new(io::stdout()))
    }

    /// The trace's name, in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Writes all of `bytes`.
    #[inline]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), TraceError> {
        let writer = self.writer.as_mut().expect("only `finish` takes it");
        self.bytes += bytes.len() as u64;
        writer.write_all(bytes).map_err(|error| failed(&self.name, &error))
    }

    /// Passes everything that was put to the system.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        let writer = self.writer.as_mut().expect("only `finish` takes it");
        writer.flush().map_err(|error| failed(&self.name, &error))
    }

    /// Completes the output: gives the file its name, and returns its size in bytes.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        let writer = self.writer.take().expect("only `finish` takes it");
        let finished = match writer.into_inner() {
            Ok(encoder) => encoder.finish(),
            Err(error) => Err(error.into_error()),
        };
        finished.map_err(|error| failed(&self.name, &error))?;
        let Some(Place { partial, path, overwrites, .. }) = &self.place else {
            return Ok(self.bytes);
        };
        let bytes = std::fs::metadata(partial).map_or(0, |metadata| metadata.len());
        let name = if *overwrites {
            std::fs::rename(partial, path).map(|()| path.clone())
        } else {
            link_free(partial, path)
        };
        let name = name.map_err(|error| failed(&self.name, &error))?;
        let taken = name != *path;
        self.place = None;
        if taken {
            let what = format!(
                "was written by another process meanwhile and is left as it is; this trace is `{}`",
                name.display()
            );
            return Err(TraceError::whole(&self.name, what));
        }
        Ok(bytes)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(place) = &self.place {
            drop(std::fs::remove_file(&place.partial));
        }
    }
}

/// Creates or empties a file that no other process writes through an [`Output`]. Without
/// `overwrites`, a file that is not empty is refused.
fn create_alone(path: &Path, overwrites: bool) -> io::Result<File> {
    loop {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
        if !file.metadata()?.is_file() {
            return Ok(file);
        }
        // Held as long as the file is open. Some file systems have no locks.
        if let Err(TryLockError::WouldBlock) = file.try_lock() {
            return Err(io::Error::other("another process is writing it"));
        }
        let ours = file.metadata()?;
        let is_there = std::fs::metadata(path)
            .is_ok_and(|there| (there.dev(), there.ino()) == (ours.dev(), ours.ino()));
        if !is_there {
            // The process that had the lock has renamed or removed the file.
            continue;
        }
        if !overwrites && ours.len() > 0 {
            return Err(io::Error::other("another process has written it meanwhile"));
        }
        file.set_len(0)?;
        return Ok(file);
    }
}

/// Renames the file `partial` to `path` or, if that is taken, to the first free name of `path-2`,
/// `path-3`, …; returns the new name.
fn link_free(partial: &Path, path: &Path) -> io::Result<PathBuf> {
    let mut name = path.to_owned();
    for number in 2.. {
        match std::fs::hard_link(partial, &name) {
            Ok(()) => {
                std::fs::remove_file(partial)?;
                break;
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            // Some file systems have no links.
            Err(_) if std::fs::symlink_metadata(&name).is_err() => {
                std::fs::rename(partial, &name)?;
                break;
            }
            Err(_) => {}
        }
        let mut other = path.file_stem().unwrap_or_default().to_owned();
        other.push(format!("-{number}"));
        if let Some(suffix) = path.extension() {
            other.push(".");
            other.push(suffix);
        }
        name = path.with_file_name(other);
    }
    Ok(name)
}

fn buffered(encoder: Encoder) -> BufWriter<Encoder> {
    BufWriter::with_capacity(BUFFER_BYTES, encoder)
}

fn failed(name: &str, error: &io::Error) -> TraceError {
    TraceError {
        is_reader_gone: error.kind() == io::ErrorKind::BrokenPipe,
        ..TraceError::unwritable(name, error)
    }
}

type Inner = Box<dyn Write + Send>;

/// The compressor, if any.
enum Encoder {
    Plain(Inner),
    Gzip(flate2::write::GzEncoder<Inner>),
    Xz(liblzma::write::XzEncoder<Inner>),
    Bzip2(bzip2::write::BzEncoder<Inner>),
    Zstd(zstd::stream::write::Encoder<'static, Inner>),
}

impl Encoder {
    fn new(compression: Option<Compression>, inner: Inner) -> io::Result<Self> {
        Ok(match compression {
            None => Encoder::Plain(inner),
            Some(Compression::Gzip) => {
                let level = flate2::Compression::new(6);
                Encoder::Gzip(flate2::write::GzEncoder::new(inner, level))
            }
            Some(Compression::Xz) => Encoder::Xz(liblzma::write::XzEncoder::new(inner, 6)),
            Some(Compression::Bzip2) => {
                let level = bzip2::Compression::best();
                Encoder::Bzip2(bzip2::write::BzEncoder::new(inner, level))
            }
            Some(Compression::Zstd) => {
                let mut encoder = zstd::stream::write::Encoder::new(inner, 3)?;
                // As the command does: readers detect changed data by it.
                encoder.include_checksum(true)?;
                Encoder::Zstd(encoder)
            }
        })
    }

    /// Writes the rest of the compressed data, and its end.
    fn finish(self) -> io::Result<()> {
        let mut inner = match self {
            Encoder::Plain(inner) => inner,
            Encoder::Gzip(encoder) => encoder.finish()?,
            Encoder::Xz(encoder) => encoder.finish()?,
            Encoder::Bzip2(encoder) => encoder.finish()?,
            Encoder::Zstd(encoder) => encoder.finish()?,
        };
        inner.flush()
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            Encoder::Plain(inner) => inner,
            Encoder::Gzip(encoder) => encoder,
            Encoder::Xz(encoder) => encoder,
            Encoder::Bzip2(encoder) => encoder,
            Encoder::Zstd(encoder) => encoder,
        }
    }
}

impl Write for Encoder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::path::PathBuf;

    use super::Output;

    /// A directory that is removed at the end.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Self {
            let place = std::env::temp_dir().join(format!("octavo-{name}-{}", std::process::id()));
            std::fs::create_dir_all(&place).unwrap();
            Scratch(place)
        }

        /// The names and contents of its files, in order.
        fn files(&self) -> Vec<(String, String)> {
            let entries = std::fs::read_dir(&self.0).unwrap().map(Result::unwrap);
            let mut files: Vec<_> = entries
                .map(|entry| {
                    let text = std::fs::read_to_string(entry.path()).unwrap();
                    (entry.file_name().into_string().unwrap(), text)
                })
                .collect();
            files.sort();
            files
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            drop(std::fs::remove_dir_all(&self.0));
        }
    }

    fn named(name: &str, text: &str) -> (String, String) {
        (name.to_owned(), text.to_owned())
    }

    #[test]
    fn two_writers_of_one_file_are_refused() {
        let scratch = Scratch::new("two-writers");
        let path = scratch.0.join("a.csv");
        let mut first = Output::create(&path).unwrap();
        let refused = Output::create(&path).err().unwrap().to_string();
        assert!(refused.contains("another process is writing it"), "{refused}");
        first.put(b"first").unwrap();
        first.finish().unwrap();
        assert_eq!(scratch.files(), [named("a.csv", "first")]);

        let path = scratch.0.join("b.oct");
        let mut first = Output::create_in_place(&path, false).unwrap();
        let refused = Output::create_in_place(&path, true).err().unwrap().to_string();
        assert!(refused.contains("another process is writing it"), "{refused}");
        first.put(b"first").unwrap();
        first.finish().unwrap();
        let refused = Output::create_in_place(&path, false).err().unwrap().to_string();
        assert!(refused.contains("another process has written it meanwhile"), "{refused}");
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        Output::create_in_place(&path, true).unwrap().finish().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"");
    }

    #[test]
    fn a_file_that_a_killed_writer_left_is_written_anew() {
        let scratch = Scratch::new("left-over");
        std::fs::write(scratch.0.join("a.csv.partial"), "a half of long ago").unwrap();
        let mut output = Output::create(&scratch.0.join("a.csv")).unwrap();
        output.put(b"whole").unwrap();
        output.finish().unwrap();
        assert_eq!(scratch.files(), [named("a.csv", "whole")]);
    }

    #[test]
    fn a_pipe_is_written_in_place() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let path = PathBuf::from(format!("/dev/fd/{}", writer.as_raw_fd()));
        let mut output = Output::create_in_place(&path, false).unwrap();
        output.put(b"text").unwrap();
        assert_eq!(output.finish().unwrap(), 4);
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
    }

    #[test]
    fn a_file_that_appears_meanwhile_stays() {
        let scratch = Scratch::new("appears");
        let path = scratch.0.join("a.csv");
        for (number, text) in [(2, "second"), (3, "third")] {
            let mut output = Output::create(&path).unwrap().without_overwriting();
            output.put(text.as_bytes()).unwrap();
            std::fs::write(&path, "first").unwrap();
            let message = output.finish().unwrap_err().to_string();
            assert!(message.contains(&format!("a-{number}.csv`")), "{message}");
        }
        assert_eq!(
            scratch.files(),
            [named("a-2.csv", "second"), named("a-3.csv", "third"), named("a.csv", "first")]
        );
    }
}
