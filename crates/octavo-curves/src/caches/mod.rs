//! Misses of caches of every number of sets and ways at once, at several line sizes:
//! all-associativity simulation (Hill and Smith, "Evaluating associativity in CPU caches", 1989) of
//! the lines that a program references.
//!
//! With LRU a set of *w* ways holds the first *w* of its lines in order of last use, so that one
//! list for each set gives the misses of all numbers of ways. With more sets, each set is split into
//! smaller ones, and the most recent line of a set is also the most recent of the smaller set that it
//! belongs to (inclusion). So a look-up ends at the first number of sets where its line is the most
//! recent.
//!
//! Caches are indexed and tagged by relocated virtual addresses; they are write-back and
//! write-allocate. A reference looks up each line that it touches.

mod line_size;
mod sets;
mod split;
#[cfg(test)]
mod tests;

pub use line_size::LineSize;
pub(crate) use sets::CacheSets;
pub use sets::{CacheCurves, MAX_CACHE_SETS_LOG2};
pub(crate) use split::{LineBatch, LineSplitter};
