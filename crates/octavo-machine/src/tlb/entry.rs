//! TLB entries and the translations they give.

mod gapped;
mod perforated;

use octavo_os::page_table::Leaf;
use octavo_types::{FrameNumber, PageNumber, PageSize};

/// The payload of a TLB entry, in one word: frame of the page or part, size of the whole page, permissions
/// that need no page walk, and the length of the run of neighbours that continue it (for designs that
/// coalesce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlbEntry(u64);

const WRITABLE: u64 = 1;
const DIRTY: u64 = 2;
const ORDER_SHIFT: u32 = 2;
const ORDER_MASK: u64 = 31;
const BEFORE_SHIFT: u32 = 7;
const AFTER_SHIFT: u32 = 10;
/// Mask of the run length on either side.
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

    /// An entry that holds 32 bits of a hole bitmap instead of a page.
    pub(super) const fn of_bits(bits: u32) -> Self {
        TlbEntry(bits as u64)
    }

    /// The bits of such an entry.
    pub(super) const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// The entry with another frame.
    pub(super) const fn at(self, frame: FrameNumber) -> Self {
        TlbEntry(frame.raw() << FRAME_SHIFT | self.0 & ((1 << FRAME_SHIFT) - 1))
    }

    /// The entry of a base page with `before` and `after` neighbours, at most 7, that continue it.
    pub(super) const fn in_run(self, before: u64, after: u64) -> Self {
        let others = !(RUN_MASK << BEFORE_SHIFT | RUN_MASK << AFTER_SHIFT);
        TlbEntry(self.0 & others | before << BEFORE_SHIFT | after << AFTER_SHIFT)
    }

    /// The number of base pages before and after it that continue it: contiguous in memory as in the address
    /// space, with equal permissions.
    #[inline(always)]
    pub const fn run(self) -> (u64, u64) {
        (self.0 >> BEFORE_SHIFT & RUN_MASK, self.0 >> AFTER_SHIFT & RUN_MASK)
    }

    /// The first base frame.
    #[inline(always)]
    pub const fn frame(self) -> FrameNumber {
        FrameNumber::new(self.0 >> FRAME_SHIFT)
    }

    /// Whether stores are allowed.
    #[inline(always)]
    pub const fn is_writable(self) -> bool {
        self.0 & WRITABLE != 0
    }

    /// Whether the dirty bit of the page-table entry is set.
    #[inline(always)]
    pub const fn is_dirty(self) -> bool {
        self.0 & DIRTY != 0
    }

    /// Whether the entry permits the access without a page walk. A store needs a writable and dirty page.
    #[inline(always)]
    pub const fn permits(self, stores: bool) -> bool {
        // Branch-free, since stores are hard to predict.
        let needed = if stores { WRITABLE | DIRTY } else { 0 };
        self.0 & needed == needed
    }
}

/// The translation of a base page, as a TLB holds it: the page, or part of a page, that contains it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Translation {
    /// The size of the page or part.
    pub size: PageSize,
    /// Its first frame, permissions and run.
    pub entry: TlbEntry,
}

impl Translation {
    /// A placeholder.
    pub(super) const NOTHING: Translation =
        Translation { size: PageSize::BASE, entry: TlbEntry(0) };

    /// The translation of a page-table leaf.
    pub fn of(leaf: &Leaf, is_dirty: bool) -> Self {
        let entry = TlbEntry::new(leaf.frame, leaf.size, leaf.rights.write, is_dirty);
        Translation { size: leaf.size, entry }
    }

    /// The base frame of one of its base pages.
    #[inline(always)]
    pub fn frame_of(&self, page: PageNumber) -> FrameNumber {
        self.entry.frame().plus(page.raw() & ((1 << self.size.base_shift()) - 1))
    }

    /// The part of smaller size that holds a base page.
    pub fn part(&self, page: PageNumber, size: PageSize) -> Translation {
        let first = page.raw() >> size.base_shift() << size.base_shift();
        let frame = self.frame_of(PageNumber::new(first));
        Translation { size, entry: self.entry.at(frame) }
    }

    /// This base page as part of a [run](TlbEntry::run) with `before` and `after` neighbours.
    pub fn in_run(&self, before: u64, after: u64) -> Translation {
        Translation { entry: self.entry.in_run(before, after), ..*self }
    }

    /// This page with its run cut to the aligned group of 2^`group_log2` base pages.
    pub fn in_group(&self, page: PageNumber, group_log2: u8) -> Translation {
        let (before, after) = self.entry.run();
        let last = (1 << group_log2) - 1;
        let at = page.raw() & last;
        self.in_run(before.min(at), after.min(last - at))
    }

    /// The page at position `number` of the run that this page begins.
    #[inline(always)]
    pub(super) fn following(&self, number: u64) -> Translation {
        let (before, after) = self.entry.run();
        let entry = self.entry.at(self.entry.frame().plus(number));
        Translation { entry: entry.in_run(before + number, after - number), ..*self }
    }

    /// The first page of its run: its distance in pages, and its translation.
    pub(super) fn first_of_run(&self) -> (u64, Translation) {
        let (before, after) = self.entry.run();
        let entry = self.entry.at(FrameNumber::new(self.entry.frame().raw() - before));
        (before, Translation { entry: entry.in_run(0, before + after), ..*self })
    }

    /// The whole page that this may be a part of. Pages are aligned to their size.
    pub fn whole(&self) -> Translation {
        let order = (self.entry.0 >> ORDER_SHIFT & ORDER_MASK) as u8;
        let size = PageSize::from_log2(order + PageSize::BASE.log2()).expect("an order of a size");
        let first = self.entry.frame().raw() >> order << order;
        Translation { size, entry: self.entry.at(FrameNumber::new(first)) }
    }
}
