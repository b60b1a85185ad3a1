//! The bits of page-table entries: x86-64, with extensions for pages of intermediate sizes (powers of two that
//! are not a level's own), pages with holes and gapped pages.

use octavo_types::{FrameNumber, PageSize, Protection};

/// Address bits translated by one level.
pub const INDEX_BITS: u8 = 9;
/// Entries of a page-table node.
pub const ENTRIES: usize = 1 << INDEX_BITS;

const PRESENT: u64 = 1 << 0;
const WRITABLE: u64 = 1 << 1;
const USER: u64 = 1 << 2;
const ACCESSED: u64 = 1 << 5;
const DIRTY: u64 = 1 << 6;
/// Above the lowest level: maps a page, not a node.
const LARGE: u64 = 1 << 7;
/// A page of an intermediate size, with its size in unused frame bits (Guvenilir and Patt, ISCA 2020, `T` of
/// Figure 5).
const INTERMEDIATE: u64 = 1 << 52;
/// The four bits of an intermediate size, for the encoding that uses them.
const SIZE_SHIFT: u8 = 53;
const SIZE_MASK: u64 = 0xf << SIZE_SHIFT;
/// A page with holes, with its filter in unused frame bits.
const HOLES: u64 = 1 << 57;
/// A gapped page of 2 MiB (Park et al., ISCA 2020, Section VII-D), with the frame of its chunk.
const GAPPED: u64 = 1 << 58;
/// A page of an intermediate size with accessed and dirty vectors in its first alias.
const VECTORS: u64 = 1 << 59;
/// The contiguous hint of a base page.
const CONTIGUOUS: u64 = 1 << 60;
/// The filter of a page with holes. (The lowest of the nine free bits is already in use.)
const FILTER_SHIFT: u8 = 13;
const FILTER_MASK: u64 = 0xff << FILTER_SHIFT;
/// In a non-present entry: a hole without a page (a bit for the operating system).
const HOLE: u64 = 1 << 9;
const NO_EXECUTE: u64 = 1 << 63;
/// Bits 12 to 51.
const FRAME_MASK: u64 = ((1 << 52) - 1) & !0xfff;

/// The encoding of page sizes that x86-64 does not have (Guvenilir and Patt, ISCA 2020, section III.A.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SizeEncoding {
    /// Four reserved bits hold log2 of the page size in pages of the level's own size.
    #[default]
    FourBits,
    /// One bit marks a page of an intermediate size. The size is in the lowest frame bits, which such a page does not
    /// use: a one for each doubling after the first, then a zero.
    OneBit,
}

/// A page-table entry in its memory format.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(transparent)]
pub struct Entry(u64);

/// log2 of the page size of a level on x86-64: 4 KiB at level 1, 2 MiB at 2, 1 GiB at 3.
pub const fn level_log2(level: u8) -> u8 {
    PageSize::BASE.log2() + (level - 1) * INDEX_BITS
}

/// The level whose entries map pages of `size`: the level with the largest own size not above `size`.
pub const fn level_of(size: PageSize) -> u8 {
    1 + (size.log2() - PageSize::BASE.log2()) / INDEX_BITS
}

impl Entry {
    /// An empty entry.
    pub const NONE: Entry = Entry(0);

    /// A hole without a page, in a node of holes.
    pub const HOLE: Entry = Entry(HOLE);

    /// An entry that points to a node of the next level down.
    pub fn node(frame: FrameNumber) -> Self {
        Entry(frame.start().raw() | PRESENT | WRITABLE | USER)
    }

    /// An entry that maps a page of `size` at `frame`; for an intermediate size, the true entry or its full copy
    /// in an alias.
    pub fn page(
        frame: FrameNumber,
        size: PageSize,
        rights: Protection,
        encoding: SizeEncoding,
    ) -> Self {
        let level = level_of(size);
        let mut bits = frame.start().raw() | PRESENT | USER;
        bits |= if rights.write { WRITABLE } else { 0 };
        bits |= if rights.execute { 0 } else { NO_EXECUTE };
        bits |= if level > 1 { LARGE } else { 0 };
        let doublings = size.log2() - level_log2(level);
        if doublings > 0 {
            bits |= match encoding {
                SizeEncoding::FourBits => u64::from(doublings) << SIZE_SHIFT,
                SizeEncoding::OneBit => {
                    INTERMEDIATE | (((1 << (doublings - 1)) - 1) << level_log2(level))
                }
            };
        }
        Entry(bits)
    }

