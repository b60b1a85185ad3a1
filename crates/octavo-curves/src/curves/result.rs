//! The results of curves.

use crate::caches::CacheCurves;
use crate::classes::MissClasses;
use crate::page_sample::SampledSize;
use crate::sets::SetCurves;
use crate::stack::StackCurve;
use crate::two_sizes::{TwoSizesResult, TwoSizesTlbs, add_counts};
use crate::working_sets::WorkingSet;
use octavo_trace::Stream;

/// The results of one stream: that of a process image, or of all that shared a core.
#[derive(Clone, Debug)]
pub struct StreamCurves {
    /// The stream.
    pub stream: Stream,
    /// Its references.
    pub references: u64,
    /// References of the whole program, fetches and data: the time that windows are measured in. 0 if
    /// there is no window.
    pub program_references: u64,
    /// Fully associative TLBs, by page size; those of all cores added up.
    pub stack: Vec<StackCurve>,
    /// Set-associative ones, by index and page size; those of all cores added up.
    pub sets: Vec<SetCurves>,
    /// Caches, by the size of their lines; those of all cores added up.
    pub caches: Vec<CacheCurves>,
    /// Working sets, by page size and window, summed over the program's references.
    pub working_sets: Vec<WorkingSet>,
    /// Pairs of page sizes; the TLBs of all cores added up. All streams have the same policy.
    pub two_sizes: Vec<TwoSizesResult>,
    /// Why one TLB misses, and where: of each core, or of each process image that shared the core. They
    /// are to be added up.
    pub classes: Vec<MissClasses>,
    /// By page size, estimates from a sample of the pages, in place of `stack` and `working_sets`.
    pub sampled: Option<Vec<SampledSize>>,
    /// Each core on its own, where threads have TLBs of their own.
    pub cores: Vec<CoreCurves>,
}

/// The results of one stream of one thread, with TLBs of its own.
#[derive(Clone, Debug)]
pub struct CoreCurves {
    /// The thread's number in its process.
    pub thread: u32,
    /// The instructions that it executed, whatever the stream.
    pub instructions: u64,
    /// Its references in this stream.
    pub references: u64,
    /// Fully associative TLBs, by page size.
    pub stack: Vec<StackCurve>,
    /// Set-associative ones, by index and page size.
    pub sets: Vec<SetCurves>,
    /// Caches, by the size of their lines.
    pub caches: Vec<CacheCurves>,
    /// Pairs of page sizes: the policy is the process's.
    pub two_sizes: Vec<TwoSizesTlbs>,
    /// Why one TLB misses, and where.
    pub classes: Option<MissClasses>,
}

/// Adds the curves of another core to those of some.
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

/// The same of set-associative TLBs.
pub fn add_sets(sum: &mut Vec<SetCurves>, other: &[SetCurves]) {
    if sum.is_empty() {
        *sum = other.to_vec();
        return;
    }
    for (sum, other) in sum.iter_mut().zip(other) {
        add_counts(sum.misses.as_flattened_mut(), other.misses.as_flattened());
    }
}

/// Adds caches' misses. Numbers of sets that one core lacks are dropped from the sum.
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
