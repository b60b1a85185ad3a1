//! The first TLB level: split for instructions and data, or unified.

use octavo_config::{FirstLevel, TlbLevel};
use octavo_hw::Asid;
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use super::{Entry, EntrySettings, Evicted, PageArray, Tlb, TlbEntry, Translation};
use crate::config::ConfigError;
use crate::counters::Counters;
use crate::front::LineAccess;

/// The first TLB level.
pub struct L1Tlb<E: Entry = TlbEntry> {
    /// The instruction and data TLBs, or the unified one.
    tlbs: Box<[Tlb<E>]>,
    /// Index of the data TLB.
    data: usize,
}

/// The outcome of a TLB look-up.
pub enum Lookup<E = TlbEntry> {
    /// The entry is present and permits the access.
    Hit(Translation<E>),
    /// The entry is present, and was counted as a hit, but the page table must be walked.
    PermissionMiss {
        /// Whether the page is writable, so that only its dirty bit may have to be set.
        is_clean: bool,
    },
    /// No entry covers the page.
    Miss,
}

impl<E: Entry> Lookup<E> {
    /// The outcome of a look-up, for a store or another access.
    #[inline(always)]
    pub(crate) fn of(found: Option<Translation<E>>, stores: bool) -> Self {
        match found {
            Some(translation) if translation.entry.page().permits(stores) => {
                Lookup::Hit(translation)
            }
            Some(translation) => {
                Lookup::PermissionMiss { is_clean: translation.entry.page().is_writable() }
            }
            None => Lookup::Miss,
        }
    }

    /// Whether a store found a clean page, so that the walk which follows is made to set its dirty bit.
    pub(crate) fn is_clean(&self) -> bool {
        matches!(self, Lookup::PermissionMiss { is_clean: true })
    }
}

impl<E: Entry> L1Tlb<E> {
    /// An empty level. The [additional](super::EntryArray::additional) array of its entries, if they have one,
    /// belongs to the data TLB.
    ///
    /// # Errors
    /// If an array's entries and ways do not fit.
    pub fn new(
        config: &FirstLevel,
        settings: EntrySettings<E>,
        instructions: Instructions,
    ) -> Result<Self, ConfigError> {
        let new = |level, config: &TlbLevel| {
            Tlb::new(config, settings, instructions)
                .map_err(|error| ConfigError::Tlb { level, error })
        };
        Ok(match config {
            FirstLevel::Split { l1i, l1d } => L1Tlb {
                tlbs: [new("l1i", l1i)?, new("l1d", l1d)?.with_additional(settings)].into(),
                data: 1,
            },
            FirstLevel::Unified { l1 } => {
                L1Tlb { tlbs: [new("l1", l1)?.with_additional(settings)].into(), data: 0 }
            }
        })
    }

    /// Index of the TLB that an access looks up; 0 if unified.
    #[inline(always)]
    pub(crate) fn side(&self, access: LineAccess) -> usize {
        access.side() & self.data
    }

    /// The size of the entry that an access fills for a page of this size, if any array holds it.
    pub(crate) fn entry_size(&self, access: LineAccess, size: PageSize) -> Option<PageSize> {
        self.tlbs[self.side(access)].entry_size(size)
    }

    /// Looks up the page of a reference and its repeats.
    #[inline(always)]
    pub fn look_up(&mut self, asid: Asid, page: PageNumber, access: LineAccess) -> Lookup<E> {
        let side = self.side(access);
        let found = self.tlbs[side].look_up(asid, page, access.lookups());
        let lookup = Lookup::of(found, access.is_store());
        if let Lookup::PermissionMiss { .. } = lookup {
            self.tlbs[side].retract(asid, page, access.lookups());
        }
        lookup
    }

    /// Fills a page after a miss, and returns the evicted page.
    pub fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<E>,
        access: LineAccess,
    ) -> Option<Evicted<E>> {
        self.tlbs[self.side(access)].fill(asid, page, translation, access.lookups())
    }

    /// Replaces an entry that did not permit the access, and returns the evicted page.
    pub fn replace(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<E>,
        access: LineAccess,
    ) -> Option<Evicted<E>> {
        let tlb = &mut self.tlbs[self.side(access)];
        tlb.remove(asid, page);
        tlb.fill(asid, page, translation, access.lookups())
    }

    /// Whether an entry for either side covers a base page. This is not a use of the entry.
    pub fn holds(&self, asid: Asid, page: PageNumber) -> bool
    where
        E: Entry<Array = PageArray<E>>,
    {
        self.tlbs.iter().any(|tlb| tlb.holds(asid, page))
    }

    /// Removes all entries that overlap any of these base pages, and returns their number.
    pub fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        self.tlbs.iter_mut().map(|tlb| tlb.invalidate(asid, pages)).sum()
    }

    /// Removes all entries.
    pub fn clear(&mut self) {
        self.tlbs.iter_mut().for_each(Tlb::clear);
    }

    /// Reports its counters.
    pub fn report(&self, counters: &mut Counters) {
        let names: &[&str] = if self.data == 0 { &["tlb.l1"] } else { &["tlb.l1i", "tlb.l1d"] };
        for (tlb, name) in self.tlbs.iter().zip(names) {
            tlb.report(name, counters);
        }
    }
}
