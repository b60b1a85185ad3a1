//! How much of free memory each page size could use (paper 003, Figure 15).

use super::buddy::Buddy;
use super::order::Order;

/// For each order, how many of the free frames lie in free, aligned blocks of that size: what
/// could be used if only pages of that size were allocated. All of it at order 0, by definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    free_frames: u64,
    usable_frames: [Option<u64>; Order::COUNT],
}

impl Coverage {
    /// The coverage of a memory. Blocks larger than those that the allocator merges count, too:
    /// they are free blocks of its largest order, side by side.
    pub fn of(buddy: &Buddy) -> Self {
        let largest = buddy.largest();
        let mut coverage = Coverage::of_blocks(|order| buddy.free_blocks(order), largest);
        // By its number at its order; halves that are both free make up the next larger one.
        let mut blocks: Vec<u64> =
            buddy.blocks(largest).map(|block| block.raw() >> largest.raw()).collect();
        for order in Order::all().skip(largest.index() + 1) {
            blocks = blocks
                .windows(2)
                .filter(|pair| pair[0].is_multiple_of(2) && pair[1] == pair[0] + 1)
                .map(|pair| pair[0] / 2)
                .collect();
            coverage.usable_frames[order.index()] = Some(blocks.len() as u64 * order.frames());
        }
        coverage
    }

    /// The coverage of so many free blocks of each order up to `largest`, as `/proc/buddyinfo` has
    /// them. What larger sizes could use is not known.
    pub fn of_blocks(free_blocks: impl Fn(Order) -> u64, largest: Order) -> Self {
        let mut usable_frames = [None; Order::COUNT];
        let mut frames = 0;
        for order in largest.and_smaller().rev() {
            frames += free_blocks(order) * order.frames();
            usable_frames[order.index()] = Some(frames);
        }
        Coverage { free_frames: frames, usable_frames }
    }

    /// Frames that are free.
    pub fn free_frames(&self) -> u64 {
        self.free_frames
    }

    /// Free frames that blocks of `order` could use; `None` where that is not known.
    pub fn usable_frames(&self, order: Order) -> Option<u64> {
        self.usable_frames[order.index()]
    }

    /// The share of free memory that blocks of `order` could use, 0 to 1; `None` where that is not
    /// known, or nothing is free.
    pub fn share(&self, order: Order) -> Option<f64> {
        let usable = self.usable_frames(order)?;
        (self.free_frames > 0).then(|| usable as f64 / self.free_frames as f64)
    }
}
