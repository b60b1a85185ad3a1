//! What the page-number stream alone can tell: no physical addresses, no operating system.
//!
//! [`Study`] takes a reference stream and keeps, for every page size at once, the misses of fully
//! associative LRU TLBs and the memory touched, whole and by region. The way of a reference:
//! [`study`] splits a segment's references by stream; [`stream`] sends those that leave the page
//! at hand to a small front, exact at base pages; what misses there goes to one [`recency`] order
//! for each page size. Pages' own data lie in [`pages`]; memory is counted in [`footprint`].

mod bits;
mod footprint;
mod front;
mod pages;
mod recency;
mod sampling;
mod sizes;
mod stream;
mod study;

pub use footprint::{PageSet, Residency};
pub use sampling::{SampleSpec, Sampled};
pub use sizes::Sizes;
pub use stream::{Curve, Levels};
pub use study::{Counts, Footprint, RegionResult, Stream, Study, StudyConfig};
