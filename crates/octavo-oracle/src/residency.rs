//! Resident pages: touched, and not unmapped since.

use std::collections::{BTreeMap, BTreeSet};

use octavo_types::{
    AddrRange, Consumer, Event, MapSource, PageNumber, PageSize, Segment, VirtAddr,
};

use crate::{Relocate, executed, pages_touched};

/// The set of resident base pages over time, and its size and peak in pages of each size.
///
/// A page is resident from its first touch until it is unmapped. A page of a larger size is
/// resident while any base page in it is. The ends of a range are rounded up to base pages, as
/// the kernel rounds those of `munmap` (whose start is aligned) and of `brk` (whose is not).
///
/// Residency is kept by the program's own addresses, since events use them. Larger pages are counted by
/// relocated addresses.
pub struct NaiveResidency<'a> {
    page_sizes: Vec<PageSize>,
    relocate: Relocate<'a>,
    /// Each resident base page of the program, and its relocated page.
    resident: BTreeMap<PageNumber, PageNumber>,
    /// The largest number of resident pages so far, for each of `page_sizes`.
    peaks: Vec<u64>,
}

impl<'a> NaiveResidency<'a> {
    /// No resident pages; counts pages of each of `page_sizes` after `relocate`.
    pub fn new(page_sizes: &[PageSize], relocate: impl Fn(VirtAddr) -> VirtAddr + 'a) -> Self {
        NaiveResidency {
            page_sizes: page_sizes.to_vec(),
            relocate: Box::new(relocate),
            resident: BTreeMap::new(),
            peaks: vec![0; page_sizes.len()],
        }
    }

    /// The resident pages of `size`, relocated.
    pub fn pages(&self, size: PageSize) -> BTreeSet<PageNumber> {
        let larger = |page: &PageNumber| PageNumber::new(page.raw() >> size.base_shift());
        self.resident.values().map(larger).collect()
    }

    /// The largest number of pages of `size` ever resident at once. `size` must be one of `page_sizes`.
    pub fn peak_pages(&self, size: PageSize) -> u64 {
        let index = self.page_sizes.iter().position(|&held| held == size);
        self.peaks[index.expect("a page size given at first")]
    }

    fn insert(&mut self, page: PageNumber) {
        let addr = VirtAddr::new(page.raw() << PageSize::BASE.log2());
        let relocated = (self.relocate)(addr).page(PageSize::BASE);
        if self.resident.insert(page, relocated).is_none() {
            for index in 0..self.page_sizes.len() {
                let pages = self.pages(self.page_sizes[index]).len() as u64;
                self.peaks[index] = self.peaks[index].max(pages);
            }
        }
    }

    fn remove(&mut self, range: AddrRange) {
        let pages = base_pages(range);
        self.resident.retain(|page, _| !pages.contains(&page.raw()));
    }
}

/// The numbers of the base pages of `range`, its ends rounded up.
fn base_pages(range: AddrRange) -> std::ops::Range<u64> {
    let round_up = |addr: VirtAddr| addr.raw().div_ceil(PageSize::BASE.bytes());
    round_up(range.start())..round_up(range.end())
}

