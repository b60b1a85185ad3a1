//! Engines that use page numbers only: no physical addresses, no operating system.
//!
//! Two engines consume a reference stream. [`Study`] is the fast one: it computes the misses of given
//! fully associative TLBs at every page size, and the memory touched, by region. [`Curves`] computes
//! *all* TLBs (all numbers of entries, all sets and ways, two page sizes at once), working sets, and
//! all caches. It converts the stream into [`touches`], which its kernels consume.

mod caches;
mod classes;
mod curves;
mod footprint;
mod lanes;
mod page_sample;
mod sampling;
mod sets;
mod sharing;
mod sizes;
mod stack;
mod study;
mod touches;
mod two_sizes;
mod working_sets;

pub use caches::{CacheCurves, LineSize, MAX_CACHE_SETS_LOG2};
pub use classes::{ClassCounts, ClassesConfig, FunctionMisses, MissClasses};
pub use curves::{AtContextSwitch, CoreCurves, Curves, CurvesConfig, StreamCurves, Threads};
pub use footprint::{PageSet, Residency};
pub use lanes::MAX_WAYS;
pub use octavo_trace::{Counts, Stream};
pub use page_sample::{Estimate, PageSample, SampledSize};
pub use sampling::{SampleSpec, Sampled};
pub use sets::{MAX_SETS_LOG2, SetCurves, SetIndex, SingleSets};
pub use sharing::{Image, Part, Touched, counted_again, touched_together};
pub use sizes::Sizes;
pub use stack::{MAX_ENTRIES, StackCurve};
pub use study::{
    AllocationSite, Allocations, ArrayShape, AttributedMisses, CodePlace, Curve, Footprint, Levels,
    MachineCurve, MachineTlbs, MissColumn, NamedStack, NotModelled, PageFaults, RegionResult,
    Study, StudyConfig, ThreadCounts, TlbsOfSize,
};
pub use two_sizes::{
    TwoSizesConfig, TwoSizesIndex, TwoSizesResult, TwoSizesSets, TwoSizesStack, TwoSizesTlbs,
};
pub use working_sets::WorkingSet;
