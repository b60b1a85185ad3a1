//! What curves are asked for.

use std::num::NonZeroU64;

use octavo_types::Instructions;

use crate::caches::LineSize;
use crate::classes::ClassesConfig;
use crate::page_sample::PageSample;
use crate::sets::{MAX_SETS_LOG2, SetIndex};
use crate::sizes::Sizes;
use crate::two_sizes::TwoSizesConfig;
use octavo_trace::Stream;

/// What to find out.
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
    /// The TLB whose misses are classified and told by region and function, if any; both of its
    /// page sizes among `sizes`.
    pub classes: Option<ClassesConfig>,
    /// Fully associative TLBs and working sets from a sample of the pages, if that is to do; all
    /// else is exact. It does not tell threads apart.
    pub sample: Option<PageSample>,
    /// Who looks up the TLBs of one process.
    pub threads: Threads,
    /// What becomes of the TLBs when another process has its turn, where several share them.
    pub at_turns: AtTurns,
    /// After so many instructions of a core, again and again, its TLBs are emptied: a context
    /// switch to somebody who leaves nothing behind.
    pub flush_every_instructions: Option<NonZeroU64>,
    /// Which instructions the kernels use.
    pub instructions: Instructions,
}

/// Who looks up the TLBs of one process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// All its threads, as they come.
    Shared,
    /// Each thread its own: it has a core for itself.
    Private,
}

/// What becomes of the TLBs when another process has its turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AtTurns {
    /// They keep what they have: entries are tagged with their address space.
    Keep,
    /// They are emptied.
    Flush,
}

impl CurvesConfig {
    /// Nothing is asked yet of `streams`, at any of `sizes`: for the rest to be filled in.
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
            at_turns: AtTurns::Keep,
            flush_every_instructions: None,
            instructions: Instructions::best(),
        }
    }
}
