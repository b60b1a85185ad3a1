//! Addresses that virtual caches are indexed and tagged with.

/// A global virtual address: what is left of a program's address once its segment register has been
/// asked, the same for all processes (Jacob and Mudge, HPCA 1997, Figure 2).
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

    /// So many bytes further.
    #[inline(always)]
    pub const fn plus(self, bytes: u64) -> Self {
        GlobalAddr(self.0 + bytes)
    }

    /// The number of its line, of lines of 2^`line_log2` bytes.
    #[inline(always)]
    pub(super) const fn line(self, line_log2: u32) -> u64 {
        self.0 >> line_log2
    }

    /// Where a line begins.
    #[inline(always)]
    pub(super) const fn of_line(line: u64, line_log2: u32) -> Self {
        GlobalAddr(line << line_log2)
    }
}
