//! The integration tests of `octavo-types`, linked once.

mod host_memory;
