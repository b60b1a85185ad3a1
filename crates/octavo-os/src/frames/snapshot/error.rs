//! Errors of snapshots and their capture.

use std::path::PathBuf;

/// An error of a snapshot, as one sentence.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file of the system or of a snapshot cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// A file of the system has an unknown format.
    #[error("`{}` is not what Linux writes there: {detail}", path.display())]
    Proc {
        /// The file.
        path: PathBuf,
        /// The part that is not understood.
        detail: String,
    },
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// A snapshot file is invalid.
    #[error("`{}`: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The error.
        source: Box<SnapshotError>,
    },
    /// Not a snapshot file.
    #[error("it is not a snapshot of Octavo")]
    NotASnapshot,
    /// An unknown format version.
    #[error("it is a snapshot of version {given}, and this Octavo reads version {known}")]
    Version {
        /// The version of the file.
        given: u32,
        /// The version that is read.
        known: u32,
    },
    /// The file is truncated or has trailing bytes.
    #[error("it has {has} bytes, and its header says {should}")]
    Length {
        /// The actual size in bytes.
        has: u64,
        /// The size in bytes by the header.
        should: u64,
    },
    /// The file exceeds the size limit.
    #[error("it has {has} bytes, more than any snapshot ({most})")]
    TooLong {
        /// The actual size in bytes.
        has: u64,
        /// The limit in bytes.
        most: u64,
    },
    /// The checksum does not match.
    #[error("it was damaged: its checksum is another")]
    Checksum,
    /// The header is invalid.
    #[error("its header is damaged: {0}")]
    Header(String),
    /// Its frames cannot be decompressed.
    #[error("its frames cannot be decompressed: {0}")]
    Zstd(std::io::Error),
    /// The frame runs are invalid.
    #[error("its frames are damaged: {0}")]
    Runs(&'static str),
}
