//! What a TLB holds of a page.

use octavo_os::page_table::Leaf;
use octavo_types::{FrameNumber, PageNumber, PageSize};

/// A page's frame, and what may be done with it without asking the page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Value(u64);

const WRITABLE: u64 = 1;
const DIRTY: u64 = 2;
const FLAG_BITS: u32 = 2;

impl Value {
    /// A page whose first base frame is `frame`.
    pub const fn new(frame: FrameNumber, is_writable: bool, is_dirty: bool) -> Self {
        let writable = if is_writable { WRITABLE } else { 0 };
        Value(frame.raw() << FLAG_BITS | writable | if is_dirty { DIRTY } else { 0 })
    }

    /// Its first base frame.
    #[inline(always)]
    pub const fn frame(self) -> FrameNumber {
        FrameNumber::new(self.0 >> FLAG_BITS)
    }

    /// Whether stores are allowed.
    #[inline(always)]
    pub const fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// Whether the page table knows that it was stored to.
    #[inline(always)]
    pub const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether a reference needs nothing more: a store needs both.
    #[inline(always)]
    pub const fn serves(self, stores: bool) -> bool {
        !stores || self.0 & (WRITABLE | DIRTY) == WRITABLE | DIRTY
    }
}

/// A page as a TLB holds it: the base page that was asked for lies in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Held {
    /// Its size.
    pub size: PageSize,
    /// Its first frame, and what may be done with it.
    pub value: Value,
}

impl Held {
    /// A page of a page table.
    pub fn of(leaf: &Leaf, is_dirty: bool) -> Self {
        Held { size: leaf.size, value: Value::new(leaf.frame, leaf.rights.write, is_dirty) }
    }

    /// The frame of one of its base pages.
    #[inline(always)]
    pub fn frame_of(&self, page: PageNumber) -> FrameNumber {
        self.value.frame().plus(page.raw() & ((1 << self.size.base_shift()) - 1))
    }

    /// The part of it that has a smaller size and holds a base page.
    pub fn part(&self, page: PageNumber, size: PageSize) -> Held {
        let first = page.raw() >> size.base_shift() << size.base_shift();
        let frame = self.frame_of(PageNumber::new(first));
        Held { size, value: Value::new(frame, self.value.is_writable(), self.value.is_dirty()) }
    }
}
