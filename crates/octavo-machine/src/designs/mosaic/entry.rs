//! Entries of a TLB that hold a page, or a table of contents.

use octavo_os::ProcessId;
use octavo_types::{PageNumber, PageSize};

use super::array::MosaicArray;
use super::candidates::{Buckets, Key};
use crate::tlb::{Entry, TlbEntry};

/// The most pages of a table of contents.
pub const MAX_ARITY: usize = 64;
/// The compressed frame number of a page that is not held.
const INVALID: u8 = 0x7f;

/// The layout of tables of contents: how many pages they have, and among which frames.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// log2 of the pages of a table.
    pub order: u8,
    pub buckets: Buckets,
}

impl Layout {
    /// The first page of the table with a page, and the place of the page in it.
    #[inline(always)]
    pub fn place(self, page: PageNumber) -> (u64, usize) {
        let first = page.raw() >> self.order << self.order;
        (first, (page.raw() - first) as usize)
    }

    /// The pages of a table.
    pub fn arity(self) -> usize {
        1 << self.order
    }
}

/// A page and, if it is held with its neighbours, the table of contents of all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MosaicEntry {
    /// The page that was walked or looked up.
    pub page: TlbEntry,
    /// Empty where the page is held alone.
    pub toc: Toc,
}

/// A table of contents: the compressed frame numbers of virtually consecutive pages, each with the permission to store and
/// the dirty bit of its page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Toc {
    numbers: [u8; MAX_ARITY],
    writable: u64,
    dirty: u64,
    /// The process whose pages these are, which the hash functions need.
    process: ProcessId,
}

impl Default for Toc {
    fn default() -> Self {
        Toc::new(ProcessId::default())
    }
}

impl Toc {
    /// An empty table for pages of a process.
    pub fn new(process: ProcessId) -> Self {
        Toc { numbers: [INVALID; MAX_ARITY], writable: 0, dirty: 0, process }
    }

    /// Adds the page at a place.
    pub fn add(&mut self, at: usize, number: u8, is_writable: bool, is_dirty: bool) {
        self.numbers[at] = number;
        self.writable |= u64::from(is_writable) << at;
        self.dirty |= u64::from(is_dirty) << at;
    }

    /// Removes the page at a place.
    pub fn remove(&mut self, at: usize) {
        self.numbers[at] = INVALID;
        self.writable &= !(1 << at);
        self.dirty &= !(1 << at);
    }

    /// Whether the page at a place is held.
    #[inline(always)]
    pub fn has(&self, at: usize) -> bool {
        self.numbers[at] != INVALID
    }

    /// The number of pages that are held.
    pub fn count(&self) -> u64 {
        self.numbers.iter().filter(|number| **number != INVALID).count() as u64
    }

    pub fn is_empty(&self) -> bool {
        self.numbers == [INVALID; MAX_ARITY]
    }

    /// The entry of a page that is held.
    #[inline(always)]
    fn page(&self, page: PageNumber, at: usize, buckets: Buckets) -> TlbEntry {
        let frame = buckets.frame(Key::new(self.process, page), self.numbers[at]);
        let [is_writable, is_dirty] = [self.writable, self.dirty].map(|bits| bits >> at & 1 != 0);
        TlbEntry::new(frame, PageSize::BASE, is_writable, is_dirty)
    }
}

impl MosaicEntry {
    /// The entry with a page of its table; `None` if that does not hold it.
    #[inline(always)]
    pub fn of(&self, page: PageNumber, layout: Layout) -> Option<Self> {
        let (_, at) = layout.place(page);
        let held = self.toc.has(at);
        held.then(|| MosaicEntry { page: self.toc.page(page, at, layout.buckets), toc: self.toc })
    }
}

impl Entry for MosaicEntry {
    type Array = MosaicArray;

    #[inline(always)]
    fn of_page(page: TlbEntry) -> Self {
        MosaicEntry { page, toc: Toc::default() }
    }

    #[inline(always)]
    fn page(self) -> TlbEntry {
        self.page
    }

    #[inline(always)]
    fn with_page(self, page: TlbEntry) -> Self {
        MosaicEntry { page, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_keeps_each_page_with_its_bits() {
        let layout = Layout { order: 6, buckets: Buckets::of(1 << 16) };
        let page = |at: u64| PageNumber::new(640 + at);
        let mut toc = Toc::new(ProcessId(3));
        let all = [(0, 0, true, false), (5, 70, false, false), (63, 55, true, true)];
        for (at, number, is_writable, is_dirty) in all {
            toc.add(at, number, is_writable, is_dirty);
        }
        assert_eq!((toc.count(), toc.is_empty()), (3, false));
        let entry = MosaicEntry { page: TlbEntry::default(), toc };
        for (at, number, is_writable, is_dirty) in all {
            let held = entry.of(page(at as u64), layout).unwrap().page;
            let frame = layout.buckets.frame(Key::new(ProcessId(3), page(at as u64)), number);
            let bits = (held.frame(), held.is_writable(), held.is_dirty());
            assert_eq!(bits, (frame, is_writable, is_dirty), "{at}");
        }
        assert_eq!(entry.of(page(1), layout), None);
        toc.remove(63);
        assert_eq!((toc.count(), toc.has(63)), (2, false));
        all.iter().for_each(|(at, ..)| toc.remove(*at));
        assert_eq!(toc, Toc::new(ProcessId(3)));
        assert!(toc.is_empty());
    }
}
