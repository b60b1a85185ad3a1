//! Data caches by global virtual address: virtually indexed and virtually tagged, two levels, each split for
//! instructions and data (Jacob and Mudge, "Software-Managed Address Translation", HPCA 1997, sections 4 and
//! 5).
//!
//! - All are write-back and write-allocate. A miss fills both levels, so that they are neither inclusive nor
//!   exclusive. The first level is looked up, then the second; after a miss of both, the caller, who knows
//!   the frame of the page, [loads and maps](VirtualCaches::load_and_map) the line.
//! - A line has the permissions of its page: a store to a line without store permission is *denied* and
//!   changes nothing. It counts as a use of the line for the policy, but not as an access. A line without
//!   store permission is never dirty.
//! - An evicted dirty line of the first level makes the line in the second level dirty, without a use for the
//!   policy. If the second level does not hold it, the write-back goes *around* it to memory, so that no
//!   unreferenced line is filled. (Hits and misses are thus those of write-through caches, such as
//!   cachegrind's.)
//! - Write-backs to memory are queued in order ([`WriteBack`]) for the caller to translate.
//! - A [sweep](VirtualCaches::sweep) checks each line of a range by address, as an operating system does for
//!   a page (section 5.4), and changes those present. Its write-backs are counted with the sweep, not as
//!   evictions.
//! - Instruction and data sides are not coherent.
//! - accesses = hits + misses at each level; the second level is accessed by exactly the misses of the
//!   first.

mod addr;
mod config;
mod level;
mod line;
mod side;

use octavo_types::{FrameNumber, Instructions};

use crate::caches::{CacheCounters, SideNumber};
pub use addr::GlobalAddr;
pub use config::{VirtualCacheConfig, VirtualCacheError};
pub use line::Line;
use side::Side;

/// The outcome of a first-level look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L1Lookup {
    /// The line is present; its frame.
    Hit(FrameNumber),
    /// The line is present without store permission.
    Denied,
    /// The line is absent; the second level must be looked up.
    Miss,
}

/// The outcome of a second-level look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L2Lookup {
    /// The line is present, and is now in the first level, too; its frame.
    Hit(FrameNumber),
    /// The line is present without store permission.
    Denied,
    /// The line is absent: the paper's CACHEMISS.
    Miss,
}

/// A dirty line on its way to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteBack {
    /// Its address.
    pub at: GlobalAddr,
    /// Its size in bytes.
    pub bytes: u64,
    /// The frame that it was loaded from.
    pub frame: FrameNumber,
}

/// The change that a sweep makes to lines.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// Sets store permission. Dirty lines that lose it are written back first.
    Rights {
        /// The new store permission.
        may_store: bool,
    },
    /// Writes dirty lines back, and drops all.
    Drop,
}

/// Counts of a sweep, by level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Lines checked, present or not.
    pub checked: [u64; 2],
    /// Lines present and changed.
    pub changed: [u64; 2],
    /// Dirty lines written back.
    pub written_back: [u64; 2],
}

impl Swept {
    /// The sum of both.
    pub fn plus(self, other: Swept) -> Swept {
        let sum = |a: [u64; 2], b: [u64; 2]| [a[0] + b[0], a[1] + b[1]];
        Swept {
            checked: sum(self.checked, other.checked),
            changed: sum(self.changed, other.changed),
            written_back: sum(self.written_back, other.written_back),
        }
    }
}

/// The virtual caches of a core.
#[derive(Clone, Debug)]
pub struct VirtualCaches {
    sides: [Side; 2],
}

