//! Physical memory: which frames are free, who holds the others, how scattered what is free is at
//! the start, and how it is brought together again.
//!
//! [`Frames`] is what an operating system uses: a [`Buddy`] allocator and a ledger of holders.
//! Everything about a frame that is not about memory itself, such as who maps it, is its owner's.

mod bits;
mod block_set;
mod buddy;
mod chunks;
mod compaction;
mod coverage;
pub mod fragmentation;
mod hole_bitmaps;
mod ledger;
mod memory;
mod order;
mod reservations;
pub mod snapshot;
mod tables;

pub use block_set::BlockSet;
pub use buddy::Buddy;
pub use chunks::{ChunkBitmaps, SubBlocks};
pub use compaction::{Compaction, CompactionEnd, CompactionLimits, Compactor, FrameOwner};
pub use coverage::Coverage;
pub use hole_bitmaps::HoleBitmaps;
pub use ledger::Holder;
pub use memory::{Frames, MemoryShape, MemorySizeError, OutOfMemory};
pub use order::{Order, blocks_of};
pub use reservations::{ReservationCounts, ReservationId};
