//! The integration tests of `octavo-hw`, linked once.

mod any_size;
mod array;
mod caches;
mod common;
mod virtual_caches;
mod walk_caches;
