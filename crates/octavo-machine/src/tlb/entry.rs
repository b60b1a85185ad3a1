//! TLB entries and the translations they give.

use std::fmt::Debug;

use octavo_os::page_table::Leaf;
use octavo_types::{FrameNumber, PageNumber, PageSize};

use super::array::{EntryArray, PageArray};

/// The format of the entries of a TLB level. An entry translates a page. A format may let an entry also cover
/// neighbours of a base page, or let arrays hold entries of another kind beside those of pages.
pub trait Entry: Copy + Default + Debug + Send + 'static {
    /// The arrays that hold such entries, which look them up and merge them.
    type Array: EntryArray<Self>;

    /// The entry of a page, or of a part of one.
    fn of_page(page: TlbEntry) -> Self;

    /// The page, or the part of one, that holds the base page of the look-up.
    fn page(self) -> TlbEntry;

    /// The entry with the same neighbours and another page.
    fn with_page(self, page: TlbEntry) -> Self;
}

impl Entry for TlbEntry {
    type Array = PageArray<TlbEntry>;

    #[inline(always)]
    fn of_page(page: TlbEntry) -> Self {
        page
    }

    #[inline(always)]
    fn page(self) -> TlbEntry {
        self
    }

    #[inline(always)]
    fn with_page(self, page: TlbEntry) -> Self {
        page
    }
}

/// The entry of a page, in one word: frame of the page or part, size of the whole page, permissions that need
/// no page walk, and [spare bits](TlbEntry::spare).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TlbEntry(u64);

const WRITABLE: u64 = 1;
const DIRTY: u64 = 2;
const ORDER_SHIFT: u32 = 2;
const ORDER_MASK: u64 = 31;
const SPARE_SHIFT: u32 = 7;
const SPARE_MASK: u64 = ((1 << TlbEntry::SPARE_BITS) - 1) << SPARE_SHIFT;
const FRAME_SHIFT: u32 = SPARE_SHIFT + TlbEntry::SPARE_BITS;

impl TlbEntry {
    /// Number of spare bits.
    pub const SPARE_BITS: u32 = 6;

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

    /// The word of the entry.
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// The entry with this word.
    pub const fn from_bits(bits: u64) -> Self {
        TlbEntry(bits)
    }

    /// The bits that an [`Entry`] format may use for what it adds to a page; 0 in a page alone.
    #[inline(always)]
    pub const fn spare(self) -> u64 {
        (self.0 & SPARE_MASK) >> SPARE_SHIFT
    }

    /// The entry with other spare bits, at most [`TlbEntry::SPARE_BITS`].
    #[inline(always)]
    pub const fn with_spare(self, bits: u64) -> Self {
        debug_assert!(bits >> TlbEntry::SPARE_BITS == 0);
        TlbEntry(self.0 & !SPARE_MASK | bits << SPARE_SHIFT)
    }

    /// The lowest frame bits, which a page of `size` leaves unused. A design may store data about the page there.
    #[inline(always)]
    pub const fn low_bits(self, size: PageSize) -> u64 {
        self.frame().raw() & ((1 << size.base_shift()) - 1)
    }

    /// The entry of a page of `size` with other lowest frame bits. They must be masked to get the page's frame.
    #[inline(always)]
    pub const fn with_low_bits(self, size: PageSize, bits: u64) -> Self {
        debug_assert!(bits >> size.base_shift() == 0);
        let frame = self.frame().raw() >> size.base_shift() << size.base_shift() | bits;
        self.at(FrameNumber::new(frame))
    }

    /// The entry with its dirty bit set.
    #[inline(always)]
    pub const fn dirtied(self) -> Self {
        TlbEntry(self.0 | DIRTY)
    }

    /// The entry with another frame.
    #[inline(always)]
    pub(crate) const fn at(self, frame: FrameNumber) -> Self {
        TlbEntry(frame.raw() << FRAME_SHIFT | self.0 & ((1 << FRAME_SHIFT) - 1))
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
pub struct Translation<E = TlbEntry> {
    /// The size of the page or part.
    pub size: PageSize,
    /// Its entry.
    pub entry: E,
}

impl<E: Entry> Translation<E> {
    /// The page or part alone, without the neighbours that its entry covers.
    #[inline(always)]
    pub fn page(&self) -> Translation {
        Translation { size: self.size, entry: self.entry.page() }
    }

    /// The page with its entry in another format.
    #[inline(always)]
    pub fn in_format<F: From<E>>(self) -> Translation<F> {
        Translation { size: self.size, entry: F::from(self.entry) }
    }

    /// The base frame of one of its base pages.
    #[inline(always)]
    pub fn frame_of(&self, page: PageNumber) -> FrameNumber {
        self.entry.page().frame().plus(page.raw() & ((1 << self.size.base_shift()) - 1))
    }

    /// The part of smaller size that holds a base page.
    pub fn part(&self, page: PageNumber, size: PageSize) -> Translation<E> {
        let first = page.raw() >> size.base_shift() << size.base_shift();
        let frame = self.frame_of(PageNumber::new(first));
        Translation { size, entry: self.entry.with_page(self.entry.page().at(frame)) }
    }

    /// The whole page that this may be a part of. Pages are aligned to their size.
    pub fn whole(&self) -> Translation<E> {
        let page = self.entry.page();
        let order = (page.0 >> ORDER_SHIFT & ORDER_MASK) as u8;
        let size = PageSize::from_log2(order + PageSize::BASE.log2()).expect("an order of a size");
        let first = page.frame().raw() >> order << order;
        Translation { size, entry: self.entry.with_page(page.at(FrameNumber::new(first))) }
    }
}

impl Translation {
    /// The translation of a page-table leaf.
    pub fn of(leaf: &Leaf, is_dirty: bool) -> Self {
        let entry = TlbEntry::new(leaf.frame, leaf.size, leaf.rights.write, is_dirty);
        Translation { size: leaf.size, entry }
    }
}
