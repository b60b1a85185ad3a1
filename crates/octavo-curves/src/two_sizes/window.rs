//! The blocks in one window, and the working set that follows from them.

use super::wheel::Wheel;

/// The last T references, with chunks that are large pages while enough of their blocks are
/// referenced in them. Times are references, counted from 1.
pub struct Window {
    /// T.
    pub window_refs: u64,
    wheel: Wheel,
    threshold_blocks: u32,
    small_bytes: u64,
    large_bytes: u64,
    /// By chunk: how many of its blocks are in the window.
    blocks: Vec<u32>,
    /// The bytes of the working set, since when, and their sum over the references before.
    bytes: u64,
    since: u64,
    byte_refs: u128,
}

/// A block leaves the window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Leaving {
    /// When.
    pub time: u64,
    /// Its chunk.
    pub chunk: u32,
    /// Whether too few of the chunk's blocks are left for a large page, and just enough were before.
    pub falls_below: bool,
}

impl Window {
    /// An empty window; the sizes are in bytes.
    pub fn new(
        window_refs: u64,
        threshold_blocks: u32,
        small_bytes: u64,
        large_bytes: u64,
    ) -> Self {
        Window {
            window_refs,
            wheel: Wheel::new(window_refs),
            threshold_blocks,
            small_bytes,
            large_bytes,
            blocks: Vec::new(),
            bytes: 0,
            since: 1,
            byte_refs: 0,
        }
    }

    /// Makes room for so many blocks and chunks.
    pub fn make_room(&mut self, blocks: usize, chunks: usize) {
        self.wheel.make_room(blocks);
        self.blocks.resize(chunks, 0);
    }

    /// Nothing leaves before this time.
    pub fn next_event(&self) -> u64 {
        self.wheel.next_event()
    }

    /// Whether enough of a chunk's blocks are in the window for a large page.
    #[inline(always)]
    pub fn is_large(&self, chunk: u32) -> bool {
        self.blocks[chunk as usize] >= self.threshold_blocks
    }

    /// A block that is not in the window is referenced at `now`.
    pub fn enter(&mut self, block: u32, chunk: u32, now: u64) {
        self.wheel.enter(block, now);
        self.change(chunk, self.blocks[chunk as usize] + 1, now);
    }

    /// Removes the next block that leaves up to `until`: see [`Wheel::pop`].
    #[inline]
    pub fn leave(&mut self, until: u64, last: &[u64], chunks: &[u32]) -> Option<Leaving> {
        let (time, block) = self.wheel.pop(until, last)?;
        let chunk = chunks[block as usize];
        let blocks = self.blocks[chunk as usize];
        self.change(chunk, blocks - 1, time);
        Some(Leaving { time, chunk, falls_below: blocks == self.threshold_blocks })
    }

    fn change(&mut self, chunk: u32, blocks: u32, now: u64) {
        self.byte_refs += u128::from(self.bytes) * u128::from(now - self.since);
        self.since = now;
        let before = std::mem::replace(&mut self.blocks[chunk as usize], blocks);
        self.bytes = self.bytes + self.chunk_bytes(blocks) - self.chunk_bytes(before);
    }

    /// What a chunk with so many blocks in the window has in the working set.
    fn chunk_bytes(&self, blocks: u32) -> u64 {
        if blocks >= self.threshold_blocks {
            self.large_bytes
        } else {
            u64::from(blocks) * self.small_bytes
        }
    }

    /// The bytes of the working set, summed over `refs` references.
    pub fn byte_refs(&self, refs: u64) -> u128 {
        self.byte_refs + u128::from(self.bytes) * u128::from((refs + 1).saturating_sub(self.since))
    }
}
