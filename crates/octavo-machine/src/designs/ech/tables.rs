//! The page tables of a process: an elastic cuckoo table for each page size, and cuckoo walk tables, which say
//! where pages are (Skarlatos et al., ASPLOS 2020, section 5).

use octavo_os::frames::{Frames, OutOfMemory};
use octavo_os::page_table::HardwareTable;
use octavo_types::{PageNumber, PageSize, PhysAddr};
use rustc_hash::FxHashMap;

use super::cuckoo::{Cuckoo, ENTRY_BYTES};

/// The page sizes with tables, smallest first.
pub const SIZES: [PageSize; 3] = [PageSize::BASE, PageSize::HUGE, PageSize::LARGEST];
/// Ways of the tables of pages.
pub const WAYS: usize = 3;
/// Ways of walk tables.
pub const WALK_WAYS: usize = 2;
/// Consecutive pages of an entry.
const PAGES_PER_ENTRY: u32 = 8;
/// Bytes of a page's part of an entry.
const PAGE_ENTRY_BYTES: u64 = ENTRY_BYTES / PAGES_PER_ENTRY as u64;
/// Sections of an entry of a walk table.
pub const SECTIONS: usize = 64;
/// Entries of a way at first: tables of pages.
pub const ENTRIES: u64 = 1 << 14;
/// A table begins with at most one part in this many of a small memory.
const SHARE: u64 = 1 << 11;
/// The fewest entries of a way: they fill one frame.
const FEWEST: u64 = 64;

/// The record of a section in a walk table: of 2 MiB in the lower table, of 1 GiB in the upper one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Section {
    /// Whether it has pages of 4 KiB.
    pub has_base: bool,
    /// Whether it has pages of 2 MiB; in the upper table only.
    pub has_huge: bool,
    /// One more than the way that holds the page as large as the section; 0 for no such page.
    pub way: u8,
}

/// An entry of a walk table.
pub type Sections = [Section; SECTIONS];

/// The tables of a process.
pub struct Tables {
    /// By size; tables of larger pages are made with their first page. The contents are the pages present.
    pages: [Option<Cuckoo<u8>>; 3],
    /// The lower walk table and the upper one.
    walk: [Option<Cuckoo<Sections>>; 2],
    /// Number of pages of 4 KiB by section of 2 MiB, and of 1 GiB; of pages of 2 MiB by section of 1 GiB.
    smaller: FxHashMap<(PageSize, PageSize, u64), u32>,
    exhausted: Option<OutOfMemory>,
}

/// The place of a page's entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The index of the page's size in [`SIZES`].
    pub size: usize,
    /// The way.
    pub way: usize,
    /// The part of the entry that is the page's.
    pub at: PhysAddr,
}

/// The number of the page of a size that holds a base page.
pub fn number(page: PageNumber, size: PageSize) -> u64 {
    page.raw() >> size.base_shift()
}

/// The key of the entry that holds a page of a size.
fn key(page: PageNumber, size: PageSize) -> u64 {
    number(page, size) / u64::from(PAGES_PER_ENTRY)
}

/// The key of the walk-table entry of a base page, and its section; level 0 is the lower table.
pub fn section(page: PageNumber, level: usize) -> (u64, usize) {
    let number = number(page, SIZES[level + 1]);
    (number / SECTIONS as u64, (number % SECTIONS as u64) as usize)
}

impl Tables {
    /// Empty tables for pages of 4 KiB, and walk tables.
    pub fn new(frames: &mut Frames) -> Self {
        let mut tables = Tables {
            pages: [None, None, None],
            walk: [None, None],
            smaller: FxHashMap::default(),
            exhausted: None,
        };
        let made = tables.make(frames);
        tables.note(made);
        tables
    }

    fn make(&mut self, frames: &mut Frames) -> Result<(), OutOfMemory> {
        self.pages[0] = Some(Cuckoo::new(WAYS, entries(frames), frames)?);
        for (level, part) in [(0, 4), (1, 8)] {
            let entries = (entries(frames) / part).max(FEWEST);
            self.walk[level] = Some(Cuckoo::new(WALK_WAYS, entries, frames)?);
        }
        Ok(())
    }

