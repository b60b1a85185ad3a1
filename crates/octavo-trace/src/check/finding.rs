//! Findings: contradictions in a trace that can be read.

use std::fmt;

use octavo_types::VirtAddr;

use crate::source::Place;

/// A kind of finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum FindingKind {
    /// A fetch, load or store where nothing is mapped.
    Unmapped,
    /// A load from memory that may not be read.
    NotReadable,
    /// A store to memory that may not be written.
    NotWritable,
    /// A fetch from memory that may not be executed.
    NotExecutable,
    /// An address that no processor translates: bits 57 to 63 are not copies of bit 56.
    NotCanonical,
    /// An event about mappings that cannot have succeeded.
    MappingOrder,
    /// A thread runs that was not started, or has ended.
    ThreadOrder,
    /// Something comes after the process has exited.
    AfterExit,
    /// Streams begin twice, or go on before they begin or after they end.
    StreamOrder,
    /// The trace states another number of instructions than it holds.
    InstructionCount,
    /// Words that cannot be decoded; the rest of the stream was not checked.
    Undecodable,
}

impl FindingKind {
    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Unmapped => "unmapped",
            FindingKind::NotReadable => "not-readable",
            FindingKind::NotWritable => "not-writable",
            FindingKind::NotExecutable => "not-executable",
            FindingKind::NotCanonical => "not-canonical",
            FindingKind::MappingOrder => "mapping-order",
            FindingKind::ThreadOrder => "thread-order",
            FindingKind::AfterExit => "after-exit",
            FindingKind::StreamOrder => "stream-order",
            FindingKind::InstructionCount => "instruction-count",
            FindingKind::Undecodable => "undecodable",
        }
    }
}

/// A contradiction in a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Its kind.
    pub kind: FindingKind,
    /// In which stream.
    pub stream: u32,
    /// At which instruction of the stream, from 0; for an event, the next one.
    pub instruction: u64,
    /// The address, where it is about one.
    pub addr: Option<VirtAddr>,
    /// Where in the trace.
    pub place: Place,
    /// A description, without a full stop.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { stream, instruction, place, what, .. } = self;
        write!(f, "stream {stream}, instruction {instruction}")?;
        if *place != Place::Whole {
            write!(f, " ({place})")?;
        }
        write!(f, ": {what}")
    }
}
