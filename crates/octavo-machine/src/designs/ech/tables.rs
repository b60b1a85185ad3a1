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
/// A small memory gives a table at first no more than this part of itself.
const SHARE: u64 = 1 << 11;
/// The fewest entries of a way: one frame of them.
const FEWEST: u64 = 64;

/// What a walk table knows of a section: of 2 MiB in the lower table, of 1 GiB in the upper one.
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

/// Where an entry of a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Found {
    /// The index of the page's size in [`SIZES`].
    pub size: usize,
    /// The way.
    pub way: usize,
    /// The part of the entry that is the page's.
    pub at: PhysAddr,
}

/// The number of a base page's page of a size.
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
    pub fn walk_places(&self, page: PageNumber, level: usize) -> impl Iterator<Item = PhysAddr> + '_ {
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

    fn add(&mut self, page: PageNumber, size: usize, frames: &mut Frames) -> Result<(), OutOfMemory> {
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

    /// Records the way of an entry that has moved, for its pages: only of pages larger than 4 KiB.
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
            self.change(page, size - 1, frames, |of| of.way = way as u8 + 1)?;
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
            self.change(page, size - 1, frames, |of| of.way = way as u8 + 1)?;
        }
        for level in size..2 {
            let of = (SIZES[size], SIZES[level + 1], number(page, SIZES[level + 1]));
            *self.smaller.entry(of).or_insert(0) += 1;
            self.change(page, level, frames, |of| *flag(of, size) = true)?;
        }
        Ok(())
    }

    fn remove(&mut self, page: PageNumber, size: usize, frames: &mut Frames) -> Result<(), OutOfMemory> {
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
            self.change(page, size - 1, frames, |of| of.way = 0)?;
        }
        for level in size..2 {
            let of = (SIZES[size], SIZES[level + 1], number(page, SIZES[level + 1]));
            let count = self.smaller.get_mut(&of).expect("it was counted");
            *count -= 1;
            if *count == 0 {
                self.smaller.remove(&of);
                self.change(page, level, frames, |of| *flag(of, size) = false)?;
            }
        }
        Ok(())
    }

    /// Changes what a walk table knows of a section. Empty entries are removed.
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

/// Whether a section has pages of a size smaller than the section.
fn flag(of: &mut Section, size: usize) -> &mut bool {
    if size == 0 { &mut of.has_base } else { &mut of.has_huge }
}

/// The index of a page size.
fn size_of(size: PageSize) -> usize {
    SIZES.iter().position(|of| *of == size).expect("a page size of x86-64")
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
