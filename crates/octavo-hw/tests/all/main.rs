//! The integration tests of `octavo-hw`, linked once.

mod any_size;
mod array;
mod caches;
mod common;
mod prefetchers;
mod virtual_caches;
mod walk_caches;
