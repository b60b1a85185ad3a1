//! One array of a TLB.

mod perforated;

use octavo_config::{PageSizes, TlbArray};
use octavo_hw::{AnySizeArray, Asid, GeometryError, SetArray, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use super::groups::Groups;
use super::key::{key, parts};
use super::ranges::Ranges;
use super::{LongRuns, TlbEntry, Translation, size_of};

/// An array and its name.
pub struct Array {
    pub name: String,
    /// Whether its replacement policy reacts to a repeated use of the most recent entry of a set.
    pub retouch_changes: bool,
    store: Store,
}

enum Store {
    /// A set-associative array, looked up once per page size.
    Sets {
        /// Smallest size first.
        sizes: Vec<PageSize>,
        sets: SetArray<TlbEntry>,
    },
    AnySize(AnySizeArray<TlbEntry>),
    Groups(Groups),
    Ranges {
        ranges: Ranges,
        /// Maximum length to which neighbours are merged, in pages.
        limit_pages: u64,
    },
}

impl Array {
    pub fn new(
        name: &str,
        config: &TlbArray,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        let store = match &config.page_sizes {
            PageSizes::Any => {
                Store::AnySize(AnySizeArray::new(config.entries, config.replacement, instructions)?)
            }
            PageSizes::List(sizes) => {
                let geometry = config.geometry()?;
                let mut sizes = sizes.clone();
                sizes.sort_unstable();
                let sets = SetArray::new(geometry, config.replacement, instructions);
                Store::Sets { sizes, sets }
            }
        };
        let retouch_changes = config.replacement.retouch_changes();
        Ok(Array { name: name.to_owned(), retouch_changes, store })
    }

    /// An array whose entries each hold a run of base pages inside an aligned group of 2^`group_log2`,
    /// indexed by group. `holds_victims` is set for an array that is filled by evictions instead of misses.
    pub fn of_groups(
        name: &str,
        config: &TlbArray,
        (group_log2, holds_victims): (u8, bool),
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        let groups = Groups::new(config, group_log2, holds_victims, instructions)?;
        let store = Store::Groups(groups);
        let retouch_changes = config.replacement.retouch_changes();
        Ok(Array { name: name.to_owned(), retouch_changes, store })
    }

    /// An array of runs of any length, merged with runs that they continue.
    pub fn of_ranges(config: &LongRuns) -> Self {
        let LongRuns { name, entries, limit_pages, .. } = *config;
        let store = Store::Ranges { ranges: Ranges::new(entries), limit_pages };
        Array { name: name.to_owned(), retouch_changes: false, store }
    }

    /// Looks a base page up: its translation and slot, if present. A hit uses the entry.
    #[inline(always)]
    pub fn look_up(&mut self, asid: Asid, page: PageNumber) -> Option<(Translation, Slot)> {
        match &mut self.store {
            Store::Sets { sizes, sets } => {
                if sets.is_empty() {
                    return None;
                }
                sizes.iter().find_map(|&size| {
                    let order = size.base_shift();
                    let set = sets.geometry().set_of(page.raw() >> order);
                    let slot = sets.look_up_slot(set, key(asid, page, order))?;
                    Some((Translation { size, entry: *sets.at(slot) }, slot))
                })
            }
            Store::AnySize(array) => {
                let (size, entry, slot) = array.look_up_slot(asid, page)?;
                Some((Translation { size, entry }, slot))
            }
            Store::Groups(groups) => groups.look_up(asid, page),
            Store::Ranges { ranges, .. } => {
                let (translation, at) = ranges.look_up(asid, page)?;
                Some((translation, Slot::of_only_set(at as u32)))
            }
        }
    }

    /// Uses the entry of an earlier look-up again; it must still be at `slot`.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot) {
        match &mut self.store {
            Store::Sets { sets, .. } => sets.touch(slot),
            Store::AnySize(array) => array.touch(slot),
            Store::Groups(groups) => groups.touch(slot),
            Store::Ranges { ranges, .. } => ranges.touch(slot.at()),
        }
    }

    /// Fills the page that holds a base page, and returns the evicted entry. (An evicted range is lost: no
    /// other array could hold it.)
    pub fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation,
    ) -> Option<(Asid, PageNumber, Translation)> {
        let order = translation.size.base_shift();
        match &mut self.store {
            Store::Sets { sets, .. } => {
                let set = sets.geometry().set_of(page.raw() >> order);
                let (key, entry) = sets.insert(set, key(asid, page, order), translation.entry)?;
                let (first, order) = parts(key);
                Some((Asid::of(key), first, Translation { size: size_of(order), entry }))
            }
            Store::AnySize(array) => {
                let number = PageNumber::new(page.raw() >> order);
                let (number, size, entry) =
                    array.insert(asid, number, translation.size, translation.entry)?;
                let first = PageNumber::new(number.raw() << size.base_shift());
                Some((asid, first, Translation { size, entry }))
            }
            Store::Groups(groups) => groups.fill(asid, page, translation),
            Store::Ranges { ranges, limit_pages } => {
                let (before, first) = translation.first_of_run();
                let pages = first.entry.run().1 + 1;
                let start = page.raw() - before;
                ranges.merge(asid, start..start + pages, first.entry, *limit_pages);
                None
            }
        }
    }

    /// Removes the entries that cover a base page.
    pub fn remove(&mut self, asid: Asid, page: PageNumber) {
        match &mut self.store {
            Store::Sets { sizes, sets } => {
                for size in sizes.iter() {
                    let order = size.base_shift();
                    let set = sets.geometry().set_of(page.raw() >> order);
                    sets.invalidate(set, key(asid, page, order));
                }
            }
            Store::AnySize(array) => {
                array.invalidate(asid, page..PageNumber::new(page.raw() + 1));
            }
            Store::Groups(groups) => groups.remove(asid, page),
            Store::Ranges { ranges, .. } => {
                ranges.invalidate(asid, &(page.raw()..page.raw() + 1));
            }
        }
    }

    /// Removes the entries that overlap any of these base pages, and returns their number.
    pub fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        match &mut self.store {
            Store::Sets { sets, .. } => sets.invalidate_if(|key, _| {
                let (first, order) = parts(key);
                let end = first.raw() + (1 << order);
                Asid::of(key) == asid && first.raw() < pages.end && pages.start < end
            }),
            Store::AnySize(array) => {
                array.invalidate(asid, PageNumber::new(pages.start)..PageNumber::new(pages.end))
            }
            Store::Groups(groups) => groups.invalidate(asid, pages),
            Store::Ranges { ranges, .. } => ranges.invalidate(asid, pages),
        }
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        match &mut self.store {
            Store::Sets { sets, .. } => sets.clear(),
            Store::AnySize(array) => array.clear(),
            Store::Groups(groups) => groups.clear(),
            Store::Ranges { ranges, .. } => ranges.clear(),
        }
    }
}
