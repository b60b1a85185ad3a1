//! The mappings of an address space: ranges of base pages with permissions, backing and `madvise` advice.

use std::ops::Range;

use octavo_types::{AddrRange, MapSource, PageNumber, PageSize, Protection, VirtAddr};
use rangemap::RangeMap;

/// A file or a shared-memory object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectId(pub u32);

/// The backing of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Private zero-filled memory: `mmap`.
    Anonymous,
    /// The `brk` heap; otherwise anonymous.
    Heap,
    /// A stack; otherwise anonymous.
    Stack,
    /// `mmap` with `MAP_HUGETLB`, from a pool of pages of that size if there is one.
    HugeTlb(PageSize),
    /// Pages of an object. `origin` is the base page at which its first page would be mapped, wrapping.
    Object {
        /// The object.
        object: ObjectId,
        /// The base page of its first page.
        origin: u64,
        /// Whether a store changes the object; otherwise it copies the page.
        shared: bool,
    },
}

/// The `madvise` advice of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Advice {
    /// None.
    #[default]
    None,
    /// `MADV_HUGEPAGE`.
    Huge,
    /// `MADV_NOHUGEPAGE`.
    NoHuge,
}

/// A mapping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Vma {
    /// Its permissions.
    pub rights: Protection,
    /// Its backing.
    pub backing: Backing,
    /// The advice of the program.
    pub advice: Advice,
}

impl Vma {
    /// Whether its pages are private zero-filled memory.
    pub fn is_anonymous(&self) -> bool {
        !matches!(self.backing, Backing::Object { .. })
    }

    /// The object that stores change for all its users, and the base page at which its first page would be
    /// mapped, wrapping; `None` if stores copy or the memory is private.
    pub fn shared_object(&self) -> Option<(ObjectId, u64)> {
        match self.backing {
            Backing::Object { object, origin, shared: true } => Some((object, origin)),
            _ => None,
        }
    }

    /// Whether any access is permitted.
    pub fn is_accessible(&self) -> bool {
        self.rights != Protection::default()
    }
}

/// A range of base pages.
pub type Pages = Range<u64>;

/// The base pages that overlap a range of addresses.
pub fn pages_of(range: AddrRange) -> Pages {
    let wide = range.widened_to(PageSize::BASE);
    wide.start().page(PageSize::BASE).raw()..wide.end().page(PageSize::BASE).raw()
}

/// The addresses of base pages.
pub fn range_of(pages: &Pages) -> AddrRange {
    let [start, bytes] =
        [pages.start, pages.end - pages.start].map(|pages| pages << PageSize::BASE.log2());
    AddrRange::new(VirtAddr::new(start), bytes)
}

/// The mappings of a process. Equal neighbours are merged, as in Linux.
#[derive(Clone, Default)]
pub struct Vmas {
    map: RangeMap<u64, Vma>,
}

impl Vmas {
    /// The mapping that holds a base page, with its range.
    pub fn find(&self, page: PageNumber) -> Option<(Pages, Vma)> {
        self.map.get_key_value(&page.raw()).map(|(pages, vma)| (pages.clone(), *vma))
    }

    /// Adds a mapping, in place of the parts of mappings that it overlaps.
    pub fn map(&mut self, pages: Pages, vma: Vma) {
        if !pages.is_empty() {
            self.map.insert(pages, vma);
        }
    }

    /// Removes a range.
    pub fn unmap(&mut self, pages: Pages) {
        if !pages.is_empty() {
            self.map.remove(pages);
        }
    }

    /// The parts of mappings in a range.
    pub fn within(&self, pages: &Pages) -> Vec<(Pages, Vma)> {
        if pages.is_empty() {
            return Vec::new();
        }
        let cut = |range: &Pages| range.start.max(pages.start)..range.end.min(pages.end);
        self.map.overlapping(pages).map(|(range, vma)| (cut(range), *vma)).collect()
    }

    /// Changes the mappings in a range, split at its ends.
    pub fn change(&mut self, pages: &Pages, change: impl Fn(&mut Vma)) {
        for (part, mut vma) in self.within(pages) {
            change(&mut vma);
            self.map.insert(part, vma);
        }
    }

