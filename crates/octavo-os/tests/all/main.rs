//! The integration tests of `octavo-os`, linked once.

mod anchors;
mod buddy;
mod compaction;
mod contiguous;
mod fragmentation;
mod frames;
mod fuzz;
mod machine;
mod memory;
mod merged;
mod placement;
mod policies;
mod present;
mod reservations;
mod short_of_memory;
mod small;
mod snapshot;
mod sorted;
mod table_counters;
