//! Orders: block sizes as powers of two base frames.

use std::fmt;

use octavo_types::{FrameNumber, PageSize};

/// The size of a block: `2^order` base frames, aligned to its own size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Order(u8);

impl Order {
    /// One base frame.
    pub const BASE: Order = Order(0);
    /// 2 MiB.
    pub const HUGE: Order = Order(9);
    /// 4 MiB, the largest block of Linux's allocator on x86-64 (`MAX_PAGE_ORDER`).
    pub const LINUX: Order = Order(10);
    /// 1 GiB, the largest supported block.
    pub const LARGEST: Order = Order(18);
    /// Number of orders.
    pub const COUNT: usize = 19;

    /// The order `raw`, or `None` above 18.
    pub const fn new(raw: u8) -> Option<Self> {
        if raw <= Self::LARGEST.0 { Some(Order(raw)) } else { None }
    }

    /// The order whose blocks are as large as pages of `size`.
    pub const fn of(size: PageSize) -> Self {
        Order(size.base_shift())
    }

    /// The order as a number.
    #[inline(always)]
    pub const fn raw(self) -> u8 {
        self.0
    }

    /// The order as an index of an array of [`Order::COUNT`].
    #[inline(always)]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// Base frames in a block.
    #[inline(always)]
    pub const fn frames(self) -> u64 {
        1 << self.0
    }

    /// The page size of a block.
    pub const fn page_size(self) -> PageSize {
        PageSize::from_log2(self.0 + PageSize::BASE.log2()).expect("4 KiB to 1 GiB")
    }

    /// All orders, from one frame up.
    pub fn all() -> impl DoubleEndedIterator<Item = Order> + Clone {
        Order::LARGEST.and_smaller()
    }

    /// The orders from one frame up to this.
    pub fn and_smaller(self) -> impl DoubleEndedIterator<Item = Order> + Clone {
        (0..=self.0).map(Order)
    }

    /// Whether a block of this order may begin at `frame`.
    #[inline(always)]
    pub const fn is_aligned(self, frame: FrameNumber) -> bool {
        frame.raw() & (self.frames() - 1) == 0
    }

    /// The first frame of the block of this order that holds `frame`.
    #[inline(always)]
    pub const fn align_down(self, frame: FrameNumber) -> FrameNumber {
        FrameNumber::new(frame.raw() & !(self.frames() - 1))
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order {}", self.0)
    }
}

/// Splits `frames` frames from `start` into the fewest blocks of at most `largest`, in order of address.
pub fn blocks_of(
    start: FrameNumber,
    frames: u64,
    largest: Order,
) -> impl Iterator<Item = (FrameNumber, Order)> {
    let mut at = start.raw();
    let end = at + frames;
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let fitting = (end - at).ilog2() as u8;
        let aligned = at.trailing_zeros() as u8;
        let order = Order(fitting.min(aligned).min(largest.0));
        let block = FrameNumber::new(at);
        at += order.frames();
        Some((block, order))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_match_page_sizes() {
        assert_eq!(Order::all().count(), Order::COUNT);
        for order in Order::all() {
            assert_eq!(Order::of(order.page_size()), order);
            assert_eq!(order.page_size().bytes(), order.frames() * PageSize::BASE.bytes());
        }
        assert_eq!(Order::HUGE.page_size(), PageSize::HUGE);
        assert_eq!(Order::new(18), Some(Order::LARGEST));
        assert_eq!(Order::new(19), None);
    }

    #[test]
    fn blocks_split_a_range_at_alignment_boundaries() {
        let cut = |start, frames, largest| {
            let blocks = blocks_of(FrameNumber::new(start), frames, Order(largest));
            blocks.map(|(block, order)| (block.raw(), order.raw())).collect::<Vec<_>>()
        };
        assert_eq!(cut(0, 0, 18), []);
        assert_eq!(cut(3, 10, 18), [(3, 0), (4, 2), (8, 2), (12, 0)]);
        assert_eq!(cut(0, 10, 1), [(0, 1), (2, 1), (4, 1), (6, 1), (8, 1)]);
        assert_eq!(cut(1 << 40, (1 << 18) + 1, 18), [(1 << 40, 18), ((1 << 40) + (1 << 18), 0)]);
    }
}
