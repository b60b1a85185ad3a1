//! A buddy allocator as a set of free blocks.

use std::collections::BTreeSet;

use octavo_types::FrameNumber;

/// Free memory as a set of blocks, written after Guvenilir and Patt, ISCA 2020,
/// Section II-B, "Buddy Memory Allocation".
#[derive(Clone, Debug)]
pub struct NaiveBuddy {
    /// The order and the first frame of each free block.
    free: BTreeSet<(u8, u64)>,
    frames: u64,
    largest: u8,
    /// The first frame of each memory tier but the first.
    tiers: Vec<u64>,
}

impl NaiveBuddy {
    /// Memory of `frames` frames, all of them free, with blocks of up to `2^largest` frames.
    pub fn new(frames: u64, largest: u8) -> Self {
        let mut buddy = NaiveBuddy { free: BTreeSet::new(), frames, largest, tiers: Vec::new() };
        // Frames are freed one by one; `free` merges them.
        for frame in 0..frames {
            buddy.free(FrameNumber::new(frame), 0);
        }
        buddy
    }

    /// Sets the first frame of each memory tier but the first.
    pub fn with_tiers(self, tiers: Vec<u64>) -> Self {
        NaiveBuddy { tiers, ..self }
    }

    /// The free blocks by address: first frame and order.
    pub fn blocks(&self) -> Vec<(FrameNumber, u8)> {
        let mut blocks: Vec<_> =
            self.free.iter().map(|&(order, frame)| (FrameNumber::new(frame), order)).collect();
        blocks.sort();
        blocks
    }

    /// Allocates a block of `order`: in the first tier that has a free block of at least `order`, splits the lowest
    /// block of the smallest such order.
    pub fn allocate(&mut self, order: u8) -> Option<FrameNumber> {
        let tier = |frame: u64| self.tiers.iter().filter(|start| **start <= frame).count();
        let large = self.free.iter().filter(|(at, _)| *at >= order);
        let &(mut split, frame) = large.min_by_key(|(at, frame)| (tier(*frame), *at, *frame))?;
        self.free.remove(&(split, frame));
        while split > order {
            split -= 1;
            self.free.insert((split, frame + (1 << split)));
        }
        Some(FrameNumber::new(frame))
    }

    /// Allocates the block of `order` at `frame`, if all of it is free. Returns whether it was.
    pub fn allocate_at(&mut self, frame: FrameNumber, order: u8) -> bool {
        let frame = frame.raw();
        let Some((mut split, mut start)) = self.block_around(frame, order) else { return false };
        self.free.remove(&(split, start));
        while split > order {
            split -= 1;
            let upper = start + (1 << split);
            if frame >= upper {
                self.free.insert((split, start));
                start = upper;
            } else {
                self.free.insert((split, upper));
            }
        }
        true
    }

    /// Frees a block, and merges buddies.
    pub fn free(&mut self, frame: FrameNumber, order: u8) {
        let (mut frame, mut order) = (frame.raw(), order);
        while order < self.largest && self.free.remove(&(order, frame ^ (1 << order))) {
            frame &= !(1 << order);
            order += 1;
        }
        self.free.insert((order, frame));
    }

    /// Whether all of the block of `order` at `frame` is free.
    pub fn is_free(&self, frame: FrameNumber, order: u8) -> bool {
        self.block_around(frame.raw(), order).is_some()
    }

    /// The free block of at least `order` that begins at or before `frame` and ends after it;
    /// none for a frame where no block of `order` can begin.
    fn block_around(&self, frame: u64, order: u8) -> Option<(u8, u64)> {
        if !frame.is_multiple_of(1 << order) {
            return None;
        }
        let around =
            |&&(at, start): &&(u8, u64)| at >= order && start <= frame && frame < start + (1 << at);
        self.free.iter().find(around).copied()
    }

    /// Checks the invariants of the free blocks.
    ///
    /// # Panics
    ///
    /// If two blocks overlap, a block is not aligned or not in memory, or two free buddies are not merged.
    pub fn assert_sound(&self) {
        let mut end = 0;
        for (frame, order) in self.blocks() {
            let frame = frame.raw();
            assert!(order <= self.largest, "no larger than the largest");
            assert!(frame >= end, "disjoint");
            assert!(frame.is_multiple_of(1 << order), "aligned");
            end = frame + (1 << order);
            assert!(end <= self.frames, "in memory");
            let buddy = (order, frame ^ (1 << order));
            assert!(order == self.largest || !self.free.contains(&buddy), "merged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The free blocks of eight frames after each of a few steps, with blocks of up to four frames.
    #[test]
    fn buddy_of_eight_frames_by_hand() {
        let mut buddy = NaiveBuddy::new(8, 2);
        let free = |buddy: &NaiveBuddy| {
            buddy.assert_sound();
            buddy
                .blocks()
                .into_iter()
                .map(|(frame, order)| (frame.raw(), order))
                .collect::<Vec<_>>()
        };
        assert_eq!(free(&buddy), [(0, 2), (4, 2)]);
        assert_eq!(buddy.allocate(0), Some(FrameNumber::new(0)));
        assert_eq!(free(&buddy), [(1, 0), (2, 1), (4, 2)]);
        assert_eq!(buddy.allocate(1), Some(FrameNumber::new(2)));
        assert_eq!(free(&buddy), [(1, 0), (4, 2)]);
        assert!(!buddy.allocate_at(FrameNumber::new(0), 0));
        assert!(buddy.allocate_at(FrameNumber::new(6), 0));
        assert_eq!(free(&buddy), [(1, 0), (4, 1), (7, 0)]);
        assert_eq!(buddy.allocate(2), None);
        assert_eq!(buddy.allocate(0), Some(FrameNumber::new(1)));
        buddy.free(FrameNumber::new(6), 0);
        assert_eq!(free(&buddy), [(4, 2)]);
        buddy.free(FrameNumber::new(0), 1); // 0 and 1 were allocated one by one, and are freed together
        buddy.free(FrameNumber::new(2), 1);
        assert_eq!(free(&buddy), [(0, 2), (4, 2)]);
    }
}
