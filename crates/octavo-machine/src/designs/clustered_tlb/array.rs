//! The arrays of the second level: those for pages, and a set-associative one for clusters.

use octavo_config::TlbArray;
use octavo_hw::{Asid, Geometry, GeometryError, Replacement, SetArray, Slot};
use octavo_os::vmas::Pages;
use octavo_types::{FrameNumber, Instructions, PageNumber, PageSize};

use super::entry::{ClusterEntry, Subpages};
use super::settings::ClusteredTlbSettings;
use crate::counters::Counters;
use crate::tlb::key::{key, parts};
use crate::tlb::{Entry, EntryArray, Evicted, PageArray, Translation};

/// The array of clusters.
#[derive(Clone, Copy, Debug)]
pub struct ClusterConfig {
    pub geometry: Geometry,
    replacement: Replacement,
    /// Base pages of a cluster: a power of two.
    pub pages: u64,
    /// The fewest pages with which an entry is filled.
    pub min_pages: u64,
}

impl ClusterConfig {
    /// An array of `sets` sets of `ways` ways, where a cache line has `line_entries` page-table entries; `None` if it
    /// would be empty.
    pub fn new(
        (sets, ways): (u64, u64),
        replacement: Replacement,
        settings: &ClusteredTlbSettings,
        line_entries: u64,
    ) -> Option<Self> {
        let geometry = Geometry::new(sets, ways).ok()?;
        let pages = settings.cluster_pages.min(line_entries);
        let min_pages = settings.min_pages.min(pages);
        Some(ClusterConfig { geometry, replacement, pages, min_pages })
    }
}

/// An array of the second level.
pub enum ClusterArray {
    /// Single pages.
    Pages(PageArray<ClusterEntry>),
    Clusters(Clusters),
}

/// An array of clusters, indexed by the number of the cluster. The entries of a cluster have no page in common. The key
/// of an entry is any page of the cluster that is not the key of another entry.
pub struct Clusters {
    /// Base pages of a cluster.
    pages: u64,
    sets: SetArray<ClusterEntry>,
    fills: u64,
    /// Pages filled.
    filled_pages: u64,
}

impl Clusters {
    /// The first page of the cluster of a base page, and its set.
    #[inline(always)]
    fn cluster_of(&self, page: PageNumber) -> (u64, usize) {
        let number = page.raw() / self.pages;
        (number * self.pages, self.sets.geometry().set_of(number))
    }

    /// The keys that entries of the cluster of a base page may have.
    #[inline(always)]
    fn keys(&self, asid: Asid, first: u64) -> impl Iterator<Item = u64> + use<> {
        (first..first + self.pages).map(move |page| key(asid, PageNumber::new(page), 0))
    }

    /// The slot of the entry that holds a base page, its key, and the low bits of the page's frame.
    #[inline(always)]
    fn find(&self, asid: Asid, page: PageNumber) -> Option<(Slot, u64, u64)> {
        if self.sets.is_empty() {
            return None;
        }
        let (first, set) = self.cluster_of(page);
        self.keys(asid, first).find_map(|key| {
            let slot = self.sets.probe_slot(set, key)?;
            let low = self.sets.at(slot).subpages.get(page.raw() - first)?;
            Some((slot, key, low))
        })
    }

    fn look_up(
        &mut self,
        asid: Asid,
        page: PageNumber,
    ) -> Option<(Translation<ClusterEntry>, Slot)> {
        let (slot, _, low) = self.find(asid, page)?;
        self.sets.touch(slot);
        let entry = *self.sets.at(slot);
        let group = entry.page.frame().raw() / self.pages * self.pages;
        let entry = entry.with_page(entry.page.at(FrameNumber::new(group + low)));
        Some((Translation { size: PageSize::BASE, entry }, slot))
    }

    fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        entry: ClusterEntry,
    ) -> Option<Evicted<ClusterEntry>> {
        let (first, set) = self.cluster_of(page);
        let mut free = None;
        for key in self.keys(asid, first) {
            self.clear_pages(set, key, entry.subpages);
            if free.is_none() && self.sets.probe_slot(set, key).is_none() {
                free = Some(key);
            }
        }
        self.fills += 1;
        self.filled_pages += entry.subpages.count();
        let free = free.expect("no two entries have a page in common");
        let (key, entry) = self.sets.insert_missed(set, free, entry)?;
        let translation = Translation { size: PageSize::BASE, entry };
        Some((Asid::of(key), parts(key).0, translation))
    }

    /// Clears pages of the entry with this key, if there is one, and removes the entry if no pages are left. Returns
    /// whether the entry was removed.
    fn clear_pages(&mut self, set: usize, key: u64, gone: Subpages) -> bool {
        let Some(entry) = self.sets.probe_mut(set, key) else { return false };
        entry.subpages = entry.subpages.without(gone);
        entry.subpages.is_empty() && self.sets.invalidate(set, key).is_some()
    }

    fn invalidate(&mut self, asid: Asid, pages: &Pages) -> usize {
        let touched = |key: u64| {
            let (first, _) = self.cluster_of(parts(key).0);
            Asid::of(key) == asid && first < pages.end && pages.start < first + self.pages
        };
        let touched: Vec<_> = self
            .sets
            .iter()
            .map(|(set, key, _)| (set, key))
            .filter(|(_, key)| touched(*key))
            .collect();
        let mut removed = 0;
        for (set, key) in touched {
            let (first, _) = self.cluster_of(parts(key).0);
            let gone = (0..self.pages).filter(|at| pages.contains(&(first + at)));
            let gone = gone.map(|at| (at, 0)).collect();
            removed += usize::from(self.clear_pages(set, key, gone));
        }
        removed
    }
}

impl EntryArray<ClusterEntry> for ClusterArray {
    /// The array of clusters, if there is one.
    type Settings = Option<(ClusterConfig, Instructions)>;

    fn new(
        config: &TlbArray,
        _: Self::Settings,
        holds_victims: bool,
        instructions: Instructions,
    ) -> Result<Self, GeometryError> {
        Ok(ClusterArray::Pages(PageArray::new(config, (), holds_victims, instructions)?))
    }

    fn additional(settings: Self::Settings) -> Option<(&'static str, Self)> {
        let (ClusterConfig { geometry, replacement, pages, .. }, instructions) = settings?;
        let sets = SetArray::new(geometry, replacement, instructions);
        let clusters = Clusters { pages, sets, fills: 0, filled_pages: 0 };
        Some(("clusters", ClusterArray::Clusters(clusters)))
    }

    fn claims(&self, translation: &Translation<ClusterEntry>) -> bool {
        matches!(self, ClusterArray::Clusters(_)) && !translation.entry.subpages.is_empty()
    }

    fn affected(&self, page: PageNumber) -> Option<Pages> {
        match self {
            ClusterArray::Pages(pages) => pages.affected(page),
            ClusterArray::Clusters(clusters) => {
                let (first, _) = clusters.cluster_of(page);
                Some(first..first + clusters.pages)
            }
        }
    }

    fn look_up(
        &mut self,
        asid: Asid,
        page: PageNumber,
    ) -> Option<(Translation<ClusterEntry>, Slot)> {
        match self {
            ClusterArray::Pages(pages) => pages.look_up(asid, page),
            ClusterArray::Clusters(clusters) => clusters.look_up(asid, page),
        }
    }

    fn touch(&mut self, slot: Slot) {
        match self {
            ClusterArray::Pages(pages) => pages.touch(slot),
            ClusterArray::Clusters(clusters) => clusters.sets.touch(slot),
        }
    }

    fn fill(
        &mut self,
        asid: Asid,
        page: PageNumber,
        translation: Translation<ClusterEntry>,
    ) -> Option<Evicted<ClusterEntry>> {
        match self {
            ClusterArray::Pages(pages) => pages.fill(asid, page, translation),
            ClusterArray::Clusters(clusters) => clusters.fill(asid, page, translation.entry),
        }
    }

    fn remove(&mut self, asid: Asid, page: PageNumber) {
        match self {
            ClusterArray::Pages(pages) => pages.remove(asid, page),
            ClusterArray::Clusters(clusters) => {
                if let Some((slot, key, _)) = clusters.find(asid, page) {
                    let at = page.raw() % clusters.pages;
                    clusters.clear_pages(slot.set(), key, [(at, 0)].into_iter().collect());
                }
            }
        }
    }

    fn invalidate(&mut self, asid: Asid, range: &Pages) -> usize {
        match self {
            ClusterArray::Pages(pages) => pages.invalidate(asid, range),
            ClusterArray::Clusters(clusters) => clusters.invalidate(asid, range),
        }
    }

    fn clear(&mut self) {
        match self {
            ClusterArray::Pages(pages) => pages.clear(),
            ClusterArray::Clusters(clusters) => clusters.sets.clear(),
        }
    }

    fn report(&self, component: &str, counters: &mut Counters) {
        if let ClusterArray::Clusters(clusters) = self {
            counters.add(component, "fills", clusters.fills);
            counters.add(component, "filled_pages", clusters.filled_pages);
        }
    }
}