    /// Moves the mappings of `from` to begin at `to`, with a total length of `pages`: the last mapping grows
    /// if it reaches the end; excess pages are removed.
    pub fn relocate(&mut self, from: Pages, to: u64, pages: u64) {
        let parts = self.within(&from);
        self.unmap(from.clone());
        self.unmap(to..to + pages);
        let moved = to.wrapping_sub(from.start);
        let last = parts.len().wrapping_sub(1);
        for (number, (part, mut vma)) in parts.into_iter().enumerate() {
            if let Backing::Object { origin, .. } = &mut vma.backing {
                *origin = origin.wrapping_add(moved);
            }
            let start = part.start.wrapping_add(moved);
            let grows = number == last && part.end == from.end;
            let end = if grows { to + pages } else { part.end.wrapping_add(moved) };
            self.map(start..end.min(to + pages).max(start), vma);
        }
    }

    /// All mappings in order.
    pub fn iter(&self) -> impl Iterator<Item = (&Pages, &Vma)> {
        self.map.iter()
    }
}

/// The backing of a mapping of `source`; `object` returns the object of a file's path, or a new object for `None`.
pub fn backing_of(
    source: &MapSource,
    flags: u64,
    start_page: u64,
    mut object: impl FnMut(Option<&str>) -> ObjectId,
) -> Backing {
    /// `MAP_SHARED` of `mmap(2)`.
    const MAP_SHARED: u64 = 1;
    /// `MAP_HUGETLB`; the bits above `MAP_HUGE_SHIFT` hold log2 of the page size, 0 for the default.
    const MAP_HUGETLB: u64 = 0x40000;
    const MAP_HUGE_SHIFT: u32 = 26;
    match source {
        MapSource::Anonymous if flags & (MAP_SHARED | MAP_HUGETLB) == MAP_HUGETLB => {
            let log2 = (flags >> MAP_HUGE_SHIFT & 0x3f) as u8;
            Backing::HugeTlb(PageSize::from_log2(log2).unwrap_or(PageSize::HUGE))
        }
        MapSource::Anonymous if flags & MAP_SHARED == 0 => Backing::Anonymous,
        MapSource::Heap => Backing::Heap,
        MapSource::Stack => Backing::Stack,
        MapSource::File { path, offset_bytes } => Backing::Object {
            object: object(Some(path)),
            origin: start_page.wrapping_sub(offset_bytes >> PageSize::BASE.log2()),
            shared: flags & MAP_SHARED != 0,
        },
        MapSource::Anonymous | MapSource::Shared => {
            Backing::Object { object: object(None), origin: start_page, shared: true }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RW: Protection = Protection { read: true, write: true, execute: false };

    fn vma(backing: Backing) -> Vma {
        Vma { rights: RW, backing, advice: Advice::None }
    }

    fn object(origin: u64) -> Backing {
        Backing::Object { object: ObjectId(1), origin, shared: false }
    }

    fn ranges(vmas: &Vmas) -> Vec<Pages> {
        vmas.iter().map(|(pages, _)| pages.clone()).collect()
    }

    #[test]
    fn equal_neighbours_are_merged() {
        let mut vmas = Vmas::default();
        vmas.map(0..4, vma(Backing::Anonymous));
        vmas.map(4..8, vma(Backing::Anonymous));
        vmas.map(8..9, vma(Backing::Heap));
        assert_eq!(ranges(&vmas), [0..8, 8..9]);
        vmas.change(&(2..4), |vma| vma.rights.write = false);
        assert_eq!(ranges(&vmas), [0..2, 2..4, 4..8, 8..9]);
        vmas.change(&(2..4), |vma| vma.rights.write = true);
        assert_eq!(ranges(&vmas), [0..8, 8..9]);
        vmas.unmap(3..5);
        assert_eq!(ranges(&vmas), [0..3, 5..8, 8..9]);
        vmas.unmap(5..5);
        assert_eq!(ranges(&vmas).len(), 3);
    }

    #[test]
    fn relocated_mappings_keep_their_object_pages() {
        let mut vmas = Vmas::default();
        vmas.map(10..14, vma(object(7)));
        vmas.map(14..16, vma(Backing::Anonymous));
        vmas.relocate(10..16, 100, 9);
        assert_eq!(vmas.find(PageNumber::new(101)), Some((100..104, vma(object(97)))));
        assert_eq!(ranges(&vmas), [100..104, 104..109], "the last one grows");
        vmas.relocate(100..109, 10, 5);
        assert_eq!(ranges(&vmas), [10..14, 14..15]);
        assert_eq!(vmas.find(PageNumber::new(11)), Some((10..14, vma(object(7)))));
    }
}