    /// The addresses that a walk reads to look for a page of a size, by way; none without a table.
    pub fn places(&self, page: PageNumber, size: usize) -> impl Iterator<Item = PhysAddr> + '_ {
        let key = key(page, SIZES[size]);
        let offset = u64::from(part(page, SIZES[size])) * PAGE_ENTRY_BYTES;
        let lines = self.pages[size].iter().flat_map(move |table| table.places(key));
        lines.map(move |line| PhysAddr::new(line.raw() + offset))
    }

    /// The addresses that hold the walk-table entry of a base page.
    pub fn walk_places(
        &self,
        page: PageNumber,
        level: usize,
    ) -> impl Iterator<Item = PhysAddr> + '_ {
        let (key, _) = section(page, level);
        self.walk[level].iter().flat_map(move |table| table.places(key))
    }

    /// The walk-table entry of a base page.
    pub fn sections(&self, page: PageNumber, level: usize) -> Option<Sections> {
        let (key, _) = section(page, level);
        Some(self.walk[level].as_ref()?.find(key)?.1)
    }

    /// The page that holds a base page.
    pub fn find(&self, page: PageNumber) -> Option<Found> {
        (0..SIZES.len()).find_map(|size| {
            let table = self.pages[size].as_ref()?;
            let key = key(page, SIZES[size]);
            let (way, present) = table.find(key)?;
            let at = self.places(page, size).nth(way)?;
            (present >> part(page, SIZES[size]) & 1 != 0).then_some(Found { size, way, at })
        })
    }

    fn note(&mut self, done: Result<(), OutOfMemory>) {
        self.exhausted = self.exhausted.or(done.err());
    }

    fn add(
        &mut self,
        page: PageNumber,
        size: usize,
        frames: &mut Frames,
    ) -> Result<(), OutOfMemory> {
        let (key, bit) = (key(page, SIZES[size]), 1 << part(page, SIZES[size]));
        if self.pages[size].is_none() {
            let entries = if size == 1 { entries(frames) } else { FEWEST };
            self.pages[size] = Some(Cuckoo::new(WAYS, entries, frames)?);
        }
        let table = self.pages[size].as_mut().expect("it was just made");
        if let Some((way, present)) = table.find_mut(key) {
            let is_new = *present & bit == 0;
            *present |= bit;
            if is_new {
                self.record(page, size, way, frames)?;
            }
            return Ok(());
        }
        table.insert(key, bit, frames)?;
        for moved in table.take_placed() {
            self.record_ways(moved, size, frames)?;
        }
        let (way, _) = self.pages[size].as_ref().and_then(|table| table.find(key)).expect("added");
        self.record(page, size, way, frames)
    }

    /// Records the new way of a moved entry for its pages, if they are larger than 4 KiB.
    fn record_ways(
        &mut self,
        key: u64,
        size: usize,
        frames: &mut Frames,
    ) -> Result<(), OutOfMemory> {
        let table = self.pages[size].as_ref();
        let Some((way, present)) = table.and_then(|table| table.find(key)) else { return Ok(()) };
        let parts = (0..PAGES_PER_ENTRY).filter(|part| size > 0 && present >> part & 1 != 0);
        for part in parts {
            let number = key * u64::from(PAGES_PER_ENTRY) + u64::from(part);
            let page = PageNumber::new(number << SIZES[size].base_shift());
            self.change(page, size - 1, frames, |section| section.way = way as u8 + 1)?;
        }
        Ok(())
    }

    /// Records a new page in the walk tables.
    fn record(
        &mut self,
        page: PageNumber,
        size: usize,
        way: usize,
        frames: &mut Frames,
    ) -> Result<(), OutOfMemory> {
        if size > 0 {
            self.change(page, size - 1, frames, |section| section.way = way as u8 + 1)?;
        }
        for level in size..2 {
            let counted = (SIZES[size], SIZES[level + 1], number(page, SIZES[level + 1]));
            *self.smaller.entry(counted).or_insert(0) += 1;
            self.change(page, level, frames, |section| *flag(section, size) = true)?;
        }
        Ok(())
    }

    fn remove(
        &mut self,
        page: PageNumber,
        size: usize,
        frames: &mut Frames,
    ) -> Result<(), OutOfMemory> {
        let (key, bit) = (key(page, SIZES[size]), 1 << part(page, SIZES[size]));
        let Some(table) = &mut self.pages[size] else { return Ok(()) };
        let Some((_, present)) = table.find_mut(key) else { return Ok(()) };
        if *present & bit == 0 {
            return Ok(());
        }
        *present &= !bit;
        if *present == 0 {
            table.remove(key);
        }
        if size > 0 {
            self.change(page, size - 1, frames, |section| section.way = 0)?;
        }
        for level in size..2 {
            let counted = (SIZES[size], SIZES[level + 1], number(page, SIZES[level + 1]));
            let count = self.smaller.get_mut(&counted).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.smaller.remove(&counted);
                self.change(page, level, frames, |section| *flag(section, size) = false)?;
            }
        }
        Ok(())
    }

    /// Changes the record of a section in a walk table. Empty entries are removed.
    fn change(
        &mut self,
        page: PageNumber,
        level: usize,
        frames: &mut Frames,
        change: impl FnOnce(&mut Section),
    ) -> Result<(), OutOfMemory> {
        let (key, section) = section(page, level);
        let table = self.walk[level].as_mut().expect("tables without memory are not changed");
        if let Some((_, sections)) = table.find_mut(key) {
            change(&mut sections[section]);
            if sections.iter().all(|section| *section == Section::default()) {
                table.remove(key);
            }
            return Ok(());
        }
        let mut sections = [Section::default(); SECTIONS];
        change(&mut sections[section]);
        table.insert(key, sections, frames)?;
        table.take_placed();
        Ok(())
    }

    fn all(&self) -> (impl Iterator<Item = &Cuckoo<u8>>, impl Iterator<Item = &Cuckoo<Sections>>) {
        (self.pages.iter().flatten(), self.walk.iter().flatten())
    }
}

