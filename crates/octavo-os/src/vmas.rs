//! What is mapped in an address space: ranges of base pages with their rights, what they are made
//! of, and what the program asked for with `madvise`.

use std::ops::Range;

use octavo_types::{AddrRange, MapSource, PageNumber, PageSize, Protection};
use rangemap::RangeMap;

/// A file or a piece of shared memory, by number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ObjectId(pub u32);

/// What a mapping is made of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// Zero-filled memory of the process' own: `mmap`.
    Anonymous,
    /// The `brk` heap, else the same.
    Heap,
    /// A stack, else the same.
    Stack,
    /// `mmap` with `MAP_HUGETLB`, from a pool of pages of that size if there is one.
    HugeTlb(PageSize),
    /// Pages of an object. `origin` is the base page at which its first one would lie, wrapping.
    Object {
        /// Which.
        object: ObjectId,
        /// Where its first page would be mapped.
        origin: u64,
        /// Whether a store changes the object; else it copies the page.
        shared: bool,
    },
}

/// What a program asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Advice {
    /// Nothing.
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
    /// Its rights.
    pub rights: Protection,
    /// What it is made of.
    pub backing: Backing,
    /// What the program asked for.
    pub advice: Advice,
}

impl Vma {
    /// Whether a page of it is new, zeroed memory of the process' own.
    pub fn is_anonymous(&self) -> bool {
        !matches!(self.backing, Backing::Object { .. })
    }

    /// The object whose pages a store changes for all who map them, and the base page at which its first
    /// one would lie, wrapping; none where stores copy, or where nobody else can have the memory.
    pub fn shared_object(&self) -> Option<(ObjectId, u64)> {
        match self.backing {
            Backing::Object { object, origin, shared: true } => Some((object, origin)),
            _ => None,
        }
    }

    /// Whether it may be used at all.
    pub fn is_accessible(&self) -> bool {
        self.rights != Protection::default()
    }
}

/// A range of base pages.
pub type Pages = Range<u64>;

/// The base pages that a range of addresses touches.
pub fn pages_of(range: AddrRange) -> Pages {
    let wide = range.widened_to(PageSize::BASE);
    wide.start().page(PageSize::BASE).raw()..wide.end().page(PageSize::BASE).raw()
}

/// The mappings of a process. Neighbours that are alike are one, as Linux merges them.
#[derive(Clone, Default)]
pub struct Vmas {
    map: RangeMap<u64, Vma>,
}

impl Vmas {
    /// The mapping that holds a base page, and all of its pages.
    pub fn find(&self, page: PageNumber) -> Option<(Pages, Vma)> {
        self.map.get_key_value(&page.raw()).map(|(pages, vma)| (pages.clone(), *vma))
    }

    /// A new mapping; what was there is mapped no more.
    pub fn map(&mut self, pages: Pages, vma: Vma) {
        if !pages.is_empty() {
            self.map.insert(pages, vma);
        }
    }

    /// Nothing is mapped there any more.
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
        let cut = |of: &Pages| of.start.max(pages.start)..of.end.min(pages.end);
        self.map.overlapping(pages).map(|(of, vma)| (cut(of), *vma)).collect()
    }

    /// Changes what is mapped in a range, part by part: it splits mappings at its ends.
    pub fn change(&mut self, pages: &Pages, change: impl Fn(&mut Vma)) {
        for (part, mut vma) in self.within(pages) {
            change(&mut vma);
            self.map.insert(part, vma);
        }
    }

    /// Moves what is mapped in `from` to begin at `to`, and makes it `pages` long: its last mapping
    /// grows if it reaches the end, or what is too much goes.
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

/// What a mapping of `source` is made of, its object told by name.
pub fn backing_of(
    source: &MapSource,
    flags: u64,
    start_page: u64,
    mut object: impl FnMut(Option<&str>) -> ObjectId,
) -> Backing {
    /// `MAP_SHARED` of `mmap(2)`.
    const MAP_SHARED: u64 = 1;
    /// `MAP_HUGETLB`, and above `MAP_HUGE_SHIFT` the logarithm of the size, 0 for the usual.
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
    fn neighbours_that_are_alike_are_one() {
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
    fn what_is_moved_keeps_its_object_s_pages() {
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
