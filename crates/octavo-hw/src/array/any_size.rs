//! A TLB whose entries each have their own page size.

use std::ops::Range;

use octavo_types::{Instructions, PageNumber, PageSize};

use super::{Geometry, GeometryError, Replacement, SetArray, Slot};
use crate::Asid;

/// Bits of a key for the page size.
const SIZE_BITS: u32 = 5;
/// The bits of a base page number in a key: enough for 59-bit addresses.
const BASE_PAGES: u64 = (1 << 47) - 1;

/// A fully associative array of pages of any size: an any-size L1 TLB
/// (Guvenilir and Patt, ISCA 2020, section III.A.2), where each entry masks the page number before
/// it is compared.
///
/// Implementation: a page is looked up once per size that any entry has, the largest first, so that absent
/// sizes cost nothing. If several entries cover a page (after a page has grown, the entries of its smaller
/// pages remain, and stay correct), only the largest one is hit and used, so that the others age out.
///
/// Base page numbers are taken modulo 2^47, which distinguishes all 59-bit addresses.
#[derive(Clone, Debug)]
pub struct AnySizeArray<V> {
    /// The entries, in one set, by [`key`].
    entries: SetArray<V>,
    /// Number of entries of each size, by [`PageSize::base_shift`].
    by_size: [u32; 1 << SIZE_BITS],
    /// One bit per size that any entry has.
    sizes: u32,
}

/// The key of the page of 2^`shift` base pages that covers a base page.
#[inline(always)]
const fn key(asid: Asid, base_page: u64, shift: u32) -> u64 {
    asid.tag((base_page & BASE_PAGES) >> shift << SIZE_BITS | shift as u64)
}

/// The number and the shift of a key.
#[inline(always)]
const fn parts(key: u64) -> (u64, u32) {
    (key >> SIZE_BITS & BASE_PAGES, key as u32 % (1 << SIZE_BITS))
}

impl<V: Copy + Default> AnySizeArray<V> {
    /// An empty array of `entries` entries.
    pub fn new(
        entries: u64,
        replacement: Replacement,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        let geometry = Geometry::of_entries(entries, entries)?;
        Ok(AnySizeArray {
            entries: SetArray::new(geometry, replacement, instructions),
            by_size: [0; 1 << SIZE_BITS],
            sizes: 0,
        })
    }

    /// Looks up the entry that covers a base page: its size, payload and slot.
    #[inline(always)]
    pub fn look_up_slot(&mut self, asid: Asid, page: PageNumber) -> Option<(PageSize, V, Slot)> {
        let key = self.covering(asid, page)?;
        let slot = self.entries.look_up_slot(0, key)?;
        Some((size(parts(key).1), *self.entries.at(slot), slot))
    }

    /// Whether an entry covers a base page. This does not count as a use of the entry.
    pub fn holds(&self, asid: Asid, page: PageNumber) -> bool {
        self.covering(asid, page).is_some()
    }

