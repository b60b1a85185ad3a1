//! A fully associative TLB whose entries have page sizes of their own, as a list.

use std::ops::Range;

use octavo_types::{PageNumber, PageSize};

use crate::{NaiveArray, NaiveReplacement};

/// An address space, a page's number at its size, and the size.
type Page = (u16, PageNumber, PageSize);

/// A TLB of pages of any size. If several entries cover a page, only the largest one is hit and used.
pub struct NaiveAnySize<V>(NaiveArray<Page, V>);

impl<V: Clone> NaiveAnySize<V> {
    /// An empty TLB of `entries` entries.
    pub fn new(entries: usize, replacement: NaiveReplacement) -> Self {
        NaiveAnySize(NaiveArray::new(1, entries, replacement))
    }

    /// The size and payload of the largest entry that covers a base page.
    pub fn look_up(&mut self, asid: u16, page: PageNumber) -> Option<(PageSize, V)> {
        let key = self.covering(asid, page)?;
        Some((key.2, self.0.look_up(0, &key)?.clone()))
    }

    /// Inserts a page, and returns the address space, page, size and payload of the evicted entry.
    pub fn insert(
        &mut self,
        asid: u16,
        page: PageNumber,
        size: PageSize,
        value: V,
    ) -> Option<(u16, PageNumber, PageSize, V)> {
        let evicted = self.0.insert(0, (asid, page, size), value);
        evicted.map(|((asid, page, size), value)| (asid, page, size, value))
    }

    /// Removes all entries of an address space that cover any of these base pages, and returns their number.
    pub fn invalidate(&mut self, asid: u16, pages: Range<PageNumber>) -> usize {
        self.0.invalidate_if(|&(space, page, size), _| {
            let mut covered = base_pages(page, size);
            space == asid && covered.any(|page| pages.contains(&page))
        })
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// All entries.
    pub fn entries(&self) -> Vec<(u16, PageNumber, PageSize, V)> {
        let entries = self.0.entries().into_iter();
        entries.map(|(_, (asid, page, size), value)| (asid, page, size, value)).collect()
    }

    fn covering(&self, asid: u16, page: PageNumber) -> Option<Page> {
        let entries = self.0.entries().into_iter().map(|(_, key, _)| key);
        let covers = |&(space, held, size): &Page| {
            space == asid && page.raw() / (size.bytes() / PageSize::BASE.bytes()) == held.raw()
        };
        entries.filter(covers).max_by_key(|(_, _, size)| *size)
    }
}

/// The base pages of a page.
fn base_pages(page: PageNumber, size: PageSize) -> impl Iterator<Item = PageNumber> {
    let pages = size.bytes() / PageSize::BASE.bytes();
    (page.raw() * pages..(page.raw() + 1) * pages).map(PageNumber::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page of 32 KiB grows out of its first base page, whose entry stays.
    #[test]
    fn small_entry_ages_out_behind_a_large_one() {
        let large = PageSize::from_bytes(32 << 10).unwrap();
        let page = PageNumber::new;
        let mut tlb = NaiveAnySize::new(2, NaiveReplacement::Lru);
        tlb.insert(0, page(8), PageSize::BASE, 'a');
        assert_eq!(tlb.look_up(0, page(9)), None);
        tlb.insert(0, page(1), large, 'b');
        assert_eq!(tlb.look_up(0, page(15)), Some((large, 'b')));
        assert_eq!(tlb.look_up(0, page(8)), Some((large, 'b')));
        assert_eq!((tlb.look_up(0, page(16)), tlb.look_up(1, page(8))), (None, None));
        assert_eq!(tlb.insert(0, page(3), large, 'c'), Some((0, page(8), PageSize::BASE, 'a')));
        assert_eq!(tlb.invalidate(0, page(15)..page(24)), 1);
        assert_eq!(tlb.look_up(0, page(31)), Some((large, 'c')));
        assert_eq!(tlb.entries(), [(0, page(3), large, 'c')]);
    }
}
