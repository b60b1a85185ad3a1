//! Coverage: how much of free memory each page size could use (Guvenilir and Patt, ISCA 2020, Figure 15).

use super::buddy::Buddy;
use super::order::Order;

/// By order: the number of free frames in free aligned blocks of that size, which pages of that size alone
/// could use. All free frames at order 0, by definition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Coverage {
    free_frames: u64,
    usable_frames: [Option<u64>; Order::COUNT],
}

impl Coverage {
    /// The coverage of a memory, including blocks above the allocator's largest order: adjacent free blocks
    /// of its largest order.
    pub fn of(buddy: &Buddy) -> Self {
        let largest = buddy.largest();
        let mut coverage = Coverage::of_blocks(|order| buddy.free_blocks(order), largest);
        // Block numbers at the current order; two free halves form the next larger block.
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

    /// The coverage of free blocks by order up to `largest`, as in `/proc/buddyinfo`; unknown for larger
    /// orders.
    pub fn of_blocks(free_blocks: impl Fn(Order) -> u64, largest: Order) -> Self {
        let mut usable_frames = [None; Order::COUNT];
        let mut frames = 0;
        for order in largest.and_smaller().rev() {
            frames += free_blocks(order) * order.frames();
            usable_frames[order.index()] = Some(frames);
        }
        Coverage { free_frames: frames, usable_frames }
    }

    /// Number of free frames.
    pub fn free_frames(&self) -> u64 {
        self.free_frames
    }

    /// Free frames that blocks of `order` could use; `None` if unknown.
    pub fn usable_frames(&self, order: Order) -> Option<u64> {
        self.usable_frames[order.index()]
    }

    /// The share of free memory that blocks of `order` could use, 0 to 1; `None` if unknown or if no frame is
    /// free.
    pub fn share(&self, order: Order) -> Option<f64> {
        let usable = self.usable_frames(order)?;
        (self.free_frames > 0).then(|| usable as f64 / self.free_frames as f64)
    }
}
