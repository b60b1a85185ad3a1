//! Measures the processor that it runs on, without hardware counters: pointer chases over lines that
//! lie in pages of known sizes.
//!
//! A chase is a random cycle over cache lines, each of which holds the address of the next one, so
//! that a load starts when the one before has ended. With one line in each page, a chase over N pages
//! needs N TLB entries and N cache lines. A second chase over N lines that lie close together in 2 MiB
//! pages, the *control*, needs the same number of lines and few TLB entries. Both place their lines at
//! random, so that they spread alike over the sets of every cache: the difference of both is what
//! translation costs.
//!
//! Only times are measured here, in ticks of the time-stamp counter; what they mean, such as where the
//! first level of the TLB ends, is decided by `python/octavo/calibration/knees.py`.
//!
//! Measurements of different sizes are interleaved in random order, round after round: a disturbance
//! by other processes then spreads over all sizes, instead of making a step between two of them.

mod chase;
mod clock;
mod faults;
mod measure;
mod memory;
mod plan;
mod samples;
mod sampling;
mod streams;
mod windows;

pub use measure::measure;
pub use memory::Obtained;
pub use plan::Plan;
pub use samples::{
    ChaseSamples, DenseSamples, FaultSamples, LatencySamples, Measured, ParallelSamples,
    RandomSamples, SpreadSamples, StreamSamples, StrideSamples, WalkerSamples, WindowSamples,
    WorkingSetSamples,
};
pub use streams::Direction;
pub use windows::Filler;

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
#[error("cannot map {} MiB of memory: {cause}", bytes >> 20)]
pub struct CalibrateError {
    bytes: usize,
    cause: std::io::Error,
}
