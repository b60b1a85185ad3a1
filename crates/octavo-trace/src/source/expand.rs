//! Bounded decompression, with the format recognised by magic bytes.

use std::fmt;
use std::io::{self, BufReader, Cursor, ErrorKind, Read};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::InputOptions;

/// How much compressed data is read at once.
const BUFFER_BYTES: usize = 1 << 15;
/// How many bytes suffice to recognise a compression.
const MAGIC_BYTES: usize = 10;
/// The number of expanded bytes from which on the ratio is checked: smaller inputs do no harm.
const RATIO_FROM_BYTES: u64 = 64 << 20;
/// The windows that zstd may be limited to, as powers of two: the smallest that it knows, and the
/// largest that its command accepts by default.
const ZSTD_WINDOW_LOGS: RangeInclusive<u32> = 10..=27;

/// How a trace may be compressed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Compression {
    /// RFC 1952.
    Gzip,
    /// The `.xz` format of XZ Utils, not the older `.lzma`.
    Xz,
    /// The format of `bzip2`.
    Bzip2,
    /// RFC 8878.
    Zstd,
}

impl Compression {
    /// All of them.
    pub(crate) const ALL: [Compression; 4] =
        [Compression::Gzip, Compression::Xz, Compression::Bzip2, Compression::Zstd];

    /// The compression whose files begin like `head`, which has at least [`MAGIC_BYTES`] unless the
    /// file is shorter. Formats without a magic number (ChampSim's) may begin with any bytes: so
    /// everything in the header that cannot vary is compared.
    fn of(head: &[u8]) -> Option<Self> {
        match head {
            // The flags of RFC 1952 have five bits.
            [0x1f, 0x8b, 8, flags, ..] if flags & 0xe0 == 0 => Some(Compression::Gzip),
            [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => Some(Compression::Xz),
            // A block's magic number follows, or that of the stream's end.
            [b'B', b'Z', b'h', b'1'..=b'9', 0x31, 0x41, 0x59, 0x26, 0x53, 0x59, ..]
            | [b'B', b'Z', b'h', b'1'..=b'9', 0x17, 0x72, 0x45, 0x38, 0x50, 0x90, ..] => {
                Some(Compression::Bzip2)
            }
            // A frame, or a skippable one, with which pzstd begins.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                Some(Compression::Zstd)
            }
            _ => None,
        }
    }

    /// The compression that a file's suffix (without its dot) names.
    pub(crate) fn by_suffix(suffix: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compression| compression.suffix() == suffix)
    }

    fn suffix(self) -> &'static str {
        match self {
            Compression::Gzip => "gz",
            Compression::Xz => "xz",
            Compression::Bzip2 => "bz2",
            Compression::Zstd => "zst",
        }
    }

    fn decoder(
        self,
        inner: BufReader<Box<dyn Read + Send>>,
        max_bytes: u64,
    ) -> io::Result<Box<dyn Read + Send>> {
        Ok(match self {
            Compression::Gzip => Box::new(flate2::bufread::MultiGzDecoder::new(inner)),
            Compression::Xz => {
                let flags = liblzma::stream::CONCATENATED;
                let stream = liblzma::stream::Stream::new_stream_decoder(max_bytes, flags)?;
                Box::new(liblzma::bufread::XzDecoder::new_stream(inner, stream))
            }
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(inner)),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(inner)?;
                let window_log = max_bytes.max(1).ilog2();
                decoder.window_log_max(
                    window_log.clamp(*ZSTD_WINDOW_LOGS.start(), *ZSTD_WINDOW_LOGS.end()),
                )?;
                Box::new(decoder)
            }
        })
    }
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Compression::Gzip => "gzip",
            Compression::Xz => "xz",
            Compression::Bzip2 => "bzip2",
            Compression::Zstd => "zstd",
        })
    }
}

/// The bytes of `stored`, expanded if compressed. `stored_bytes` counts the bytes read of it.
pub(super) fn expanded(
    stored: Box<dyn Read + Send>,
    stored_bytes: Arc<AtomicU64>,
    options: InputOptions,
) -> io::Result<Box<dyn Read + Send>> {
    let broken = Arc::new(AtomicBool::new(false));
    let mut stored = Watched { inner: stored, broken: broken.clone() };
    let mut head = Vec::new();
    (&mut stored).take(MAGIC_BYTES as u64).read_to_end(&mut head)?;
    let compression = Compression::of(&head);
    let whole: Box<dyn Read + Send> = Box::new(Cursor::new(head).chain(stored));
    let Some(compression) = compression else { return Ok(whole) };
    let buffered = BufReader::with_capacity(BUFFER_BYTES, whole);
    Ok(Box::new(Expanded {
        decoder: compression.decoder(buffered, options.max_decoder_bytes)?,
        compression,
        options,
        stored_bytes,
        expanded_bytes: 0,
        broken,
    }))
}

/// Records whether reading the file itself failed, to distinguish that from broken contents.
struct Watched<R> {
    inner: R,
    broken: Arc<AtomicBool>,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.inner.read(buffer).inspect_err(|_| self.broken.store(true, Ordering::Relaxed))
    }
}

/// Expanded data within its limits, whose errors are sentences.
struct Expanded {
    decoder: Box<dyn Read + Send>,
    compression: Compression,
    options: InputOptions,
    stored_bytes: Arc<AtomicU64>,
    expanded_bytes: u64,
    broken: Arc<AtomicBool>,
}

impl Read for Expanded {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = match self.decoder.read(buffer) {
            Ok(read) => read,
            Err(error) => return Err(self.explain(error)),
        };
        self.expanded_bytes += read as u64;
        let InputOptions { max_expanded_bytes, max_ratio, .. } = self.options;
        let what = if self.expanded_bytes > max_expanded_bytes {
            format!("expands to more than {max_expanded_bytes} bytes; raise --max-expansion")
        } else if self.expanded_bytes > RATIO_FROM_BYTES
            && self.expanded_bytes / max_ratio.max(1) > self.stored_bytes.load(Ordering::Relaxed)
        {
            format!("expands more than {max_ratio}-fold, as no trace does")
        } else {
            return Ok(read);
        };
        Err(io::Error::new(ErrorKind::InvalidData, what))
    }
}

impl Expanded {
    fn explain(&self, error: io::Error) -> io::Error {
        if self.broken.load(Ordering::Relaxed) {
            return error;
        }
        let Expanded { compression, expanded_bytes, options, .. } = self;
        let too_large = match compression {
            Compression::Xz => error.get_ref().is_some_and(|inner| {
                matches!(
                    inner.downcast_ref::<liblzma::stream::Error>(),
                    Some(liblzma::stream::Error::MemLimit)
                )
            }),
            // The errors of zstd differ only by their texts.
            Compression::Zstd => error.to_string().contains("too much memory"),
            _ => false,
        };
        let what = if too_large {
            let mib = options.max_decoder_bytes >> 20;
            format!("the {compression} data needs more than {mib} MiB of memory to expand")
        } else if error.kind() == ErrorKind::UnexpectedEof {
            format!("the {compression} data is cut off after {expanded_bytes} expanded bytes")
        } else {
            format!("the {compression} data is broken after {expanded_bytes} expanded bytes")
        };
        io::Error::new(ErrorKind::InvalidData, what)
    }
}
