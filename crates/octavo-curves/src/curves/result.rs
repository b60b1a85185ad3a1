//! The results of curves.

use crate::caches::CacheCurves;
use crate::classes::MissClasses;
use crate::page_sample::SampledSize;
use crate::sets::SetCurves;
use crate::stack::StackCurve;
use crate::two_sizes::{TwoSizesResult, TwoSizesTlbs, add_counts};
use crate::working_sets::WorkingSet;
use octavo_trace::Stream;

/// The results of one stream of a process image, or of all process images that shared a core.
#[derive(Clone, Debug)]
pub struct StreamCurves {
    /// The stream.
    pub stream: Stream,
    /// Its references.
    pub references: u64,
    /// References of the whole program, fetches and data: the time that windows are measured in. 0 if
    /// there is no window.
    pub program_references: u64,
    /// Fully associative TLBs, by page size, summed over all cores.
    pub stack: Vec<StackCurve>,
    /// Set-associative TLBs, by index and page size, summed over all cores.
    pub sets: Vec<SetCurves>,
    /// Caches, by line size, summed over all cores.
    pub caches: Vec<CacheCurves>,
    /// Working sets, by page size and window, summed over the program's references.
    pub working_sets: Vec<WorkingSet>,
    /// Pairs of page sizes; the TLBs are summed over all cores. All streams have the same policy.
    pub two_sizes: Vec<TwoSizesResult>,
    /// The classified misses of one TLB, for each core, or for each process image that shared the core. The
    /// total is their sum.
    pub classes: Vec<MissClasses>,
    /// Estimates from a sample of the pages, by page size, instead of `stack` and `working_sets`.
    pub sampled: Option<Vec<SampledSize>>,
    /// The results of each core, if threads have TLBs of their own.
    pub cores: Vec<CoreCurves>,
}

/// The results of one stream of one thread, with TLBs of its own.
#[derive(Clone, Debug)]
pub struct CoreCurves {
    /// The thread's number in its process.
    pub thread: u32,
    /// The instructions that it executed: the same for each stream.
    pub instructions: u64,
    /// Its references in this stream.
    pub references: u64,
    /// Fully associative TLBs, by page size.
    pub stack: Vec<StackCurve>,
    /// Set-associative TLBs, by index and page size.
    pub sets: Vec<SetCurves>,
    /// Caches, by line size.
    pub caches: Vec<CacheCurves>,
    /// Pairs of page sizes. The policy is common to the process.
    pub two_sizes: Vec<TwoSizesTlbs>,
    /// The classified misses of one TLB.
    pub classes: Option<MissClasses>,
}

/// Adds the fully associative TLBs of another core to a sum.
pub fn add_stack(sum: &mut Vec<StackCurve>, other: &[StackCurve]) {
    if sum.is_empty() {
        *sum = other.to_vec();
        return;
    }
    for (sum, other) in sum.iter_mut().zip(other) {
        sum.pages += other.pages;
        add_counts(&mut sum.misses, &other.misses);
    }
}

/// Adds the set-associative TLBs of another core to a sum.
pub fn add_sets(sum: &mut Vec<SetCurves>, other: &[SetCurves]) {
    if sum.is_empty() {
        *sum = other.to_vec();
        return;
    }
    for (sum, other) in sum.iter_mut().zip(other) {
        add_counts(sum.misses.as_flattened_mut(), other.misses.as_flattened());
    }
}

/// Adds the caches of another core to a sum. Numbers of sets that one core lacks are dropped from the sum.
pub fn add_caches(sum: &mut Vec<CacheCurves>, other: &[CacheCurves]) {
    if sum.is_empty() {
        *sum = other.to_vec();
        return;
    }
    for (sum, other) in sum.iter_mut().zip(other) {
        sum.lookups += other.lookups;
        sum.misses.truncate(other.misses.len());
        add_counts(sum.misses.as_flattened_mut(), other.misses.as_flattened());
    }
}
