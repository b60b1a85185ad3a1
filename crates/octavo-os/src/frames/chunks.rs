//! The bitmaps of chunks (paper 004, Section VII-D; Du et al., "Supporting Superpages in Non-Contiguous
//! Physical Memory", HPCA 2015): physical memory in chunks of 4 MiB, each of 64 sub-blocks of 64 KiB, of which
//! any 32 make a page of 2 MiB, in order. What is faulty, or somebody else's, is left out: a gap.
//!
//! The 64 bits that say which they are lie in reserved memory, eight bytes for each chunk, where the chunk's
//! number says: 0.0002% of memory.

use octavo_types::{FrameNumber, PhysAddr};
use rustc_hash::FxHashMap;

use super::memory::Frames;
use super::order::Order;
use super::tables::{CHUNKS_OF_FRAME, FRAMES_OF_CHUNK};

/// Sub-blocks of a chunk, a bit each, the first in the lowest.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SubBlocks(u64);

impl SubBlocks {
    /// The size of one: 64 KiB.
    pub const ORDER: Order = Order::new(4).expect("16 frames");
    /// The size of a chunk: 4 MiB.
    pub const CHUNK: Order = Order::new(10).expect("1024 frames");
    /// How many make a page of 2 MiB.
    const OF_PAGE: u32 = 32;

    /// The first 32 of those that these bits say; none where there are fewer.
    pub fn first_of(bits: u64) -> Option<Self> {
        let mut rest = bits;
        while rest.count_ones() > Self::OF_PAGE {
            rest &= !(1 << (63 - rest.leading_zeros()));
        }
        (rest.count_ones() == Self::OF_PAGE).then_some(SubBlocks(rest))
    }

    /// As bits.
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Their numbers in the chunk, in order.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..64).filter(move |number| self.0 >> number & 1 != 0)
    }

    /// The frame of a base page, by its place from 0 in a page of them: hardware counts bits to find it. None
    /// where there are too few bits.
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

/// The bitmaps of chunks, and where they lie.
#[derive(Clone, Debug, Default)]
pub struct ChunkBitmaps {
    /// Where that of the first chunk is; none where no memory is reserved.
    start: Option<FrameNumber>,
    /// By a chunk's number, the sub-blocks of its page, and how many page tables have it.
    pages: FxHashMap<u64, (SubBlocks, u32)>,
}

impl ChunkBitmaps {
    /// Whether there are any.
    pub fn are_there(&self) -> bool {
        self.start.is_some()
    }

    /// Where the bitmap of a chunk lies, told by its first frame.
    ///
    /// # Panics
    /// Where no memory is reserved.
    pub fn place_of(&self, chunk: FrameNumber) -> PhysAddr {
        let start = self.start.expect("memory is reserved for bitmaps").start().raw();
        PhysAddr::new(start + number(chunk) * 8)
    }

    /// The sub-blocks of the page of a chunk, if it has one.
    pub fn of(&self, chunk: FrameNumber) -> Option<SubBlocks> {
        self.pages.get(&number(chunk)).map(|(blocks, _)| *blocks)
    }

    /// One page table more has the page of a chunk, of such sub-blocks.
    ///
    /// # Panics
    /// Where the chunk's page has others.
    pub(crate) fn add(&mut self, chunk: FrameNumber, blocks: SubBlocks) {
        let (of, tables) = self.pages.entry(number(chunk)).or_insert((blocks, 0));
        assert_eq!(*of, blocks, "a chunk has one page");
        *tables += 1;
    }

    /// One page table less has it.
    ///
    /// # Panics
    /// Where none had it.
    pub(crate) fn remove(&mut self, chunk: FrameNumber) {
        let (_, tables) = self.pages.get_mut(&number(chunk)).expect("a chunk with a page");
        *tables -= 1;
        if *tables == 0 {
            self.pages.remove(&number(chunk));
        }
    }

    /// The first frames of all chunks that have a page, with how many page tables have it.
    pub fn counted(&self) -> FxHashMap<FrameNumber, u32> {
        let first = |number: u64| FrameNumber::new(number * FRAMES_OF_CHUNK);
        self.pages.iter().map(|(number, (_, tables))| (first(*number), *tables)).collect()
    }
}

fn number(chunk: FrameNumber) -> u64 {
    chunk.raw() / FRAMES_OF_CHUNK
}

impl Frames {
    /// Takes the frames that hold the bitmaps of chunks. Done once.
    pub fn reserve_chunk_bitmaps(&mut self) {
        if !self.chunks.are_there() {
            let chunks = self.shape().frames().div_ceil(FRAMES_OF_CHUNK);
            self.chunks.start = Some(self.reserve_last(chunks.div_ceil(CHUNKS_OF_FRAME)));
        }
    }

    /// The bitmaps of chunks.
    pub fn chunk_bitmaps(&self) -> &ChunkBitmaps {
        &self.chunks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::{Holder, MemoryShape};

    #[test]
    fn sub_blocks_are_counted() {
        // All but the first and the third.
        let bits = !0b101;
        let blocks = SubBlocks::first_of(bits).unwrap();
        assert_eq!(blocks.bits(), ((1 << 34) - 1) & bits);
        let chunk = FrameNumber::new(2048);
        let at = |place| blocks.frame_of(chunk, place).map(|frame| frame.raw() - 2048);
        assert_eq!([0, 15, 16, 31, 511].map(at), [16, 31, 48, 63, 33 * 16 + 15].map(Some));
        assert_eq!(at(512), None);
        assert_eq!(SubBlocks::first_of(u64::MAX >> 33), None);
        assert_eq!(SubBlocks::first_of(u64::MAX << 32).unwrap().bits(), u64::MAX << 32);
        // Counted as anybody would.
        let by_hand: Vec<u64> = (0..64).filter(|number| blocks.bits() >> number & 1 == 1).collect();
        assert_eq!(blocks.iter().collect::<Vec<_>>(), by_hand);
        for place in 0..512u64 {
            let wanted = by_hand[(place / 16) as usize] * 16 + place % 16;
            assert_eq!(at(place), Some(wanted));
        }
    }

    #[test]
    fn bitmaps_take_eight_bytes_a_chunk_of_the_end_of_memory() {
        let mut frames = Frames::new(MemoryShape::new(3 << 20, Order::LINUX).unwrap());
        frames.reserve_chunk_bitmaps();
        frames.reserve_chunk_bitmaps();
        assert_eq!(frames.used_frames(Holder::HoleBitmap), 6);
        frames.reserve_hole_bitmaps();
        assert_eq!(frames.used_frames(Holder::HoleBitmap), 6 + 96);
        let at = |frame| frames.chunk_bitmaps().place_of(FrameNumber::new(frame)).raw();
        assert_eq!(at(0), ((3 << 20) - 6) << 12);
        assert_eq!(at(3 << 10), at(0) + 24);
        assert_eq!(frames.check(), Ok(()));
    }
}
