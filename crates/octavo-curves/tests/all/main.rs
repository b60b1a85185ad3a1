//! The integration tests of `octavo-curves`, linked once.

mod allocations;
mod machine;
mod oracle;
mod page_faults;
mod sampling;
mod sharing;
mod time_slicing;