impl Consumer for NaiveResidency<'_> {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        for (item, addr) in executed(segment, addresses) {
            for (page, _) in pages_touched(addr, item.size_bytes, PageSize::BASE) {
                if !self.resident.contains_key(&page) {
                    self.insert(page);
                }
            }
        }
    }

    fn event(&mut self, event: &Event) {
        match *event {
            // Growth only adds pages; any other mapping replaces the old pages.
            Event::Map { source: MapSource::Stack | MapSource::Heap, .. } => {}
            Event::Map { range, .. } | Event::Unmap { range } => self.remove(range),
            // MADV_DONTNEED and MADV_REMOVE free the memory at once.
            Event::Advise { range, advice: 4 | 9 } => self.remove(range),
            Event::Remap { from, to } => {
                let (old, new) = (base_pages(from), base_pages(to));
                let moved: Vec<u64> = self
                    .resident
                    .keys()
                    .filter(|page| old.contains(&page.raw()))
                    .map(|page| new.start + (page.raw() - old.start))
                    .filter(|page| new.contains(page))
                    .collect();
                self.remove(from);
                self.remove(to);
                for page in moved {
                    self.insert(PageNumber::new(page));
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use octavo_types::{Item, ItemKind, Protection};

    fn fetch_and_load() -> Segment {
        let item = |kind, size_bytes, addr| Item::new(kind, size_bytes, VirtAddr::new(addr));
        let items = vec![item(ItemKind::Fetch, 4, 0x1000), item(ItemKind::Load, 8, 0)];
        Segment::new(items, vec![]).unwrap()
    }

    fn range(start: u64, bytes: u64) -> AddrRange {
        AddrRange::new(VirtAddr::new(start), bytes)
    }

    fn map(start: u64, bytes: u64, source: MapSource) -> Event {
        let protection = Protection::from_bits(3);
        Event::Map { range: range(start, bytes), protection, source, flags: 0 }
    }

    /// Checks the resident size after each load or event; the code is page 1 throughout.
    #[test]
    fn residency_by_hand() {
        enum Step {
            Load(u64),
            Event(Event),
        }
        use Step::{Event as On, Load};
        let segment = fetch_and_load();
        let size_8k = PageSize::from_log2(13).unwrap();
        let mut residency = NaiveResidency::new(&[PageSize::BASE, size_8k], |addr| addr);
        for (number, (step, resident)) in [
            (Load(0x10000), vec![0x1, 0x10]),
            (Load(0x10ffc), vec![0x1, 0x10, 0x11]), // spans into the next page
            (Load(0x13000), vec![0x1, 0x10, 0x11, 0x13]),
            // Part of a page is unmapped: the end is rounded up, so that the whole page is.
            (On(Event::Unmap { range: range(0x11000, 1) }), vec![0x1, 0x10, 0x13]),
            // The heap shrinks into page 0x13, which stays.
            (On(Event::Unmap { range: range(0x13008, 0x2000) }), vec![0x1, 0x10, 0x13]),
            // The heap grows over resident pages.
            (On(map(0x13008, 0x2000, MapSource::Heap)), vec![0x1, 0x10, 0x13]),
            (Load(0x14000), vec![0x1, 0x10, 0x13, 0x14]),
            // Three pages move; the third, not resident, covers page 0x22, and 0x14 is left.
            (Load(0x22000), vec![0x1, 0x10, 0x13, 0x14, 0x22]),
            (
                On(Event::Remap { from: range(0x13000, 0x3000), to: range(0x20000, 0x3000) }),
                vec![0x1, 0x10, 0x20, 0x21],
            ),
            // Shrunk in place to one page.
            (
                On(Event::Remap { from: range(0x20000, 0x3000), to: range(0x20000, 0x1000) }),
                vec![0x1, 0x10, 0x20],
            ),
            // A fixed mapping replaces pages 0x10 to 0x1f; a new one is empty until touched.
            (On(map(0x10000, 0x10000, MapSource::Anonymous)), vec![0x1, 0x20]),
        ]
        .into_iter()
        .enumerate()
        {
            match step {
                Load(addr) => residency.segment(&segment, &[VirtAddr::new(addr)]),
                On(event) => residency.event(&event),
            }
            let held: Vec<u64> = residency.pages(PageSize::BASE).iter().map(|p| p.raw()).collect();
            assert_eq!(held, resident, "after step {number}");
        }
        // Of 4 KiB at most 1 10 13 14 22; of 8 KiB then 0 8 9 a 11.
        assert_eq!(residency.peak_pages(PageSize::BASE), 5);
        assert_eq!(residency.peak_pages(size_8k), 5);
        assert_eq!(residency.pages(size_8k).len(), 2);
    }

    #[test]
    fn larger_pages_are_counted_after_relocation() {
        let away = |addr: VirtAddr| match addr.raw() {
            0x10000..0x11000 => addr.wrapping_add(0x1000),
            _ => addr,
        };
        let size_8k = PageSize::from_log2(13).unwrap();
        let mut residency = NaiveResidency::new(&[size_8k], away);
        residency.segment(&fetch_and_load(), &[VirtAddr::new(0x10000)]);
        assert_eq!(residency.pages(PageSize::BASE), [0x1, 0x11].map(PageNumber::new).into());
        residency.event(&Event::Unmap { range: range(0x10000, 0x1000) });
        assert_eq!(residency.pages(size_8k), [0].map(PageNumber::new).into());
        assert_eq!(residency.peak_pages(size_8k), 2);
    }
}
