//! The arrays of a TLB level.

use octavo_config::{PageSizes, TlbArray};
use octavo_hw::{AnySizeArray, Asid, GeometryError, SetArray, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use super::entry::Entry;
use super::key::{key, key_of_kind, parts};
use super::{Translation, size_of};
use crate::counters::Counters;

/// An evicted entry: its address space, its first base page and its translation.
pub type Evicted<E> = (Asid, PageNumber, Translation<E>);

/// The settings of the arrays of an entry format.
pub type EntrySettings<E> = <<E as Entry>::Array as EntryArray<E>>::Settings;

/// An array of a TLB level: how entries of a format are looked up, which pages they cover, and how they merge.
pub trait EntryArray<E: Entry>: Sized + Send {
    /// Settings of a level, beside those of a machine.
    type Settings: Copy + Send;

    /// An empty array. `holds_victims` is set for an array that is filled by evictions instead of misses.
    ///
    /// # Errors
    /// If its entries and ways do not fit.
    fn new(
        config: &TlbArray,
        settings: Self::Settings,
        holds_victims: bool,
        instructions: Instructions,
    ) -> Result<Self, GeometryError>;

    /// An additional array of the first-level data TLB or the second level, and its name. It is looked up last.
    fn additional(_settings: Self::Settings) -> Option<(&'static str, Self)> {
        None
    }

    /// Whether a page is filled into this array, instead of the one for its size.
    #[inline(always)]
    fn claims(&self, _translation: &Translation<E>) -> bool {
        false
    }

    /// The base pages whose look-ups a fill of a base page may change; `None` if unknown.
    #[inline(always)]
    fn affected(&self, page: PageNumber) -> Option<Pages> {
        Some(page.raw()..page.raw() + 1)
    }

    /// Looks a base page up: its translation and slot, if present. A hit uses the entry.
    fn look_up(&mut self, asid: Asid, page: PageNumber) -> Option<(Translation<E>, Slot)>;

    /// Uses the entry of an earlier look-up again; it must still be at `slot`.
    fn touch(&mut self, slot: Slot);

    /// Fills the page that holds a base page, and returns the evicted entry. Where the new entry overlaps
    /// others, it merges with them or removes them.
    fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<E>,
    ) -> Option<Evicted<E>>;

    /// Removes the entries that cover a base page.
    fn remove(&mut self, asid: Asid, page: PageNumber);

    /// Removes the entries that overlap any of these base pages, and returns their number.
    fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize;

    /// Removes all entries.
    fn clear(&mut self);

    /// Adds the array's own counters, beside those of look-ups, as `component`.
    fn report(&self, _component: &str, _counters: &mut Counters) {}
}

/// An array whose entries each hold one page.
pub enum PageArray<E: Entry> {
    /// A set-associative array, looked up once per page size.
    Sets {
        /// Smallest size first.
        sizes: Vec<PageSize>,
        /// The entries, by address space, page and size.
        sets: SetArray<E>,
    },
    /// A fully associative array of pages of any size.
    AnySize(AnySizeArray<E>),
}

impl<E: Entry> PageArray<E> {
    /// Whether it has sets, which can hold entries of another kind.
    pub fn has_sets(&self) -> bool {
        matches!(self, PageArray::Sets { .. })
    }

    /// Whether an entry covers a base page. This is not a use of the entry.
    pub fn holds(&self, asid: Asid, page: PageNumber) -> bool {
        match self {
            PageArray::Sets { sizes, sets } => sizes.iter().any(|size| {
                let order = size.base_shift();
                let set = sets.geometry().set_of(page.raw() >> order);
                sets.probe(set, key(asid, page, order)).is_some()
            }),
            PageArray::AnySize(array) => array.holds(asid, page),
        }
    }

    /// Looks up the entry of another kind for the 2^`order` base pages around `page`. A hit uses the entry.
    pub fn look_up_kind(&mut self, asid: Asid, page: PageNumber, order: u8) -> Option<E> {
        self.look_up_kind_if(asid, page, order, |_| true)
    }

    /// As [`PageArray::look_up_kind`], except that an entry that does not suffice is not a hit.
    pub fn look_up_kind_if(
        &mut self,
        asid: Asid,
        page: PageNumber,
        order: u8,
        suffices: impl FnOnce(&E) -> bool,
    ) -> Option<E> {
        let PageArray::Sets { sets, .. } = self else { return None };
        let set = sets.geometry().set_of(page.raw() >> order);
        let slot = sets.probe_slot(set, key_of_kind(asid, page, order))?;
        let entry = *sets.at(slot);
        suffices(&entry).then(|| {
            sets.touch(slot);
            entry
        })
    }

