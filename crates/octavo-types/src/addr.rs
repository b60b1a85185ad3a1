//! Virtual addresses and ranges of them.

use std::fmt;

use bytemuck::{Pod, Zeroable};

use crate::page::{PageNumber, PageSize};

/// A virtual address of the traced program.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Pod, Zeroable)]
#[repr(transparent)]
pub struct VirtAddr(u64);

impl VirtAddr {
    /// Address 0, which no user program maps: a guarded item that did not execute carries it.
    pub const NULL: VirtAddr = VirtAddr(0);

    /// The address whose numeric value is `raw`.
    #[inline(always)]
    pub const fn new(raw: u64) -> Self {
        VirtAddr(raw)
    }

    /// The numeric value.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The page of `size` that holds this address.
    #[inline(always)]
    pub const fn page(self, size: PageSize) -> PageNumber {
        PageNumber::new(self.0 >> size.log2())
    }

    /// This address moved by `delta_bytes`, wrapping as the machine's own arithmetic does.
    #[inline(always)]
    pub const fn wrapping_add(self, delta_bytes: u64) -> Self {
        VirtAddr(self.0.wrapping_add(delta_bytes))
    }

    /// Views raw 64-bit words, as a tracer writes them, as addresses, without copying.
    #[inline(always)]
    pub fn slice_from_raw(words: &[u64]) -> &[VirtAddr] {
        bytemuck::cast_slice(words)
    }

    /// Views addresses as raw 64-bit words, without copying.
    #[inline(always)]
    pub fn slice_to_raw(addresses: &[VirtAddr]) -> &[u64] {
        bytemuck::cast_slice(addresses)
    }
}

/// A physical address.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct PhysAddr(u64);

impl PhysAddr {
    /// The address whose numeric value is `raw`.
    pub const fn new(raw: u64) -> Self {
        PhysAddr(raw)
    }

    /// The numeric value.
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// The base frame that holds this address.
    pub const fn frame(self) -> FrameNumber {
        FrameNumber::new(self.0 >> PageSize::BASE.log2())
    }
}

/// A base frame of physical memory: a physical address shifted right by the logarithm of the base
/// page size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
#[repr(transparent)]
pub struct FrameNumber(u64);

impl FrameNumber {
    /// The frame whose number is `raw`.
    #[inline(always)]
    pub const fn new(raw: u64) -> Self {
        FrameNumber(raw)
    }

    /// The number itself.
    #[inline(always)]
    pub const fn raw(self) -> u64 {
        self.0
    }

    /// Its first address.
    #[inline(always)]
    pub const fn start(self) -> PhysAddr {
        PhysAddr::new(self.0 << PageSize::BASE.log2())
    }

    /// The frame `frames` after this one.
    #[inline(always)]
    pub const fn plus(self, frames: u64) -> Self {
        FrameNumber(self.0 + frames)
    }
}

impl fmt::Debug for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for VirtAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// The half-open range of addresses `[start, start + bytes)`. Never wraps past the top.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddrRange {
    start: VirtAddr,
    bytes: u64,
}

impl fmt::Display for AddrRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}-{:#x}", self.start().raw(), self.end().raw())
    }
}

impl AddrRange {
    /// The range of `bytes` from `start`; one that would pass 2^64 is cut there.
    pub const fn new(start: VirtAddr, bytes: u64) -> Self {
        let room = u64::MAX - start.raw();
        AddrRange { start, bytes: if bytes > room { room } else { bytes } }
    }

    /// Its first address.
    pub const fn start(self) -> VirtAddr {
        self.start
    }

    /// The first address past it.
    pub const fn end(self) -> VirtAddr {
        VirtAddr(self.start.0 + self.bytes)
    }

    /// Its length.
    pub const fn bytes(self) -> u64 {
        self.bytes
    }

    /// Whether it holds no address at all.
    pub const fn is_empty(self) -> bool {
        self.bytes == 0
    }

    /// Whether `addr` lies inside.
    pub const fn contains(self, addr: VirtAddr) -> bool {
        addr.0 >= self.start.0 && addr.0 - self.start.0 < self.bytes
    }

    /// The same range widened outwards to whole pages of `size`.
    pub const fn widened_to(self, size: PageSize) -> Self {
        let mask = size.bytes() - 1;
        let start = self.start.0 & !mask;
        let end = match self.end().0.checked_add(mask) {
            Some(end) => end & !mask,
            None => !mask,
        };
        AddrRange { start: VirtAddr(start), bytes: end - start }
    }
}
