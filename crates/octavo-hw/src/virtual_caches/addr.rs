//! Addresses that index and tag virtual caches.

/// A global virtual address: the result of segment translation, common to all processes (Jacob and Mudge,
/// HPCA 1997, Figure 2).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct GlobalAddr(u64);

impl GlobalAddr {
    /// The address `raw`.
    #[inline(always)]
    pub const fn new(raw: u64) -> Self {
        GlobalAddr(raw)
    }

    /// Its value.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The address `bytes` further.
    #[inline(always)]
    pub const fn plus(self, bytes: u64) -> Self {
        GlobalAddr(self.0 + bytes)
    }

    /// The number of its line of 2^`line_log2` bytes.
    #[inline(always)]
    pub(super) const fn line(self, line_log2: u32) -> u64 {
        self.0 >> line_log2
    }

    /// The first address of a line.
    #[inline(always)]
    pub(super) const fn of_line(line: u64, line_log2: u32) -> Self {
        GlobalAddr(line << line_log2)
    }
}
