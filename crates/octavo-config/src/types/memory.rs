//! Physical memory, and how it is fragmented before a simulation begins.

use indexmap::IndexMap;
use octavo_os::frames::fragmentation::{HoleKind, HoleLayout};
use octavo_types::PageSize;

/// Physical memory.
#[derive(Clone, PartialEq, Debug)]
pub struct MemoryConfig {
    /// How much there is: whole frames of 4 KiB, at most 4 TiB.
    pub bytes: u64,
    /// The largest block of the allocator: 4 MiB for Linux, 1 GiB for Tailored Page Sizes. A design
    /// may ask for another.
    pub largest_block: PageSize,
    /// What it is like at the start.
    pub fragmentation: FragmentationConfig,
}

/// What memory is like at the start, as [`octavo_os::frames::Fragmentation`] has it.
#[derive(Clone, PartialEq, Debug)]
pub enum FragmentationConfig {
    /// Everything is free.
    Empty,
    /// Holes in some of the 2 MiB regions.
    Holes {
        /// The share of regions that have holes, 0 to 1.
        portion: f64,
        /// The share of holes in each of them, 0 to 1.
        fraction: f64,
        /// How they lie.
        layout: HoleLayout,
        /// What is in them.
        holes: HoleKind,
    },
    /// So many free blocks of each size, and the rest held by others.
    OrderMix {
        /// Free blocks by their size; none of the others.
        free_blocks: IndexMap<PageSize, u64>,
        /// The share of 2 MiB regions, 0 to 1, in which what is held may be moved.
        movable_share: f64,
    },
    /// As a real machine's was, which `octavo snapshot` has kept.
    Snapshot {
        /// The file.
        file: String,
    },
}
