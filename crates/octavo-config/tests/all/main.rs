//! The integration tests of `octavo-config`, linked once.

mod errors;
mod host;
mod memory_kinds;
mod own_table;
mod prefetchers;
mod properties;
mod start;
