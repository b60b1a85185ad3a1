//! What can be wrong with a snapshot, or with taking one.

use std::path::PathBuf;

/// Why there is no snapshot: one sentence.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// A file of the system, or the snapshot's own, cannot be read.
    #[error("cannot read `{}`: {source}", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// A file of the system says something else than it should.
    #[error("`{}` is not what Linux writes there: {what}", path.display())]
    Proc {
        /// Which file.
        path: PathBuf,
        /// What is not understood.
        what: String,
    },
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// Something is wrong with a file of ours.
    #[error("`{}`: {source}", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        source: Box<SnapshotError>,
    },
    /// Another kind of file.
    #[error("it is no snapshot of Octavo")]
    NotASnapshot,
    /// A format that this version does not know.
    #[error("it is a snapshot of version {0}, and this Octavo reads version {known}", known = super::file::VERSION)]
    Version(u32),
    /// It ends before it should, or goes on after.
    #[error("it has {has} bytes, and its header says {should}")]
    Length {
        /// What it has.
        has: u64,
        /// What it should have.
        should: u64,
    },
    /// It is larger than any snapshot.
    #[error("it has {has} bytes, more than any snapshot ({most})")]
    TooLong {
        /// What it has.
        has: u64,
        /// What is allowed.
        most: u64,
    },
    /// Some bytes are not those that were written.
    #[error("it was damaged: its checksum is another")]
    Checksum,
    /// Its header is not understood.
    #[error("its header is damaged: {0}")]
    Header(String),
    /// Its frames cannot be decompressed.
    #[error("its frames cannot be decompressed: {0}")]
    Zstd(std::io::Error),
    /// Its frames make no sense.
    #[error("its frames are damaged: {0}")]
    Runs(&'static str),
}
