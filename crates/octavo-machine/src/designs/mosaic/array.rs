//! An array of a level: an entry holds a page, or a table of contents, which the number of the table indexes.

use octavo_config::TlbArray;
use octavo_hw::{Asid, GeometryError, SetArray, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{Instructions, PageNumber, PageSize};

use super::entry::{Layout, MosaicEntry};
use crate::counters::Counters;
use crate::tlb::key::{key_of_kind, parts};
use crate::tlb::{EntryArray, Evicted, PageArray, Translation, size_of};

/// An array that holds tables of contents, if it holds base pages and has sets.
pub struct MosaicArray {
    pages: PageArray<MosaicEntry>,
    /// The layout of tables; `None` where there are none.
    layout: Option<Layout>,
    /// Tables filled.
    fills: u64,
    /// Pages that they had then.
    filled_pages: u64,
    /// Base pages filled alone.
    pages_alone: u64,
}

impl MosaicArray {
    /// The sets, if they hold tables.
    #[inline(always)]
    fn sets(&mut self) -> Option<(&mut SetArray<MosaicEntry>, Layout)> {
        match (&mut self.pages, self.layout) {
            (PageArray::Sets { sets, .. }, Some(layout)) => Some((sets, layout)),
            _ => None,
        }
    }

    /// Looks a base page up in its table.
    #[inline(always)]
    fn look_up_in_table(
        &mut self,
        asid: Asid,
        page: PageNumber,
    ) -> Option<(Translation<MosaicEntry>, Slot)> {
        let (sets, layout) = self.sets()?;
        if sets.is_empty() {
            return None;
        }
        let set = sets.geometry().set_of(page.raw() >> layout.order);
        let slot = sets.probe_slot(set, key_of_kind(asid, page, layout.order))?;
        let entry = sets.at(slot).of(page, layout)?;
        sets.touch(slot);
        Some((Translation { size: PageSize::BASE, entry }, slot))
    }
}

impl EntryArray<MosaicEntry> for MosaicArray {
    /// The layout of tables; `None` for a level without tables.
    type Settings = Option<Layout>;

    fn new(
        config: &TlbArray,
        layout: Self::Settings,
        holds_victims: bool,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        let pages = PageArray::new(config, (), holds_victims, instructions)?;
        let layout = layout.filter(|_| match &pages {
            PageArray::Sets { sizes, .. } => sizes.contains(&PageSize::BASE),
            PageArray::AnySize(_) => false,
        });
        Ok(MosaicArray { pages, layout, fills: 0, filled_pages: 0, pages_alone: 0 })
    }

    fn affected(&self, page: PageNumber) -> Option<Pages> {
        match self.layout {
            None => self.pages.affected(page),
            Some(layout) => {
                let (first, _) = layout.place(page);
                Some(first..first + layout.arity() as u64)
            }
        }
    }

    #[inline(always)]
    fn look_up(
        &mut self,
        asid: Asid,
        page: PageNumber,
    ) -> Option<(Translation<MosaicEntry>, Slot)> {
        match self.look_up_in_table(asid, page) {
            None => self.pages.look_up(asid, page),
            found => found,
        }
    }

    #[inline(always)]
    fn touch(&mut self, slot: Slot) {
        self.pages.touch(slot);
    }

    fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        Translation { size, entry }: Translation<MosaicEntry>,
    ) -> Option<Evicted<MosaicEntry>> {
        if self.layout.is_none() || entry.toc.is_empty() {
            self.pages_alone += u64::from(size == PageSize::BASE);
            return self.pages.fill(asid, page, Translation { size, entry: entry.page.into() });
        }
        self.fills += 1;
        self.filled_pages += entry.toc.count();
        let (sets, layout) = self.sets()?;
        let set = sets.geometry().set_of(page.raw() >> layout.order);
        let (key, entry) = sets.insert(set, key_of_kind(asid, page, layout.order), entry)?;
        let (first, order) = parts(key);
        let size = if entry.toc.is_empty() { size_of(order) } else { PageSize::BASE };
        Some((Asid::of(key), first, Translation { size, entry }))
    }

    fn remove(&mut self, asid: Asid, page: PageNumber) {
        if let Some((sets, layout)) = self.sets() {
            let set = sets.geometry().set_of(page.raw() >> layout.order);
            let key = key_of_kind(asid, page, layout.order);
            if let Some(entry) = sets.probe_mut(set, key) {
                entry.toc.remove(layout.place(page).1);
                if entry.toc.is_empty() {
                    sets.invalidate(set, key);
                }
            }
        }
        self.pages.remove(asid, page);
    }

    fn invalidate(&mut self, asid: Asid, range: &Pages) -> usize {
        let Some((sets, layout)) = self.sets() else { return self.pages.invalidate(asid, range) };
        let overlap = |key: u64| {
            let (first, order) = parts(key);
            let (first, end) = (first.raw(), first.raw() + (1 << order));
            let is_touched = Asid::of(key) == asid && first < range.end && range.start < end;
            is_touched.then(|| range.start.max(first)..range.end.min(end))
        };
        let tables = sets.iter().filter(|(_, _, entry)| !entry.toc.is_empty());
        let tables: Vec<_> =
            tables.filter_map(|(set, key, _)| Some((set, key, overlap(key)?))).collect();
        for (set, key, gone) in tables {
            let entry = sets.probe_mut(set, key).expect("it is in its set");
            gone.for_each(|page| entry.toc.remove(layout.place(PageNumber::new(page)).1));
        }
        // Pages alone, and tables that are empty now.
        sets.invalidate_if(|key, entry| entry.toc.is_empty() && overlap(key).is_some())
    }

    fn clear(&mut self) {
        self.pages.clear();
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        if self.layout.is_some() {
            counters.add(component, "fills", self.fills);
            counters.add(component, "filled_pages", self.filled_pages);
            counters.add(component, "pages_alone", self.pages_alone);
        }
    }
}
