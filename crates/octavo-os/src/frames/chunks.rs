//! Bitmaps of the sub-blocks that gapped pages consist of (Du et al., "Supporting Superpages in Non-Contiguous
//! Physical Memory", HPCA 2015; Park et al., ISCA 2020, Section VII-D): physical memory is divided into
//! chunks of 4 MiB, each of 64 sub-blocks of 64 KiB, of which any 32, in order, form a gapped page of 2 MiB.
//! Faulty or otherwise used sub-blocks are gaps.
//!
//! The 64 bits that select the sub-blocks lie in reserved memory, eight bytes per chunk, indexed by chunk
//! number: 0.0002% of memory.

use octavo_types::{FrameNumber, PhysAddr};
use rustc_hash::FxHashMap;

use super::order::Order;

/// Chunks whose bitmaps fit into one frame: eight bytes each.
pub(super) const CHUNKS_OF_FRAME: u64 = 4096 / 8;
/// Frames of a chunk.
pub(super) const FRAMES_OF_CHUNK: u64 = SubBlocks::CHUNK.frames();

/// A subset of the sub-blocks of a chunk, one bit each, the first in the lowest bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SubBlocks(u64);

impl SubBlocks {
    /// The size of a sub-block: 64 KiB.
    pub const ORDER: Order = Order::new(4).expect("16 frames");
    /// The size of a chunk: 4 MiB.
    pub const CHUNK: Order = Order::new(10).expect("1024 frames");
    /// Sub-blocks of a 2 MiB page.
    const OF_PAGE: u32 = 32;

    /// The first 32 set bits; `None` if there are fewer.
    pub fn first_of(bits: u64) -> Option<Self> {
        let mut rest = bits;
        while rest.count_ones() > Self::OF_PAGE {
            rest &= !(1 << (63 - rest.leading_zeros()));
        }
        (rest.count_ones() == Self::OF_PAGE).then_some(SubBlocks(rest))
    }

    /// The bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// The numbers of the selected sub-blocks, in order.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..64).filter(move |number| self.0 >> number & 1 != 0)
    }

    /// The frame of the base page at `place` (from 0) of a page of these sub-blocks; hardware counts bits to
    /// find it. `None` if there are too few bits.
    pub fn frame_of(self, chunk: FrameNumber, place: u64) -> Option<FrameNumber> {
        let mut bits = self.0;
        for _ in 0..place / Self::ORDER.frames() {
            bits &= bits.wrapping_sub(1);
        }
        let number = u64::from(bits.trailing_zeros());
        let within = place % Self::ORDER.frames();
        (bits != 0).then(|| chunk.plus(number * Self::ORDER.frames() + within))
    }
}

/// The chunk bitmaps and their location.
#[derive(Clone, Debug, Default)]
pub struct ChunkBitmaps {
    /// The first frame of the bitmaps; `None` if no memory is reserved.
    pub(super) start: Option<FrameNumber>,
    /// By chunk number: the sub-blocks of its page, and the number of page tables that map it.
    pages: FxHashMap<u64, (SubBlocks, u32)>,
}

impl ChunkBitmaps {
    /// Whether memory is reserved for bitmaps.
    pub fn are_reserved(&self) -> bool {
        self.start.is_some()
    }

    /// The physical address of the bitmap of the chunk with this first frame.
    ///
    /// # Panics
    /// If no memory is reserved.
    pub fn place_of(&self, chunk: FrameNumber) -> PhysAddr {
        let start = self.start.expect("memory is reserved for bitmaps").start().raw();
        PhysAddr::new(start + number(chunk) * 8)
    }

    /// The sub-blocks of the page of a chunk, if it has one.
    pub fn of(&self, chunk: FrameNumber) -> Option<SubBlocks> {
        self.pages.get(&number(chunk)).map(|(blocks, _)| *blocks)
    }

    /// Counts another page table that maps the page of a chunk with these sub-blocks.
    ///
    /// # Panics
    /// If the chunk's page has other sub-blocks.
    pub(crate) fn add(&mut self, chunk: FrameNumber, blocks: SubBlocks) {
        let (known, tables) = self.pages.entry(number(chunk)).or_insert((blocks, 0));
        assert_eq!(*known, blocks, "a chunk has one page");
        *tables += 1;
    }

    /// Counts one page table less.
    ///
    /// # Panics
    /// If no page table maps it.
    pub(crate) fn remove(&mut self, chunk: FrameNumber) {
        let (_, tables) = self.pages.get_mut(&number(chunk)).expect("a chunk with a page");
        *tables -= 1;
        if *tables == 0 {
            self.pages.remove(&number(chunk));
        }
    }

    /// The first frames of all chunks with a page, each with the number of page tables that map it.
    pub fn counted(&self) -> FxHashMap<FrameNumber, u32> {
        let first = |number: u64| FrameNumber::new(number * FRAMES_OF_CHUNK);
        self.pages.iter().map(|(number, (_, tables))| (first(*number), *tables)).collect()
    }
}

fn number(chunk: FrameNumber) -> u64 {
    chunk.raw() / FRAMES_OF_CHUNK
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{Frames, MemoryShape, Owner};

    #[test]
    fn frame_of_selects_the_nth_sub_block() {
        // All sub-blocks but the first and the third.
        let bits = !0b101;
        let blocks = SubBlocks::first_of(bits).unwrap();
        assert_eq!(blocks.bits(), ((1 << 34) - 1) & bits);
        let chunk = FrameNumber::new(2048);
        let at = |place| blocks.frame_of(chunk, place).map(|frame| frame.raw() - 2048);
        assert_eq!([0, 15, 16, 31, 511].map(at), [16, 31, 48, 63, 33 * 16 + 15].map(Some));
        assert_eq!(at(512), None);
        assert_eq!(SubBlocks::first_of(u64::MAX >> 33), None);
        assert_eq!(SubBlocks::first_of(u64::MAX << 32).unwrap().bits(), u64::MAX << 32);
        // Counted by definition.
        let by_hand: Vec<u64> = (0..64).filter(|number| blocks.bits() >> number & 1 == 1).collect();
        assert_eq!(blocks.iter().collect::<Vec<_>>(), by_hand);
        for place in 0..512u64 {
            let wanted = by_hand[(place / 16) as usize] * 16 + place % 16;
            assert_eq!(at(place), Some(wanted));
        }
    }

    #[test]
    fn chunk_bitmaps_reserve_eight_bytes_per_chunk_at_the_end() {
        let mut frames = Frames::new(MemoryShape::new(3 << 20, Order::LINUX).unwrap());
        frames.reserve_chunk_bitmaps();
        frames.reserve_chunk_bitmaps();
        assert_eq!(frames.used_frames(Owner::HoleBitmap), 6);
        frames.reserve_hole_bitmaps();
        assert_eq!(frames.used_frames(Owner::HoleBitmap), 6 + 96);
        let at = |frame| frames.chunk_bitmaps().place_of(FrameNumber::new(frame)).raw();
        assert_eq!(at(0), ((3 << 20) - 6) << 12);
        assert_eq!(at(3 << 10), at(0) + 24);
        assert_eq!(frames.check(), Ok(()));
    }
}