    /// Fills an entry of another kind for the 2^`order` base pages around `page`.
    pub fn fill_kind(&mut self, asid: Asid, page: PageNumber, order: u8, entry: E) {
        if let PageArray::Sets { sets, .. } = self {
            let set = sets.geometry().set_of(page.raw() >> order);
            sets.insert(set, key_of_kind(asid, page, order), entry);
        }
    }

    /// The entries of its sets: address space, first base page, order of the number of base pages, and entry.
    pub fn entries(&self) -> impl Iterator<Item = (Asid, PageNumber, u8, E)> {
        let sets = match self {
            PageArray::Sets { sets, .. } => Some(sets),
            PageArray::AnySize(_) => None,
        };
        sets.into_iter().flat_map(SetArray::iter).map(|(_, key, entry)| {
            let (first, order) = parts(key);
            (Asid::of(key), first, order, *entry)
        })
    }
}

impl<E: Entry> EntryArray<E> for PageArray<E> {
    type Settings = ();

    fn new(
        config: &TlbArray,
        (): (),
        _holds_victims: bool,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        Ok(match &config.page_sizes {
            PageSizes::Any => {
                let array = AnySizeArray::new(config.entries, config.replacement, instructions)?;
                PageArray::AnySize(array)
            }
            PageSizes::List(sizes) => {
                let geometry = config.geometry()?;
                let mut sizes = sizes.clone();
                sizes.sort_unstable();
                let sets = SetArray::new(geometry, config.replacement, instructions);
                PageArray::Sets { sizes, sets }
            }
        })
    }

    #[inline(always)]
    fn look_up(&mut self, asid: Asid, page: PageNumber) -> Option<(Translation<E>, Slot)> {
        match self {
            PageArray::Sets { sizes, sets } => {
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
            PageArray::AnySize(array) => {
                let (size, entry, slot) = array.look_up_slot(asid, page)?;
                Some((Translation { size, entry }, slot))
            }
        }
    }

    #[inline(always)]
    fn touch(&mut self, slot: Slot) {
        match self {
            PageArray::Sets { sets, .. } => sets.touch(slot),
            PageArray::AnySize(array) => array.touch(slot),
        }
    }

    fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<E>,
    ) -> Option<Evicted<E>> {
        let order = translation.size.base_shift();
        match self {
            PageArray::Sets { sets, .. } => {
                let set = sets.geometry().set_of(page.raw() >> order);
                let (key, entry) = sets.insert(set, key(asid, page, order), translation.entry)?;
                let (first, order) = parts(key);
                Some((Asid::of(key), first, Translation { size: size_of(order), entry }))
            }
            PageArray::AnySize(array) => {
                let number = PageNumber::new(page.raw() >> order);
                let (evicted_asid, number, size, entry) =
                    array.insert(asid, number, translation.size, translation.entry)?;
                let first = PageNumber::new(number.raw() << size.base_shift());
                Some((evicted_asid, first, Translation { size, entry }))
            }
        }
    }

    fn remove(&mut self, asid: Asid, page: PageNumber) {
        match self {
            PageArray::Sets { sizes, sets } => {
                for size in sizes.iter() {
                    let order = size.base_shift();
                    let set = sets.geometry().set_of(page.raw() >> order);
                    sets.invalidate(set, key(asid, page, order));
                }
            }
            PageArray::AnySize(array) => {
                array.invalidate(asid, page..PageNumber::new(page.raw() + 1));
            }
        }
    }

    fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        match self {
            PageArray::Sets { sets, .. } => sets.invalidate_if(|key, _| {
                let (first, order) = parts(key);
                let end = first.raw() + (1 << order);
                Asid::of(key) == asid && first.raw() < pages.end && pages.start < end
            }),
            PageArray::AnySize(array) => {
                array.invalidate(asid, PageNumber::new(pages.start)..PageNumber::new(pages.end))
            }
        }
    }

    fn clear(&mut self) {
        match self {
            PageArray::Sets { sets, .. } => sets.clear(),
            PageArray::AnySize(array) => array.clear(),
        }
    }
}
