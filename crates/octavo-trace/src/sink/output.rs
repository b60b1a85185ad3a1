//! Output files, compressed according to their suffix.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use crate::source::{Compression, TraceError};

/// How much is gathered before it is written, or compressed.
const BUFFER_BYTES: usize = 1 << 18;

/// A trace file that is being written. The data goes to a file beside the final one and is renamed
/// once complete, so that an incomplete trace never has the final name. Standard output is written
/// directly.
///
/// A name that ends in `.gz`, `.xz`, `.bz2` or `.zst` is compressed so, at the level that its own
/// tool would take.
pub struct Output {
    name: String,
    /// None once it is finished.
    writer: Option<BufWriter<Encoder>>,
    place: Option<(PathBuf, PathBuf)>,
    /// How many bytes came, before any compression.
    bytes: u64,
}

impl Output {
    /// Writes the file `path`.
    pub fn create(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let mut partial = path.as_os_str().to_owned();
        partial.push(".partial");
        let partial = PathBuf::from(partial);
        let fail = |error| TraceError::whole(&name, format!("cannot be written: {error}"));
        let file = File::create(&partial).map_err(fail)?;
        let suffix = path.extension().and_then(|suffix| suffix.to_str()).unwrap_or("");
        let encoder = Encoder::new(Compression::by_suffix(suffix), Box::new(file)).map_err(fail)?;
        let place = Some((partial, path.to_owned()));
        Ok(Output { writer: Some(buffered(encoder)), name, place, bytes: 0 })
    }

    /// Writes the file `path` in place, uncompressed: an aborted writer leaves the part that it has
    /// written. For a format whose readers recognise cut traces.
    pub fn create_in_place(path: &Path) -> Result<Self, TraceError> {
        let name = path.display().to_string();
        let file = File::create(path)
            .map_err(|error| TraceError::whole(&name, format!("cannot be written: {error}")))?;
        Ok(Self::to_writer(&name, Box::new(file)))
    }

    /// Writes to whatever takes it, uncompressed.
    pub fn to_writer(name: &str, writer: Box<dyn Write + Send>) -> Self {
        let writer = Some(buffered(Encoder::Plain(writer)));
        Output { name: name.to_owned(), writer, place: None, bytes: 0 }
    }

    /// Writes to standard output, uncompressed.
    pub fn stdout() -> Self {
        Self::to_writer("standard output", Box::new(io::stdout()))
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

    /// Hands all that was put to the system.
    pub fn flush(&mut self) -> Result<(), TraceError> {
        let writer = self.writer.as_mut().expect("only `finish` takes it");
        writer.flush().map_err(|error| failed(&self.name, &error))
    }

    /// All is written: gives the file its name, and says how many bytes it has.
    pub fn finish(mut self) -> Result<u64, TraceError> {
        let writer = self.writer.take().expect("only `finish` takes it");
        let finished = match writer.into_inner() {
            Ok(encoder) => encoder.finish(),
            Err(error) => Err(error.into_error()),
        };
        finished.map_err(|error| failed(&self.name, &error))?;
        let Some((partial, path)) = &self.place else { return Ok(self.bytes) };
        let bytes = std::fs::metadata(partial).map_or(0, |metadata| metadata.len());
        std::fs::rename(partial, path).map_err(|error| failed(&self.name, &error))?;
        self.place = None;
        Ok(bytes)
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some((partial, _)) = &self.place {
            drop(std::fs::remove_file(partial));
        }
    }
}

fn buffered(encoder: Encoder) -> BufWriter<Encoder> {
    BufWriter::with_capacity(BUFFER_BYTES, encoder)
}

fn failed(name: &str, error: &io::Error) -> TraceError {
    TraceError {
        is_reader_gone: error.kind() == io::ErrorKind::BrokenPipe,
        ..TraceError::whole(name, format!("cannot be written: {error}"))
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
                // As the command does: a reader knows then that nothing was changed.
                encoder.include_checksum(true)?;
                Encoder::Zstd(encoder)
            }
        })
    }

    /// Writes the end of the compressed data and all that is still held back.
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
