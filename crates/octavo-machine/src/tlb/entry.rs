//! What a TLB holds of a page.

use octavo_os::page_table::Leaf;
use octavo_types::{FrameNumber, PageNumber, PageSize};

/// Where a page, or a part of one, lies; how large the page is; and what may be done with it without
/// asking the page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Value(u64);

const WRITABLE: u64 = 1;
const DIRTY: u64 = 2;
const ORDER_SHIFT: u32 = 2;
const ORDER_MASK: u64 = 31;
const FRAME_SHIFT: u32 = 7;

impl Value {
    /// A page of `size` whose first base frame is `frame`.
    pub const fn new(
        frame: FrameNumber,
        size: PageSize,
        is_writable: bool,
        is_dirty: bool,
    ) -> Self {
        let writable = if is_writable { WRITABLE } else { 0 };
        let flags = writable | if is_dirty { DIRTY } else { 0 };
        Value(frame.raw() << FRAME_SHIFT | (size.base_shift() as u64) << ORDER_SHIFT | flags)
    }

    /// The same of a page at another frame.
    const fn at(self, frame: FrameNumber) -> Self {
        Value(frame.raw() << FRAME_SHIFT | self.0 & ((1 << FRAME_SHIFT) - 1))
    }

    /// Its first base frame.
    #[inline(always)]
    pub const fn frame(self) -> FrameNumber {
        FrameNumber::new(self.0 >> FRAME_SHIFT)
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
    /// No page.
    pub(super) const NOTHING: Held = Held { size: PageSize::BASE, value: Value(0) };

    /// A page of a page table.
    pub fn of(leaf: &Leaf, is_dirty: bool) -> Self {
        let value = Value::new(leaf.frame, leaf.size, leaf.rights.write, is_dirty);
        Held { size: leaf.size, value }
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
        Held { size, value: self.value.at(frame) }
    }

    /// The whole page, of which this may be a part. It lies at a multiple of its size.
    pub fn whole(&self) -> Held {
        let order = (self.value.0 >> ORDER_SHIFT & ORDER_MASK) as u8;
        let size = PageSize::from_log2(order + PageSize::BASE.log2()).expect("an order of a size");
        let first = self.value.frame().raw() >> order << order;
        Held { size, value: self.value.at(FrameNumber::new(first)) }
    }
}
