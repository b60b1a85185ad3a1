//! Physical memory: free frames, owners of allocated frames, fragmentation at the start, and compaction.
//!
//! An operating system uses [`Frames`], which combines a [`Buddy`] allocator with a ledger of owners. Other
//! state of a frame, such as its mappings, is kept by its owner.

mod bits;
mod block_set;
mod buddy;
mod chunks;
mod compaction;
mod coverage;
mod fixed_tables;
pub mod fragmentation;
mod hole_bitmaps;
mod ledger;
mod memory;
mod order;
mod reservations;
mod set_aside;
mod smart_compaction;
pub mod snapshot;

pub use block_set::BlockSet;
pub use buddy::Buddy;
pub use chunks::{ChunkBitmaps, SubBlocks};
pub use compaction::{Compaction, CompactionEnd, CompactionLimits, Compactor, FrameRelocator};
pub use coverage::Coverage;
pub use hole_bitmaps::HoleBitmaps;
pub use ledger::Owner;
pub use memory::{Frames, MemoryShape, MemorySizeError, OutOfMemory};
pub use order::{Order, blocks_of};
pub use reservations::ReservationId;
pub use smart_compaction::free_emptiest_block;
