//! Address spaces as programs see them: the contents of every page, without frames.

use std::collections::BTreeMap;
use std::ops::Range;

use octavo_types::{AddrRange, Event, MapSource};

/// The initial value of a page of a file, unique to the page.
pub const fn file_value(object: u32, index: u64) -> u64 {
    1 << 63 | (object as u64) << 40 | index
}

/// A page of an object, which is a file or shared memory.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct ObjectPage {
    object: u32,
    index: u64,
}

/// One page of an address space.
#[derive(Clone, Copy, Debug, Default)]
struct Page {
    /// The mapped page of an object, and whether stores go to the object.
    object: Option<(ObjectPage, bool)>,
    /// The value in the process's own copy.
    own: Option<u64>,
}

type Space = BTreeMap<u64, Page>;

/// The memory of several processes, after the manual pages of `mmap`, `mremap`, `madvise` and
/// `fork`. A page holds one number; untouched memory holds 0.
#[derive(Clone, Debug, Default)]
pub struct NaiveSpaces {
    spaces: BTreeMap<u32, Space>,
    /// The values stored to objects.
    stored: BTreeMap<ObjectPage, u64>,
    /// The objects in the order of their first mapping: the path of a file, or `None` for shared memory.
    objects: Vec<Option<String>>,
}

/// The base pages of a range of addresses.
fn pages(range: AddrRange) -> Range<u64> {
    range.start().raw() >> 12..(range.end().raw() + 0xfff) >> 12
}

impl NaiveSpaces {
    /// Adds a process without memory.
    pub fn spawn(&mut self, process: u32) {
        let before = self.spaces.insert(process, Space::new());
        assert!(before.is_none(), "the process lives");
    }

    /// Adds a child with a copy of its parent's memory. Objects stay shared.
    pub fn fork(&mut self, parent: u32, child: u32) {
        let copy = self.spaces[&parent].clone();
        let before = self.spaces.insert(child, copy);
        assert!(before.is_none(), "the process lives");
    }

    /// Removes a process.
    pub fn end(&mut self, process: u32) {
        self.spaces.remove(&process).expect("the process lives");
    }

    /// The value that a load from a page returns.
    pub fn load(&self, process: u32, page: u64) -> u64 {
        let page = self.spaces[&process].get(&page).copied().unwrap_or_default();
        match (page.own, page.object) {
            (Some(value), _) => value,
            (None, Some((mapped, _))) => {
                match (self.stored.get(&mapped), &self.objects[mapped.object as usize]) {
                    (Some(value), _) => *value,
                    (None, Some(_)) => file_value(mapped.object, mapped.index),
                    (None, None) => 0,
                }
            }
            (None, None) => 0,
        }
    }

    /// Stores a value to a page.
    pub fn store(&mut self, process: u32, page: u64, value: u64) {
        let space = self.spaces.get_mut(&process).expect("the process lives");
        let page = space.entry(page).or_default();
        match page.object {
            Some((mapped, true)) => drop(self.stored.insert(mapped, value)),
            _ => page.own = Some(value),
        }
    }

    /// The pages of which the process has its own copy.
    pub fn own_pages(&self, process: u32) -> impl Iterator<Item = u64> + '_ {
        self.spaces[&process].iter().filter(|(_, page)| page.own.is_some()).map(|(page, _)| *page)
    }

    /// Applies an event that changes the mappings of a process.
    pub fn event(&mut self, process: u32, event: &Event) {
        match event {
            Event::Map { range, source, flags, .. } => {
                let object = match source {
                    MapSource::Anonymous if flags & 1 == 0 => None,
                    MapSource::Heap | MapSource::Stack => None,
                    MapSource::Anonymous | MapSource::Shared => Some((self.object(None), 0, true)),
                    MapSource::File { path, offset_bytes } => {
                        Some((self.object(Some(path)), offset_bytes >> 12, flags & 1 != 0))
                    }
                };
                for (number, page) in pages(*range).enumerate() {
                    let object = object.map(|(object, first, shared)| {
                        (ObjectPage { object, index: first + number as u64 }, shared)
                    });
                    self.space(process).insert(page, Page { object, own: None });
                }
            }
            Event::Unmap { range } => {
                self.space(process).retain(|page, _| !pages(*range).contains(page));
            }
            Event::Remap { from, to } => self.remap(process, pages(*from), pages(*to)),
            // MADV_DONTNEED, MADV_FREE
            Event::Advise { range, advice: 4 | 8 } => {
                for page in pages(*range) {
                    if let Some(page) = self.space(process).get_mut(&page) {
                        page.own = None;
                    }
                }
            }
            _ => {}
        }
    }

    /// Moves a mapping. New pages at its end continue the object of its last page.
    fn remap(&mut self, process: u32, from: Range<u64>, to: Range<u64>) {
        let space = self.space(process);
        let moved: Vec<(u64, Page)> = from
            .clone()
            .filter_map(|page| Some((page - from.start, space.remove(&page)?)))
            .collect();
        space.retain(|page, _| !to.contains(page));
        let length = to.end - to.start;
        for (number, page) in moved.iter().filter(|(number, _)| *number < length) {
            space.insert(to.start + number, *page);
        }
        if let Some((last, page)) = moved.last() {
            for number in last + 1..length {
                let object = page.object.map(|(mapped, shared)| {
                    (ObjectPage { index: mapped.index + (number - last), ..mapped }, shared)
                });
                space.insert(to.start + number, Page { object, own: None });
            }
        }
    }

    /// The number of a file, or of new shared memory.
    fn object(&mut self, path: Option<&str>) -> u32 {
        let is_known = |object: &Option<String>| path.is_some() && object.as_deref() == path;
        let known = self.objects.iter().position(is_known);
        let number = known.unwrap_or(self.objects.len());
        if known.is_none() {
            self.objects.push(path.map(str::to_owned));
        }
        number as u32
    }

    fn space(&mut self, process: u32) -> &mut Space {
        self.spaces.get_mut(&process).expect("the process lives")
    }
}