impl VirtualCaches {
    /// Empty caches.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn new(
        config: &VirtualCacheConfig,
        instructions: Instructions,
    ) -> Result<Self, VirtualCacheError> {
        let VirtualCacheConfig { l1, l2 } = config;
        Ok(VirtualCaches {
            sides: [
                Side::new([&l1[0], &l2[0]], ["l1i", "l2i"], instructions)?,
                Side::new([&l1[1], &l2[1]], ["l1d", "l2d"], instructions)?,
            ],
        })
    }

    /// Looks up the first level for an access and its repeats. A hit is counted with its repeats; otherwise
    /// the caller continues with the second level, and counts the repeats when the access completes.
    #[inline(always)]
    pub fn look_up_l1(
        &mut self,
        side: SideNumber,
        addr: GlobalAddr,
        stores: bool,
        repeats: u32,
    ) -> L1Lookup {
        self.sides[side].look_up_l1(addr, stores, repeats)
    }

    /// Looks up the second level after a first-level miss. Counts a miss of the first level, and a hit or miss of the
    /// second. The repeats of a hit are counted as hits of the first level.
    pub fn look_up_l2(
        &mut self,
        side: SideNumber,
        addr: GlobalAddr,
        stores: bool,
        repeats: u32,
    ) -> L2Lookup {
        self.sides[side].look_up_l2(addr, stores, repeats)
    }

    /// Fills the line of an address into both levels: SPECIFYVTAG and LOAD&MAP (section 4.1). A store makes the
    /// line dirty in the first level. The repeats of the access hit the first level.
    pub fn load_and_map(
        &mut self,
        side: SideNumber,
        addr: GlobalAddr,
        (frame, may_store): (FrameNumber, bool),
        stores: bool,
        repeats: u32,
    ) {
        self.sides[side].load_and_map(addr, frame, may_store, stores, repeats);
    }

    /// Changes the present lines of `bytes` bytes from an address on, at both levels of a side.
    pub fn sweep(
        &mut self,
        side: SideNumber,
        from: GlobalAddr,
        bytes: u64,
        change: Change,
    ) -> Swept {
        self.sides[side].sweep(from, bytes, change)
    }

    /// The line of an address in the first level, without a use.
    #[inline(always)]
    pub fn probe(&self, side: SideNumber, addr: GlobalAddr) -> Option<Line> {
        self.sides[side].l1.probe(addr)
    }

    /// Counts repeats of an access whose line is the most recent of the first level.
    #[inline(always)]
    pub fn repeat(&mut self, side: SideNumber, times: u32) {
        self.sides[side].l1.counters.hits += u64::from(times);
    }

    /// Removes the next queued write-back.
    pub fn next_write_back(&mut self, side: SideNumber) -> Option<WriteBack> {
        self.sides[side].write_backs.pop_front()
    }

    /// log2 of the bytes of a first-level line.
    #[inline(always)]
    pub fn line_log2(&self, side: SideNumber) -> u32 {
        self.sides[side].l1.line_log2
    }

    /// The number of second-level data lines of `bytes` bytes.
    pub fn lines_of(&self, bytes: u64) -> u64 {
        bytes >> self.sides[1].l2.line_log2
    }

    /// The capacity of each level of a side, in lines.
    pub fn entries(&self, side: SideNumber) -> [u64; 2] {
        [self.sides[side].l1.entries(), self.sides[side].l2.entries()]
    }

    /// The counters of the levels of a side.
    pub fn counters(&self, side: SideNumber) -> [CacheCounters; 2] {
        self.sides[side].counters()
    }

    /// The number of sets of the second level of a side.
    pub fn second_level_sets(&self, side: SideNumber) -> usize {
        self.sides[side].l2.sets()
    }

    /// The addresses of the lines of a set of the second level of a side.
    pub fn second_level_set(
        &self,
        side: SideNumber,
        set: usize,
    ) -> impl Iterator<Item = GlobalAddr> + '_ {
        self.sides[side].l2.set(set)
    }

    /// All lines of a level (0 or 1) of a side.
    pub fn lines(
        &self,
        side: SideNumber,
        level: usize,
    ) -> impl Iterator<Item = (GlobalAddr, Line)> + '_ {
        let Side { l1, l2, .. } = &self.sides[side];
        if level == 0 { l1.iter() } else { l2.iter() }
    }
}