/// Entries of a way of a table of pages at first.
fn entries(frames: &Frames) -> u64 {
    let bytes = frames.shape().frames() * PageSize::BASE.bytes();
    let most = bytes / SHARE / ENTRY_BYTES / WAYS as u64;
    (1 << most.max(FEWEST).ilog2()).min(ENTRIES)
}

/// The place of a page in its entry.
fn part(page: PageNumber, size: PageSize) -> u32 {
    (number(page, size) % u64::from(PAGES_PER_ENTRY)) as u32
}

/// The flag of a section for pages of a size smaller than the section.
fn flag(section: &mut Section, size: usize) -> &mut bool {
    if size == 0 { &mut section.has_base } else { &mut section.has_huge }
}

/// The index of a page size.
fn size_of(size: PageSize) -> usize {
    SIZES.iter().position(|other| *other == size).expect("a page size of x86-64")
}

impl HardwareTable for Tables {
    fn map(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames) {
        if self.exhausted.is_none() {
            let done = self.add(page, size_of(size), frames);
            self.note(done);
        }
    }

    fn unmap(&mut self, page: PageNumber, size: PageSize, frames: &mut Frames) {
        if self.exhausted.is_none() {
            let done = self.remove(page, size_of(size), frames);
            self.note(done);
        }
    }

    fn frames(&self) -> u64 {
        let (pages, walk) = self.all();
        pages.map(Cuckoo::frames).sum::<u64>() + walk.map(Cuckoo::frames).sum::<u64>()
    }

    fn exhausted(&self) -> Option<OutOfMemory> {
        self.exhausted
    }

