//! What a TLB holds of a page.

mod gapped;
mod perforated;

use octavo_os::page_table::Leaf;
use octavo_types::{FrameNumber, PageNumber, PageSize};

/// Where a page, or a part of one, lies; how large the page is; what may be done with it without
/// asking the page table; and how many of its neighbours continue it, which is the business of
/// designs that coalesce.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlbEntry(u64);

const WRITABLE: u64 = 1;
const DIRTY: u64 = 2;
const ORDER_SHIFT: u32 = 2;
const ORDER_MASK: u64 = 31;
const BEFORE_SHIFT: u32 = 7;
const AFTER_SHIFT: u32 = 10;
/// Of the neighbours on either side.
const RUN_MASK: u64 = 7;
const FRAME_SHIFT: u32 = 13;

impl TlbEntry {
    /// A page of `size` whose first base frame is `frame`.
    pub const fn new(
        frame: FrameNumber,
        size: PageSize,
        is_writable: bool,
        is_dirty: bool,
    ) -> Self {
        let writable = if is_writable { WRITABLE } else { 0 };
        let flags = writable | if is_dirty { DIRTY } else { 0 };
        TlbEntry(frame.raw() << FRAME_SHIFT | (size.base_shift() as u64) << ORDER_SHIFT | flags)
    }

    /// What an entry is that holds 32 bits of a bitmap, and no page.
    pub(super) const fn of_bits(bits: u32) -> Self {
        TlbEntry(bits as u64)
    }

    /// The bits of such an entry.
    pub(super) const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// The same of a page at another frame.
    pub(super) const fn at(self, frame: FrameNumber) -> Self {
        TlbEntry(frame.raw() << FRAME_SHIFT | self.0 & ((1 << FRAME_SHIFT) - 1))
    }

    /// The same of a base page that so many before it and after it continue, 7 at most.
    pub(super) const fn in_run(self, before: u64, after: u64) -> Self {
        let others = !(RUN_MASK << BEFORE_SHIFT | RUN_MASK << AFTER_SHIFT);
        TlbEntry(self.0 & others | before << BEFORE_SHIFT | after << AFTER_SHIFT)
    }

    /// How many base pages before and after it continue it: they lie in memory as they lie in the
    /// address space, and what may be done with them is the same.
    #[inline(always)]
    pub const fn run(self) -> (u64, u64) {
        (self.0 >> BEFORE_SHIFT & RUN_MASK, self.0 >> AFTER_SHIFT & RUN_MASK)
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
        // No branch on whether it stores, which is hard to foretell.
        let needed = if stores { WRITABLE | DIRTY } else { 0 };
        self.0 & needed == needed
    }
}

/// A page as a TLB holds it: the base page that was asked for lies in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// Its size.
    pub size: PageSize,
    /// Its first frame, and what may be done with it.
    pub entry: TlbEntry,
}

impl Translation {
    /// No page.
    pub(super) const NOTHING: Translation =
        Translation { size: PageSize::BASE, entry: TlbEntry(0) };

    /// A page of a page table.
    pub fn of(leaf: &Leaf, is_dirty: bool) -> Self {
        let entry = TlbEntry::new(leaf.frame, leaf.size, leaf.rights.write, is_dirty);
        Translation { size: leaf.size, entry }
    }

    /// The frame of one of its base pages.
    #[inline(always)]
    pub fn frame_of(&self, page: PageNumber) -> FrameNumber {
        self.entry.frame().plus(page.raw() & ((1 << self.size.base_shift()) - 1))
    }

    /// The part of it that has a smaller size and holds a base page.
    pub fn part(&self, page: PageNumber, size: PageSize) -> Translation {
        let first = page.raw() >> size.base_shift() << size.base_shift();
        let frame = self.frame_of(PageNumber::new(first));
        Translation { size, entry: self.entry.at(frame) }
    }

    /// This base page with so many before it and after it that [continue](Value::run) it.
    pub fn in_run(&self, before: u64, after: u64) -> Translation {
        Translation { entry: self.entry.in_run(before, after), ..*self }
    }

    /// This page with those of its run that lie in the same aligned group of 2^`group_log2` base
    /// pages.
    pub fn in_group(&self, page: PageNumber, group_log2: u8) -> Translation {
        let (before, after) = self.entry.run();
        let last = (1 << group_log2) - 1;
        let at = page.raw() & last;
        self.in_run(before.min(at), after.min(last - at))
    }

    /// Of a run that this page begins, another page.
    #[inline(always)]
    pub(super) fn following(&self, number: u64) -> Translation {
        let (before, after) = self.entry.run();
        let entry = self.entry.at(self.entry.frame().plus(number));
        Translation { entry: entry.in_run(before + number, after - number), ..*self }
    }

    /// Of the run of this page, its first page: how many pages further down it is, and what is known of it.
    pub(super) fn first_of_run(&self) -> (u64, Translation) {
        let (before, after) = self.entry.run();
        let entry = self.entry.at(FrameNumber::new(self.entry.frame().raw() - before));
        (before, Translation { entry: entry.in_run(0, before + after), ..*self })
    }

    /// The whole page, of which this may be a part. It lies at a multiple of its size.
    pub fn whole(&self) -> Translation {
        let order = (self.entry.0 >> ORDER_SHIFT & ORDER_MASK) as u8;
        let size = PageSize::from_log2(order + PageSize::BASE.log2()).expect("an order of a size");
        let first = self.entry.frame().raw() >> order << order;
        Translation { size, entry: self.entry.at(FrameNumber::new(first)) }
    }
}
