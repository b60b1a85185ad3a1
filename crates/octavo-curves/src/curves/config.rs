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
    /// The page sizes, all at once: those of every pair among them.
    pub sizes: Sizes,
    /// The streams, each with TLBs of its own.
    pub streams: Vec<Stream>,
    /// Whether addresses are moved to where Linux would have put them, or stay as traced.
    pub native_layout: bool,
    /// Fully associative TLBs of 1 to so many entries; none where it is 0.
    pub max_entries: u32,
    /// How set-associative TLBs are indexed; none are asked for where it is empty.
    pub set_indexes: Vec<SetIndex>,
    /// The most sets that those have, as a logarithm.
    pub max_sets_log2: u8,
    /// The sizes of the lines of all caches that are asked for; none where it is empty.
    pub line_sizes: Vec<LineSize>,
    /// The windows of the working sets.
    pub windows_refs: Vec<u64>,
    /// Pairs of page sizes, both among `sizes`.
    pub two_sizes: Vec<TwoSizesConfig>,
    /// The TLB whose misses are classified and reported by region and function, if any; both of its
    /// page sizes among `sizes`.
    pub classes: Option<ClassesConfig>,
    /// Approximates fully associative TLBs and working sets from a sample of the pages; all else
    /// stays exact. Excludes private TLBs of threads.
    pub sample: Option<PageSample>,
    /// Whether the threads of a process share TLBs.
    pub threads: Threads,
    /// The handling of TLBs at a context switch between processes that share them.
    pub at_context_switch: AtContextSwitch,
    /// Empties the TLBs of a core after every so many of its instructions: models context switches
    /// to other programs.
    pub flush_every_instructions: Option<NonZeroU64>,
    /// Which instructions the kernels use.
    pub instructions: Instructions,
}

/// The sharing of TLBs among the threads of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// All threads share them, in the order of the stream.
    Shared,
    /// Each thread has its own: it runs on a core of its own.
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
    /// A configuration without any kernels, for callers to fill in.
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