    fn free(self: Box<Self>, frames: &mut Frames) {
        let (pages, walk) = self.all();
        pages.for_each(|table| table.free(frames));
        walk.for_each(|table| table.free(frames));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use octavo_os::frames::{MemoryShape, Order, Owner};
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Mapped pages: size and number of the page.
    type Pages = BTreeSet<(PageSize, u64)>;

    fn contains(pages: &Pages, page: PageNumber) -> Option<PageSize> {
        SIZES.into_iter().find(|size| pages.contains(&(*size, page.raw() >> size.base_shift())))
    }

    /// The entry of a walk table, computed from the set of pages; `way` gives the ways of pages.
    fn expected(
        pages: &Pages,
        page: PageNumber,
        level: usize,
        way: impl Fn(PageNumber) -> u8,
    ) -> Option<Sections> {
        let own = SIZES[level + 1];
        let mut sections = [Section::default(); SECTIONS];
        for (size, number) in pages.iter().filter(|(size, _)| *size <= own) {
            let first = number << size.base_shift();
            if first >> own.base_shift() >> 6 != page.raw() >> own.base_shift() >> 6 {
                continue;
            }
            let section = &mut sections[(first >> own.base_shift()) as usize % SECTIONS];
            match size {
                size if *size == own => section.way = way(PageNumber::new(first)) + 1,
                size if *size == PageSize::BASE => section.has_base = true,
                _ => section.has_huge = true,
            }
        }
        (sections != [Section::default(); SECTIONS]).then_some(sections)
    }

    /// Pages in few sections, in many, and anywhere; runs of pages of a size, to map or to unmap.
    fn changes() -> impl Strategy<Value = Vec<(bool, usize, u64, u64)>> {
        let page = prop_oneof![
            3 => 0u64..1 << 10,
            3 => (0u64..64).prop_map(|section| section << 9),
            2 => (0u64..200).prop_map(|section| section << 18),
            1 => 0u64..1 << 36,
        ];
        let size = prop_oneof![5 => Just(0usize), 3 => Just(1), 1 => Just(2)];
        vec((prop::bool::weighted(0.7), size, page, 1u64..40), 1..80)
    }

    proptest! {
        #![proptest_config(octavo_oracle::cases(48))]

        #[test]
        fn tables_hold_the_mapped_pages(
            changes in changes(),
            log2 in prop_oneof![Just(10u32), Just(14), Just(19)],
        ) {
            let mut frames = Frames::new(MemoryShape::new(1 << log2, Order::LINUX).unwrap());
            let mut tables = Tables::new(&mut frames);
            let mut pages = Pages::new();
            for (maps, size, first, count) in changes {
                let size = SIZES[size];
                for page in 0..count {
                    let number = (first >> size.base_shift()) + page;
                    let range = number << size.base_shift()..(number + 1) << size.base_shift();
                    let page = PageNumber::new(range.start);
                    let overlap: Vec<_> = pages.iter().copied().filter(|(other, number)| {
                        let first = number << other.base_shift();
                        *other != size
                            && first < range.end
                            && first + (1 << other.base_shift()) > range.start
                    }).collect();
                    for (other, number) in overlap {
                        pages.remove(&(other, number));
                        tables.unmap(PageNumber::new(number << other.base_shift()), other, &mut frames);
                    }
                    if maps {
                        pages.insert((size, number));
                        tables.map(page, size, &mut frames);
                    } else if pages.remove(&(size, number)) {
                        tables.unmap(page, size, &mut frames);
                    }
                    if tables.exhausted().is_some() {
                        break;
                    }
                }
                prop_assert_eq!(frames.used_frames(Owner::PageTable), tables.frames());
                if tables.exhausted().is_some() {
                    prop_assert!(log2 < 19);
                    break;
                }
                let asked: Vec<_> = pages.iter()
                    .flat_map(|(size, number)| {
                        let (first, pages) = (number << size.base_shift(), 1 << size.base_shift());
                        [first.wrapping_sub(1), first, first + pages - 1, first + pages]
                    })
                    .chain([first])
                    .filter(|page| *page < 1 << 52)
                    .map(PageNumber::new)
                    .collect();
                for page in asked {
                    let found = tables.find(page);
                    prop_assert_eq!(found.map(|found| SIZES[found.size]), contains(&pages, page));
                    if let Some(Found { size, way, at }) = found {
                        prop_assert_eq!(tables.places(page, size).nth(way), Some(at));
                    }
                    for level in [0, 1] {
                        let way = |page| tables.find(page).unwrap().way as u8;
                        prop_assert_eq!(
                            tables.sections(page, level),
                            expected(&pages, page, level, way)
                        );
                        prop_assert_eq!(tables.walk_places(page, level).count(), WALK_WAYS);
                    }
                }
            }
            Box::new(tables).free(&mut frames);
            prop_assert_eq!(frames.free_frames(), 1 << log2);
            prop_assert_eq!(frames.check(), Ok(()));
        }
    }
}
