//! The descriptions, as JSON, of a native trace and of its streams.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ring::format::{THREAD_NAME_BYTES, THREADS};
use crate::source::Facts;
use crate::stream::{Began, Ended, NamedThread, StreamEnd, StreamIdentity};

/// The longest manifest, or other JSON.
pub(super) const MAX_JSON_BYTES: u32 = 1 << 24;

/// The description of a trace and of its origin. Unknown fields are ignored, so that later writers
/// may add some.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Manifest {
    /// The version of Octavo that wrote it.
    pub octavo: String,
    /// The format that the references came from: `native` if they were recorded.
    pub source_format: String,
    /// As [`Facts::exact`].
    pub exact: bool,
    /// As [`Facts::samples`].
    #[serde(default)]
    pub samples: bool,
    /// As [`Facts::has_instructions`].
    pub has_instructions: bool,
    /// As [`Facts::has_sizes`].
    pub has_sizes: bool,
    /// As [`Facts::physical`].
    pub physical: bool,
    /// As [`Facts::notes`].
    #[serde(default)]
    pub notes: Vec<String>,
    /// How the trace was shrunk, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample: Option<Value>,
    /// Further fields of its writer: the command, the host, the date.
    #[serde(default)]
    pub about: Value,
}

impl Manifest {
    /// The manifest of a recording.
    pub fn recorded(about: Value) -> Self {
        Manifest::converted(&Facts::of("native"), about)
    }

    /// The manifest of a converted trace.
    pub fn converted(facts: &Facts, about: Value) -> Self {
        Manifest {
            octavo: env!("CARGO_PKG_VERSION").to_owned(),
            source_format: facts.format.to_owned(),
            exact: facts.exact,
            samples: facts.samples,
            has_instructions: facts.has_instructions,
            has_sizes: facts.has_sizes,
            physical: facts.physical,
            notes: facts.notes.clone(),
            sample: facts.sample.clone(),
            about,
        }
    }

    /// The bytes in the file.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is plain data")
    }
}

/// The JSON of a stream's first frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamBegan {
    parent: Option<u32>,
    pid: u32,
    began: String,
    program: String,
}

impl StreamBegan {
    /// The JSON for a stream.
    pub fn new(identity: &StreamIdentity) -> Self {
        StreamBegan {
            parent: identity.parent,
            pid: identity.pid,
            began: identity.began.name().to_owned(),
            program: identity.program.clone(),
        }
    }

    /// The bytes in the file.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is plain data")
    }

    /// The identity of stream `stream`.
    pub fn identity(self, stream: u32) -> Option<StreamIdentity> {
        Some(StreamIdentity {
            stream,
            parent: self.parent,
            pid: self.pid,
            began: Began::from_name(&self.began)?,
            program: self.program,
        })
    }
}

/// The totals of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// Instructions.
    pub instructions: u64,
    /// Fetches, loads and stores.
    pub references: u64,
}

/// The JSON of a stream's last frame.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StreamEnded {
    ended: String,
    exit_code: Option<i32>,
    instructions: u64,
    references: u64,
    words_xxh3_128: String,
    /// Processor time of system calls in the kernel, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernel_nanoseconds: Option<u64>,
    /// The first threads, in the order in which they began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    threads: Vec<ThreadEnded>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct ThreadEnded {
    /// Empty: that of the program.
    name: String,
    kernel_nanoseconds: u64,
}

impl StreamEnded {
    /// The JSON for a stream.
    pub fn new(end: &StreamEnd, totals: &StreamTotals, hash: u128) -> Self {
        StreamEnded {
            ended: end.ended.name().to_owned(),
            exit_code: end.exit_code,
            instructions: totals.instructions,
            references: totals.references,
            words_xxh3_128: format!("{hash:032x}"),
            kernel_nanoseconds: end.kernel_time.map(|time| time.as_nanos() as u64),
            threads: (end.threads.iter())
                .map(|thread| ThreadEnded {
                    name: thread.name.clone(),
                    kernel_nanoseconds: thread.kernel_time.as_nanos() as u64,
                })
                .collect(),
        }
    }

    /// The bytes in the file.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("it is plain data")
    }

    /// How it ended.
    pub fn end(&self) -> Option<StreamEnd> {
        Some(StreamEnd {
            ended: Ended::from_name(&self.ended)?,
            exit_code: self.exit_code,
            instructions: Some(self.instructions),
            kernel_time: self.kernel_nanoseconds.map(Duration::from_nanos),
            // The file may have any; a tracer reports no more, and no longer names.
            threads: (self.threads.iter().take(THREADS))
                .map(|thread| NamedThread {
                    name: thread.name.chars().take(THREAD_NAME_BYTES - 1).collect(),
                    kernel_time: Duration::from_nanos(thread.kernel_nanoseconds),
                })
                .collect(),
        })
    }

    /// The stream's totals.
    pub fn totals(&self) -> StreamTotals {
        StreamTotals { instructions: self.instructions, references: self.references }
    }

    /// The xxh3-128 of its words, in hexadecimal.
    pub fn hash(&self) -> &str {
        &self.words_xxh3_128
    }
}
