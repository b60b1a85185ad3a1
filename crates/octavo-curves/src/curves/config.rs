//! The configuration of curves.

use std::num::NonZeroU64;

use octavo_types::Instructions;

use crate::caches::LineSize;
use crate::classes::ClassesConfig;
use crate::page_sample::PageSample;
use crate::sets::{MAX_SETS_LOG2, SetIndex};
use crate::sizes::Sizes;
use crate::two_sizes::TwoSizesConfig;
use octavo_trace::Stream;

/// Which curves to compute.
#[derive(Clone, Debug)]
pub struct CurvesConfig {
    /// The page sizes, including those of all pairs.
    pub sizes: Sizes,
    /// The streams, each with TLBs of its own.
    pub streams: Vec<Stream>,
    /// Whether addresses are moved to where Linux would have put them, or stay as traced.
    pub native_layout: bool,
    /// The most entries of fully associative TLBs; 0 for no such TLBs.
    pub max_entries: u32,
    /// The set indexes of set-associative TLBs; empty for no such TLBs.
    pub set_indexes: Vec<SetIndex>,
    /// log2 of the most sets of set-associative TLBs.
    pub max_sets_log2: u8,
    /// The line sizes of caches; empty for no caches.
    pub line_sizes: Vec<LineSize>,
    /// The windows of the working sets.
    pub windows_refs: Vec<u64>,
    /// Pairs of page sizes; both must be among `sizes`.
    pub two_sizes: Vec<TwoSizesConfig>,
    /// The TLB whose misses are classified and reported by region and function, if any. Both of its page
    /// sizes must be among `sizes`.
    pub classes: Option<ClassesConfig>,
    /// Estimates fully associative TLBs and working sets from a sample of the pages; all other results stay
    /// exact. Excludes private TLBs of threads.
    pub sample: Option<PageSample>,
    /// Whether the threads of a process share TLBs.
    pub threads: Threads,
    /// The handling of TLBs at a context switch between processes that share them.
    pub at_context_switch: AtContextSwitch,
    /// Empties the TLBs of a core each time it has executed this many instructions, to model context switches
    /// to other programs.
    pub flush_every_instructions: Option<NonZeroU64>,
    /// The instruction set of the kernels.
    pub instructions: Instructions,
}

/// The sharing of TLBs among the threads of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// All threads share them, in the order of the stream.
    Shared,
    /// Each thread has TLBs of its own: it runs on a core of its own.
    Private,
}

/// The handling of TLBs at a context switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtContextSwitch {
    /// Entries stay: they are tagged with their address space.
    Keep,
    /// Entries are flushed.
    Flush,
}

impl CurvesConfig {
    /// A configuration without kernels, for the caller to complete.
    pub fn nothing(sizes: Sizes, streams: Vec<Stream>) -> Self {
        CurvesConfig {
            sizes,
            streams,
            native_layout: false,
            max_entries: 0,
            set_indexes: Vec::new(),
            max_sets_log2: MAX_SETS_LOG2,
            line_sizes: Vec::new(),
            windows_refs: Vec::new(),
            two_sizes: Vec::new(),
            classes: None,
            sample: None,
            threads: Threads::Shared,
            at_context_switch: AtContextSwitch::Keep,
            flush_every_instructions: None,
            instructions: Instructions::best(),
        }
    }
}