    /// Whether it maps a page or points to a node.
    #[inline(always)]
    pub fn is_present(self) -> bool {
        self.0 & PRESENT != 0
    }

    /// Whether it maps a page, given its level.
    #[inline(always)]
    pub fn is_page(self, level: u8) -> bool {
        self.is_present() && (level == 1 || self.0 & LARGE != 0)
    }

    /// The size of its page, given its level.
    pub fn size(self, level: u8) -> PageSize {
        let doublings = if self.0 & INTERMEDIATE != 0 {
            ((self.0 & FRAME_MASK) >> level_log2(level)).trailing_ones() as u8 + 1
        } else {
            ((self.0 & SIZE_MASK) >> SIZE_SHIFT) as u8
        };
        PageSize::from_log2(level_log2(level) + doublings).expect("only pages are asked")
    }

    /// The first base frame of its node or, given its level, of its page.
    pub fn frame(self, level: u8) -> FrameNumber {
        let mut bits = self.0 & FRAME_MASK;
        if self.is_page(level) {
            bits &= !(self.size(level).bytes() - 1);
        }
        FrameNumber::new(bits >> PageSize::BASE.log2())
    }

    /// The 2 MiB page as a page with holes, with this [filter](super::HoleFilter).
    pub fn with_holes(self, filter: u8) -> Self {
        Entry(self.0 & !FILTER_MASK | HOLES | u64::from(filter) << FILTER_SHIFT)
    }

    /// The page without holes.
    pub fn whole(self) -> Self {
        Entry(self.0 & !(FILTER_MASK | HOLES))
    }

    /// Whether it is a page with holes.
    #[inline(always)]
    pub fn has_holes(self) -> bool {
        self.0 & HOLES != 0
    }

    /// The filter of a page with holes.
    pub fn filter(self) -> u8 {
        ((self.0 & FILTER_MASK) >> FILTER_SHIFT) as u8
    }

    /// The entry as a gapped page, whose frame is that of its chunk.
    pub fn gapped(self) -> Self {
        Entry(self.0 | GAPPED)
    }

    /// Whether it is a gapped page.
    #[inline(always)]
    pub fn is_gapped(self) -> bool {
        self.0 & GAPPED != 0
    }

    /// The entry with or without the contiguous hint.
    pub fn with_contiguous(self, is_contiguous: bool) -> Self {
        Entry(self.0 & !CONTIGUOUS | if is_contiguous { CONTIGUOUS } else { 0 })
    }

    /// Whether it has the contiguous hint.
    #[inline(always)]
    pub fn is_contiguous(self) -> bool {
        self.0 & CONTIGUOUS != 0
    }

    /// The entry of a page of an intermediate size with vectors in its first alias.
    pub fn with_vectors(self) -> Self {
        Entry(self.0 | VECTORS)
    }

    /// Whether its first alias holds vectors.
    #[inline(always)]
    pub fn has_vectors(self) -> bool {
        self.0 & VECTORS != 0
    }

    /// An alias of this entry, which holds its size and no frame.
    pub fn alias(self, level: u8) -> Self {
        Entry(self.0 & !(alias_free(level) | ACCESSED | DIRTY))
    }

    /// The lowest 32 free bits of an alias.
    pub fn vector_bits(self, level: u8) -> u32 {
        free_bits(level).fold(0, |bits, (number, bit)| bits | ((self.0 >> bit & 1) as u32 * number))
    }

    /// The alias with these bits in its lowest 32 free bits.
    pub fn with_vector_bits(self, level: u8, bits: u32) -> Self {
        free_bits(level).fold(self, |entry, (number, bit)| {
            Entry(entry.0 & !(1 << bit) | u64::from(bits & number != 0) << bit)
        })
    }

    /// The permissions of its page.
    pub fn rights(self) -> Protection {
        let write = self.0 & WRITABLE != 0;
        Protection { read: true, write, execute: self.0 & NO_EXECUTE == 0 }
    }

    /// The accessed and dirty bits.
    pub fn used(self) -> (bool, bool) {
        (self.0 & ACCESSED != 0, self.0 & DIRTY != 0)
    }

    /// The entry with its accessed bit and, if `written`, its dirty bit set.
    pub fn marked(self, written: bool) -> Self {
        Entry(self.0 | ACCESSED | if written { DIRTY } else { 0 })
    }

    /// The entry with these accessed and dirty bits added.
    pub fn with_used(self, (accessed, dirty): (bool, bool)) -> Self {
        let bits = if accessed { ACCESSED } else { 0 } | if dirty { DIRTY } else { 0 };
        Entry(self.0 | bits)
    }

