//! Data caches by global virtual address: virtually indexed and virtually tagged, two levels, each
//! split into one for instructions and one for data (Jacob and Mudge, "Software-Managed Address
//! Translation", HPCA 1997, sections 4 and 5).
//!
//! - All are write-back and write-allocate. Whatever misses is filled at both levels, so the two are
//!   neither inclusive nor exclusive. The first level is looked up, then the second; what both miss
//!   is nobody's affair here: who knows where the page lies [loads and maps](VirtualCaches::load_and_map)
//!   it.
//! - A line carries the bits of its page: a store to a line without that right is *denied*, and
//!   changes nothing; it is a use of the line to the policy, and counts as no access. A line that may
//!   not be stored to is never dirty.
//! - A dirty line of the first level that gives way makes the line behind it dirty, which is no use to
//!   the policy; where that is gone, it goes *around* the second level to memory, so that no line comes
//!   in that nobody referenced. (So hits and misses are those of caches that write through, as
//!   cachegrind's are.)
//! - What has to be written to memory is put down in order ([`WriteBack`]), and taken by whoever
//!   translates it.
//! - A [sweep](VirtualCaches::sweep) asks for each line of a range by its address, as an operating
//!   system does for a page (section 5.4), and changes those that are there. What it writes back is
//!   counted with it, and not as a line that gave way.
//! - The side of instructions does not see what data store, nor the other way round.
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

/// What the first level says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L1Lookup {
    /// It has the line, of this frame.
    Hit(FrameNumber),
    /// It has the line, which may not be stored to.
    Denied,
    /// It has not: the second level is to be asked.
    Miss,
}

/// What the second level says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum L2Lookup {
    /// It has the line, of this frame; the first has it now, too.
    Hit(FrameNumber),
    /// It has the line, which may not be stored to.
    Denied,
    /// It has not: the paper's CACHEMISS.
    Miss,
}

/// A dirty line on its way to memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteBack {
    /// Where it begins.
    pub at: GlobalAddr,
    /// How many bytes it has.
    pub bytes: u64,
    /// The frame that it was loaded from.
    pub frame: FrameNumber,
}

/// What a sweep does to the lines of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Change {
    /// They have this right from now on. Without it they are written back first, if they are dirty.
    Rights {
        /// Whether they may be stored to.
        may_store: bool,
    },
    /// They are written back, if they are dirty, and dropped.
    Drop,
}

/// What a sweep found: in the first level, in the second.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Swept {
    /// Lines asked for, whether they were there or not.
    pub checked: [u64; 2],
    /// Those that were there.
    pub changed: [u64; 2],
    /// Those that were dirty and had to be written behind.
    pub written_back: [u64; 2],
}

impl Swept {
    /// Both together.
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
    /// Where there can be no such caches.
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

    /// An access, and so many that repeat it, in the first level. A hit is counted, with its repeats;
    /// else whoever asked goes on, and counts the repeats with what ends the access.
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

    /// The access that the first level has missed, in the second. A miss is counted at both levels; a
    /// hit, too, with its repeats, which hit the first.
    pub fn look_up_l2(
        &mut self,
        side: SideNumber,
        addr: GlobalAddr,
        stores: bool,
        repeats: u32,
    ) -> L2Lookup {
        self.sides[side].look_up_l2(addr, stores, repeats)
    }

    /// The line of an address, which neither level has, comes into both: SPECIFYVTAG and LOAD&MAP
    /// (section 4.1). A store makes it dirty in the first, and repeats of it hit there.
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

    /// Changes what is there of `bytes` bytes from an address on, at both levels of a side.
    pub fn sweep(
        &mut self,
        side: SideNumber,
        from: GlobalAddr,
        bytes: u64,
        change: Change,
    ) -> Swept {
        self.sides[side].sweep(from, bytes, change)
    }

    /// The line of an address in the first level, if it is there; the policy does not hear of it.
    #[inline(always)]
    pub fn probe(&self, side: SideNumber, addr: GlobalAddr) -> Option<Line> {
        self.sides[side].l1.probe(addr)
    }

    /// Repeats of an access whose line is in the first level, and used last there.
    #[inline(always)]
    pub fn repeat(&mut self, side: SideNumber, times: u32) {
        self.sides[side].l1.counters.hits += u64::from(times);
    }

    /// Takes the next line that has to be written to memory.
    pub fn next_write_back(&mut self, side: SideNumber) -> Option<WriteBack> {
        self.sides[side].write_backs.pop_front()
    }

    /// The logarithm of the bytes of a line of the first level.
    #[inline(always)]
    pub fn line_log2(&self, side: SideNumber) -> u32 {
        self.sides[side].l1.line_log2
    }

    /// How many lines of the second level of data so many bytes have.
    pub fn lines_of(&self, bytes: u64) -> u64 {
        bytes >> self.sides[1].l2.line_log2
    }

    /// How many lines each level of a side may have.
    pub fn entries(&self, side: SideNumber) -> [u64; 2] {
        [self.sides[side].l1.entries(), self.sides[side].l2.entries()]
    }

    /// What the levels of a side have counted.
    pub fn counters(&self, side: SideNumber) -> [CacheCounters; 2] {
        self.sides[side].counters()
    }

    /// How many sets the second level of a side has.
    pub fn second_level_sets(&self, side: SideNumber) -> usize {
        self.sides[side].l2.sets()
    }

    /// Where the lines of a set of the second level of a side begin.
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
