//! All caches of all sets and ways at once, at any sizes of their lines: all-associativity
//! simulation (Hill and Smith, "Evaluating associativity in CPU caches", 1989) of what a program
//! references, line by line.
//!
//! With LRU a set of *w* ways holds the first *w* of its lines in order of last use, so that one
//! list for each set gives the misses of all numbers of ways; and a line that was used last in its set was used
//! last in every set that this one is cut into (inclusion), so that a look-up is over at the first
//! number of sets where it finds its line in front.
//!
//! Caches are indexed and tagged by virtual addresses, where they are relocated to; they write
//! back, and allocate what is stored to. A reference looks up each line that it touches.

mod line_size;
mod sets;
mod split;
#[cfg(test)]
mod tests;

pub use line_size::LineSize;
pub(crate) use sets::CacheSets;
pub use sets::{CacheCurves, MAX_CACHE_SETS_LOG2};
pub(crate) use split::{LineBatch, LineSplitter};