    /// Uses the entry at a slot again, like a hit of [`AnySizeArray::look_up_slot`]. The entry must still be
    /// present.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot) {
        self.entries.touch(slot);
    }

    /// Inserts a page of `size` with number `page` at that size, and returns the evicted entry, which may belong to
    /// another address space. If the page is present, its payload is replaced.
    pub fn insert(
        &mut self,
        asid: Asid,
        page: PageNumber,
        size: PageSize,
        value: V,
    ) -> Option<(Asid, PageNumber, PageSize, V)> {
        let shift = u32::from(size.base_shift());
        let before = self.entries.len();
        let evicted = self.entries.insert(0, key(asid, page.raw() << shift, shift), value);
        if self.entries.len() > before || evicted.is_some() {
            self.by_size[shift as usize] += 1;
            self.sizes |= 1 << shift;
        }
        evicted.map(|(key, value)| {
            self.uncount(key);
            let (number, shift) = parts(key);
            (Asid::of(key), PageNumber::new(number), self::size(shift), value)
        })
    }

    /// Removes all entries of an address space that overlap any of these base pages, and returns their
    /// number.
    pub fn invalidate(&mut self, asid: Asid, pages: Range<PageNumber>) -> usize {
        if pages.is_empty() {
            return 0;
        }
        let start = pages.start.raw() & BASE_PAGES;
        let end = start + (pages.end.raw() - pages.start.raw());
        self.invalidate_if(|space, page, size, _| {
            let first = page.raw() << size.base_shift();
            space == asid && first < end && start < first + (1 << size.base_shift())
        })
    }

    /// Removes the entries for which `is_out` returns true, given address space, page (number at its size),
    /// size and payload. Returns their number.
    pub fn invalidate_if(
        &mut self,
        mut is_out: impl FnMut(Asid, PageNumber, PageSize, &V) -> bool,
    ) -> usize {
        let mut out = Vec::new();
        let count = self.entries.invalidate_if(|key, value| {
            let (number, shift) = parts(key);
            let goes = is_out(Asid::of(key), PageNumber::new(number), size(shift), value);
            if goes {
                out.push(key);
            }
            goes
        });
        for key in out {
            self.uncount(key);
        }
        count
    }

    /// Removes all entries, as [`SetArray::clear`].
    pub fn clear(&mut self) {
        self.entries.clear();
        self.by_size = [0; 1 << SIZE_BITS];
        self.sizes = 0;
    }

    /// All entries: address space, page (number at its size), size, payload.
    pub fn iter(&self) -> impl Iterator<Item = (Asid, PageNumber, PageSize, &V)> {
        self.entries.iter().map(|(_, key, value)| {
            let (number, shift) = parts(key);
            (Asid::of(key), PageNumber::new(number), size(shift), value)
        })
    }

    /// The key of the largest entry that covers a base page.
    #[inline(always)]
    fn covering(&self, asid: Asid, page: PageNumber) -> Option<u64> {
        let mut sizes = self.sizes;
        while sizes != 0 {
            let shift = sizes.ilog2();
            let key = key(asid, page.raw(), shift);
            if self.entries.probe(0, key).is_some() {
                return Some(key);
            }
            sizes ^= 1 << shift;
        }
        None
    }

    /// Updates the counts of sizes after a removal.
    fn uncount(&mut self, key: u64) {
        let shift = parts(key).1;
        self.by_size[shift as usize] -= 1;
        if self.by_size[shift as usize] == 0 {
            self.sizes &= !(1 << shift);
        }
    }
}

/// The size of 2^`shift` base pages.
#[inline(always)]
fn size(shift: u32) -> PageSize {
    PageSize::from_log2(PageSize::BASE.log2() + shift as u8).expect("keys have sizes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes that no entry has are not looked up: the counts follow evictions, invalidations and re-insertions.
    #[test]
    fn absent_sizes_are_not_searched() {
        let mut tlb = AnySizeArray::new(3, Replacement::Lru, Instructions::PORTABLE).unwrap();
        let insert = |tlb: &mut AnySizeArray<()>, page, shift| {
            tlb.insert(Asid::ONLY, PageNumber::new(page), size(shift), ());
            tlb.sizes
        };
        assert_eq!(
            [(0, 3), (0, 3), (1, 3), (9, 0)].map(|(p, s)| insert(&mut tlb, p, s)),
            [8, 8, 8, 9]
        );
        assert_eq!([(7, 0), (8, 0)].map(|(p, s)| insert(&mut tlb, p, s)), [9, 1]);
        assert_eq!(tlb.invalidate(Asid::ONLY, PageNumber::new(7)..PageNumber::new(9)), 2);
        assert_eq!((tlb.sizes, tlb.by_size[0]), (1, 1));
        tlb.invalidate_if(|_, _, _, ()| true);
        assert_eq!((tlb.sizes, tlb.iter().count()), (0, 0));
    }
}
