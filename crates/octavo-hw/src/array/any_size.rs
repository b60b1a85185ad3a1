//! A TLB whose entries each have a page size of their own.

use std::ops::Range;

use octavo_types::{Instructions, PageNumber, PageSize};

use super::{Geometry, GeometryError, Replacement, SetArray, Slot};
use crate::Asid;

/// Bits of a key that say the size.
const SIZE_BITS: u32 = 5;
/// What a key has of a base page's number: 59-bit addresses have no more.
const BASE_PAGES: u64 = (1 << 47) - 1;

/// A fully associative array of pages of any size: the any-size L1 TLB of Tailored Page Sizes
/// (Guvenilir and Patt, ISCA 2020, section III.A.2), where each entry masks the page number before
/// it is compared.
///
/// Here a page is looked up once for each size that any entry has, the largest first, so that sizes
/// which are not there cost nothing. Of several entries that cover a page (a page that has grown
/// leaves its smaller entries in the TLB, where they stay right) the largest one is hit, and it alone
/// is used to the policy, so that the others age out.
///
/// Numbers of base pages are taken modulo 2^47, which tells apart all that 59 bits of address can.
#[derive(Clone, Debug)]
pub struct AnySizeArray<V> {
    /// In one set, by [`key`].
    entries: SetArray<V>,
    /// How many entries have each size, by [`PageSize::base_shift`].
    by_size: [u32; 1 << SIZE_BITS],
    /// A bit for each size that any entry has.
    sizes: u32,
    /// The key that was hit last, unless something was inserted since: then an entry of this key
    /// is not the largest one any more, maybe.
    last: Option<u64>,
}

/// The key of the page that covers a base page and has the size of 2^`shift` of them.
#[inline(always)]
const fn key(asid: Asid, base_page: u64, shift: u32) -> u64 {
    asid.tag((base_page & BASE_PAGES) >> shift << SIZE_BITS | shift as u64)
}

/// The number and the shift in a key.
#[inline(always)]
const fn parts(key: u64) -> (u64, u32) {
    (key >> SIZE_BITS & BASE_PAGES, key as u32 % (1 << SIZE_BITS))
}

impl<V: Copy + Default> AnySizeArray<V> {
    /// An empty array of so many entries.
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
            last: None,
        })
    }

    /// Looks up the entry that covers a base page, and says its size.
    #[inline(always)]
    pub fn look_up(&mut self, asid: Asid, page: PageNumber) -> Option<(PageSize, &mut V)> {
        let key = match self.last {
            Some(last) if key(asid, page.raw(), parts(last).1) == last => last,
            _ => {
                let found = self.covering(asid, page)?;
                self.last = Some(found);
                found
            }
        };
        let value = self.entries.look_up(0, key)?;
        Some((size(parts(key).1), value))
    }

    /// As [`AnySizeArray::look_up`]; says where the entry is, too.
    #[inline(always)]
    pub fn look_up_slot(&mut self, asid: Asid, page: PageNumber) -> Option<(PageSize, V, Slot)> {
        let key = self.covering(asid, page)?;
        let slot = self.entries.look_up_slot(0, key)?;
        Some((size(parts(key).1), *self.entries.at(slot), slot))
    }

    /// Uses the entry at a slot again: what [`AnySizeArray::look_up`] would do with a page of which
    /// it is the largest entry. It must still be there.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot) {
        self.entries.touch(slot);
    }

    /// As [`AnySizeArray::look_up`], without a trace.
    pub fn probe(&self, asid: Asid, page: PageNumber) -> Option<(PageSize, &V)> {
        let key = self.covering(asid, page)?;
        Some((size(parts(key).1), self.entries.probe(0, key)?))
    }

    /// Inserts a page of `size`, `page` being its number at that size, and returns the one that gave
    /// way to it. If that very page is there already, its payload is replaced.
    pub fn insert(
        &mut self,
        asid: Asid,
        page: PageNumber,
        size: PageSize,
        value: V,
    ) -> Option<(PageNumber, PageSize, V)> {
        let shift = u32::from(size.base_shift());
        let before = self.entries.len();
        let evicted = self.entries.insert(0, key(asid, page.raw() << shift, shift), value);
        self.last = None;
        if self.entries.len() > before || evicted.is_some() {
            self.by_size[shift as usize] += 1;
            self.sizes |= 1 << shift;
        }
        evicted.map(|(key, value)| {
            self.forget(key);
            let (number, shift) = parts(key);
            (PageNumber::new(number), self::size(shift), value)
        })
    }

    /// Takes out all entries of an address space that cover any of these base pages, and returns how
    /// many.
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

    /// Takes out whatever has an address space, page (its number at its size), size and payload that
    /// `is_out` says, and returns how many entries that were.
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
            self.forget(key);
        }
        count
    }

    /// Takes all out, as [`SetArray::clear`].
    pub fn clear(&mut self) {
        self.entries.clear();
        self.by_size = [0; 1 << SIZE_BITS];
        self.sizes = 0;
        self.last = None;
    }

    /// How many entries are taken.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether all entries are free.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All entries: address space, page (its number at its size), size, payload.
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

    /// An entry has gone.
    fn forget(&mut self, key: u64) {
        let shift = parts(key).1;
        self.by_size[shift as usize] -= 1;
        if self.by_size[shift as usize] == 0 {
            self.sizes &= !(1 << shift);
        }
        self.last = None;
    }
}

/// The size that is 2^`shift` base pages.
#[inline(always)]
fn size(shift: u32) -> PageSize {
    PageSize::from_log2(PageSize::BASE.log2() + shift as u8).expect("keys have sizes")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes that no entry has are not looked up: what is known of them follows evictions,
    /// invalidations and insertions of what is there.
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
        assert_eq!((tlb.sizes, tlb.len()), (0, 0));
    }
}
