//! The operating system of a simulated machine: physical memory, address spaces, page tables, and page-size
//! policies.

mod counters;
pub mod frames;
mod memory;
mod os;
pub mod page_table;
pub mod policy;
mod running;
pub mod vmas;

pub use counters::Counters;
pub use memory::{
    ChunkSearch, Content, CopyOnWrite, Exchange, Invalidation, Memory, PartsUsedBytes, Placement,
    Process, ProcessId, SamePages, around, base_pages,
};
pub use os::Os;
pub use running::{Invalidations, RunningOs};
