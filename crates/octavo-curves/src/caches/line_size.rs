//! Sizes of cache lines.

use octavo_types::PageSize;

/// The bytes of a cache line: a power of two from 16 to 4096.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LineSize {
    log2: u8,
}

impl LineSize {
    /// The smallest size.
    pub const LEAST_BYTES: u64 = 16;
    /// The largest size: a base page.
    pub const MOST_BYTES: u64 = PageSize::BASE.bytes();

    /// Lines of `bytes` bytes, if that is a valid size.
    pub fn new(bytes: u64) -> Option<Self> {
        let is_valid =
            bytes.is_power_of_two() && (Self::LEAST_BYTES..=Self::MOST_BYTES).contains(&bytes);
        is_valid.then(|| LineSize { log2: bytes.ilog2() as u8 })
    }

    /// The size in bytes.
    pub fn bytes(self) -> u64 {
        1 << self.log2
    }

    /// log2 of the size in bytes.
    #[inline(always)]
    pub fn log2(self) -> u8 {
        self.log2
    }

    /// log2 of the number of lines in a base page.
    #[inline(always)]
    pub fn in_page_log2(self) -> u8 {
        PageSize::BASE.log2() - self.log2
    }
}