    /// The memory format.
    pub fn bits(self) -> u64 {
        self.0
    }
}

/// The free frame bits of an alias of a level: all but eight, which may encode its size.
const fn alias_free(level: u8) -> u64 {
    FRAME_MASK & !(0xff << level_log2(level))
}

/// The 32 bits of a vector, each with the free bit of an alias that holds it.
fn free_bits(level: u8) -> impl Iterator<Item = (u32, u32)> {
    let free = (0..u64::BITS).filter(move |bit| alias_free(level) >> bit & 1 != 0);
    (0..u32::BITS).map(|number| 1 << number).zip(free)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Protection = Protection { read: true, write: true, execute: false };

    #[test]
    fn entries_round_trip() {
        for encoding in [SizeEncoding::FourBits, SizeEncoding::OneBit] {
            for log2 in PageSize::BASE.log2()..=PageSize::LARGEST.log2() {
                let size = PageSize::from_log2(log2).unwrap();
                for number in [0, 1, 0x155] {
                    let frame = FrameNumber::new(number << size.base_shift());
                    let entry = Entry::page(frame, size, RW, encoding);
                    let level = level_of(size);
                    assert!(entry.is_page(level));
                    assert_eq!((entry.size(level), entry.frame(level)), (size, frame));
                    assert_eq!((entry.rights(), entry.used()), (RW, (false, false)));
                    assert_eq!(entry.marked(true).used(), (true, true));
                    assert_eq!(entry.marked(true).frame(level), frame);
                }
            }
        }
    }

    #[test]
    fn entry_with_holes_preserves_its_page() {
        for filter in [0, 1, 0x80, 0xff] {
            let frame = FrameNumber::new(0x12200);
            let plain =
                Entry::page(frame, PageSize::HUGE, RW, SizeEncoding::default()).marked(true);
            let entry = plain.with_holes(0xff).with_holes(filter);
            assert!(entry.has_holes() && entry.is_page(2) && !plain.has_holes());
            assert_eq!((entry.frame(2), entry.size(2)), (frame, PageSize::HUGE));
            assert_eq!((entry.filter(), entry.rights(), entry.used()), (filter, RW, (true, true)));
            assert_eq!(entry.whole(), plain);
        }
        assert!(!Entry::HOLE.is_present() && Entry::HOLE != Entry::NONE);
    }

    #[test]
    fn alias_holds_32_vector_bits_and_its_size() {
        for encoding in [SizeEncoding::FourBits, SizeEncoding::OneBit] {
            for log2 in (13..=20).chain(22..=29) {
                let size = PageSize::from_log2(log2).unwrap();
                let (level, frame) = (level_of(size), FrameNumber::new(5 << size.base_shift()));
                let alias = Entry::page(frame, size, RW, encoding).marked(true).alias(level);
                for bits in [0, 1, 1 << 31, 0x8421_1248, u32::MAX] {
                    let entry =
                        alias.with_vector_bits(level, u32::MAX).with_vector_bits(level, bits);
                    assert_eq!(entry.vector_bits(level), bits);
                    assert_eq!((entry.size(level), entry.rights()), (size, RW));
                    assert!(entry.is_page(level) && entry.used() == (false, false));
                    assert_eq!(entry.with_vector_bits(level, 0), alias);
                }
            }
        }
    }

    /// The bits of current processors.
    #[test]
    fn conventional_entries_have_x86_64_bits() {
        let entry = |frame, size| {
            Entry::page(FrameNumber::new(frame), size, RW, SizeEncoding::OneBit).bits()
        };
        assert_eq!(entry(0x12345, PageSize::BASE), 1 << 63 | 0x1234_5007);
        assert_eq!(entry(0x12200, PageSize::HUGE), 1 << 63 | 0x1220_0087);
        assert_eq!(Entry::node(FrameNumber::new(7)).bits(), 0x7007);
    }

    /// Figure 5: the lowest frame bit distinguishes 8 KiB from larger pages, the next bit 16 KiB from larger
    /// ones.
    #[test]
    fn one_bit_encoding_uses_unused_frame_bits() {
        let size = |log2| PageSize::from_log2(log2).unwrap();
        let entry = |log2| {
            let page = Entry::page(FrameNumber::new(0), size(log2), RW, SizeEncoding::OneBit);
            (page.bits() & FRAME_MASK) >> 12
        };
        assert_eq!([entry(13), entry(14), entry(15), entry(20)], [0, 0b1, 0b11, 0x7f]);
    }
}
