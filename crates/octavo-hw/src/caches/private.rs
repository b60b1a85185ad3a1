//! The caches of one core.

use octavo_types::Instructions;

use super::config::{CacheError, PrivateConfig, PteEntry};
use super::level::{CacheCounters, Level};
use super::prefetch::{Prefetch, PrefetchCounters, PrefetchLevel, Prefetchers};
use super::shared::SharedCache;
use super::translations::{
    TranslationCounters, TranslationLine, TranslationLines, TranslationWords,
};
use super::{Served, ServedBy, SideNumber};
use crate::Asid;

const L1I: SideNumber = 0;
const L1D: SideNumber = 1;

/// Counters of the caches of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrivateCounters {
    /// The first level for instructions.
    pub l1i: CacheCounters,
    /// The first level for data.
    pub l1d: CacheCounters,
    /// The second level.
    pub l2: CacheCounters,
}

/// The caches of one core. Lines are numbers of physical lines: addresses divided by the bytes of a line.
#[derive(Clone, Debug)]
pub struct PrivateCaches {
    /// The first levels for instructions and data.
    l1: [Level; 2],
    l2: Level,
    pte_entry: PteEntry,
    prefetchers: Option<Box<Prefetchers>>,
}

/// An access to data by an instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataAccess {
    /// The physical line.
    pub line: u64,
    /// Whether it stores.
    pub is_write: bool,
    /// Further hits of the same line.
    pub repeats: u32,
    /// The address of the instruction.
    pub site: u64,
}

/// The prefetch levels of the first-level data cache and of the second level.
const OF_L1D: PrefetchLevel = 0;
const OF_L2: PrefetchLevel = 1;

impl PrivateCaches {
    /// Empty caches in front of `shared`, whose lines must be of the same size.
    pub fn new(
        config: &PrivateConfig,
        shared: &SharedCache,
        instructions: Instructions,
    ) -> Result<Self, CacheError> {
        let llc_bytes = shared.line_bytes();
        let level = |cache, config: &super::CacheConfig| {
            let level = Level::new(config, cache, instructions)?;
            if config.line_bytes != llc_bytes {
                let bytes = config.line_bytes;
                return Err(CacheError::MixedLines { cache, bytes, llc_bytes });
            }
            Ok(level)
        };
        let mut caches = PrivateCaches {
            l1: [level("l1i", &config.l1i)?, level("l1d", &config.l1d)?],
            l2: level("l2", &config.l2)?,
            pte_entry: config.pte_entry,
            prefetchers: None,
        };
        if !config.prefetchers.is_empty() {
            caches.prefetchers = Some(Box::new(Prefetchers::new(&config.prefetchers, llc_bytes)));
            caches.l1[L1D].unused = Some(Box::default());
            caches.l2.unused = Some(Box::default());
        }
        Ok(caches)
    }

    /// Accesses data on a core with prefetchers, and issues the prefetches that the access causes. `None` if the access
    /// hits the first level.
    ///
    /// # Panics
    /// If the core has no prefetchers.
    pub fn access_prefetching(
        &mut self,
        shared: &mut SharedCache,
        access: &DataAccess,
    ) -> Option<Served> {
        let DataAccess { line, is_write, repeats, site } = *access;
        if self.hits(L1D, line, is_write, repeats) {
            if self.l1[L1D].use_line(line) {
                self.count_use(OF_L1D);
                self.prefetch_l1(shared, site, line);
            }
            return None;
        }
        self.l1[L1D].counters.misses += 1;
        let served = access_l2(&mut self.l2, shared, line, false);
        if self.l2.use_line(line) {
            self.count_use(OF_L2);
        }
        fill_l1(&mut self.l1[L1D], &mut self.l2, shared, line, is_write);
        self.prefetch_l2(shared, site, line);
        self.prefetch_l1(shared, site, line);
        Some(served)
    }

    /// Counts the first use of a line that was prefetched into a level.
    fn count_use(&mut self, level: PrefetchLevel) {
        let prefetchers = self.prefetchers.as_mut().expect("it has prefetched");
        prefetchers.levels[level].counters.useful += 1;
        prefetchers.used = Some(level).filter(|_| prefetchers.logs);
    }

    /// Trains the prefetchers of the first level with an access, and issues their prefetches.
    fn prefetch_l1(&mut self, shared: &mut SharedCache, site: u64, accessed: u64) {
        let prefetchers = self.prefetchers.as_mut().expect("the core has prefetchers");
        let lines = prefetchers.train(OF_L1D, site, accessed);
        for line in &lines {
            let l1 = &mut self.l1[L1D];
            let prefetchers = self.prefetchers.as_mut().expect("the core has prefetchers");
            if l1.contains(*line) || l1.share_set(*line, accessed) {
                prefetchers.levels[OF_L1D].counters.dropped += 1;
                continue;
            }
            let transfers_before = shared.logged_transfers();
            let mut uses_l2 = false;
            let served = if self.l2.look_up(*line, false) {
                uses_l2 = self.l2.use_line(*line);
                prefetchers.levels[OF_L2].counters.useful += u64::from(uses_l2);
                Served { by: ServedBy::L2, latency_cycles: self.l2.latency_cycles }
            } else {
                let served = shared.prefetch(*line);
                fill_l2(&mut self.l2, shared, *line, false);
                served
            };
            fill_l1(l1, &mut self.l2, shared, *line, false);
            l1.unused.as_mut().expect("it is prefetched into").insert(*line);
            let Served { by, latency_cycles } = served;
            let (line, level) = (*line, OF_L1D);
            let prefetch = Prefetch { line, level, by, latency_cycles, uses_l2, transfers_before };
            prefetchers.record(prefetch);
            self.prefetch_l2(shared, site, line);
        }
        self.prefetchers.as_mut().expect("the core has prefetchers").give_back(OF_L1D, lines);
    }

    /// Trains the prefetchers of the second level with an access, and issues their prefetches.
    fn prefetch_l2(&mut self, shared: &mut SharedCache, site: u64, accessed: u64) {
        let prefetchers = self.prefetchers.as_mut().expect("the core has prefetchers");
        let lines = prefetchers.train(OF_L2, site, accessed);
        for line in lines.iter().copied() {
            if self.l2.contains(line) {
                prefetchers.levels[OF_L2].counters.dropped += 1;
                continue;
            }
            let transfers_before = shared.logged_transfers();
            let Served { by, latency_cycles } = shared.prefetch(line);
            fill_l2(&mut self.l2, shared, line, false);
            self.l2.unused.as_mut().expect("it is prefetched into").insert(line);
            let (level, uses_l2) = (OF_L2, false);
            let prefetch = Prefetch { line, level, by, latency_cycles, uses_l2, transfers_before };
            prefetchers.record(prefetch);
        }
        prefetchers.give_back(OF_L2, lines);
    }

    /// Prefetches a line into the second level for hardware other than the prefetchers. `None` if it is there. Counts no
    /// access.
    pub fn prefetch_into_l2(&mut self, shared: &mut SharedCache, line: u64) -> Option<Served> {
        if self.l2.contains(line) {
            return None;
        }
        let served = shared.prefetch(line);
        fill_l2(&mut self.l2, shared, line, false);
        Some(served)
    }

    /// The counters of the prefetchers of the first level for data and of the second level, if there are any.
    pub fn prefetch_counters(&self) -> Option<[PrefetchCounters; 2]> {
        let prefetchers = self.prefetchers.as_ref()?;
        let mut counters = [OF_L1D, OF_L2].map(|level| prefetchers.levels[level].counters);
        for (counters, level) in counters.iter_mut().zip([&self.l1[L1D], &self.l2]) {
            counters.unused = level.unused.as_ref().map_or(0, |unused| unused.evicted);
        }
        Some(counters)
    }

    /// Turns logging of prefetches on or off, and clears the log.
    pub fn log_prefetches(&mut self, logs: bool) {
        if let Some(prefetchers) = &mut self.prefetchers {
            prefetchers.logs = logs;
            prefetchers.log.clear();
            prefetchers.used = None;
        }
    }

    /// The logged prefetches, in order. The caller removes them.
    pub fn prefetches(&mut self) -> Option<&mut Vec<Prefetch>> {
        self.prefetchers.as_mut().map(|prefetchers| &mut prefetchers.log)
    }

    /// Whether the log has a prefetch, or the first use of a prefetched line is recorded.
    pub fn has_prefetched(&self) -> bool {
        let prefetchers = self.prefetchers.as_ref();
        prefetchers.is_some_and(|state| state.used.is_some() || !state.log.is_empty())
    }

    /// The level of the prefetched line that an access was the first to use, since the last call.
    pub fn take_used(&mut self) -> Option<PrefetchLevel> {
        self.prefetchers.as_mut()?.used.take()
    }

    /// Fetches an instruction.
    #[inline(always)]
    pub fn fetch(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.access_l1(shared, L1I, line, false)
    }

    /// Loads data.
    #[inline(always)]
    pub fn load(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.access_l1(shared, L1D, line, false)
    }

    /// Stores data. (A modify is a load and a store.)
    #[inline(always)]
    pub fn store(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.access_l1(shared, L1D, line, true)
    }

    /// Reads a page-table entry for a walk, entering at [`PrivateConfig::pte_entry`].
    #[inline(always)]
    pub fn read_pte(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.pte(shared, line, false)
    }

    /// Writes a page-table entry (accessed or dirty bit) for a walk, entering like [`Self::read_pte`].
    #[inline(always)]
    pub fn write_pte(&mut self, shared: &mut SharedCache, line: u64) -> Served {
        self.pte(shared, line, true)
    }

    /// Accesses the first level of a side, with `repeats` further hits, and returns whether the first hit.
    /// After a miss the caller must call [`Caches::serve_miss`](super::Caches::serve_miss).
    #[inline(always)]
    pub fn hits(&mut self, side: SideNumber, line: u64, is_write: bool, repeats: u32) -> bool {
        self.l1[side].hits(line, is_write, repeats)
    }

    /// Serves a miss of a side's [first level](Self::hits).
    pub fn serve_miss(
        &mut self,
        shared: &mut SharedCache,
        side: SideNumber,
        line: u64,
        is_write: bool,
    ) -> Served {
        let l1 = &mut self.l1[side];
        l1.counters.misses += 1;
        serve_miss(l1, &mut self.l2, shared, line, is_write)
    }

    /// Lets the second level hold lines of translations, of `pages` pages each.
    pub fn hold_translations(&mut self, pages: u64) {
        self.l2.translations = Some(Box::new(TranslationLines::new(pages)));
    }

    /// The counters of lines of translations, if the second level may hold any.
    pub fn translation_counters(&self) -> Option<TranslationCounters> {
        self.l2.translations.as_ref().map(|translations| translations.counters)
    }

    /// The contents of a line of translations, if the second level holds it; not counted as a use of the line.
    pub fn translation_words(&mut self, line: TranslationLine) -> Option<&mut TranslationWords> {
        self.l2.translation_words(line)
    }

    /// Uses a line of translations that the second level holds, without counting an access. Returns the latency in
    /// cycles.
    pub fn use_translations(&mut self, line: TranslationLine) -> u32 {
        self.l2.use_translations(line);
        self.l2.latency_cycles
    }

    /// Fills a line of translations that the second level does not hold.
    ///
    /// # Panics
    /// If the second level may hold no lines of translations.
    pub fn fill_translations(
        &mut self,
        shared: &mut SharedCache,
        line: TranslationLine,
        words: TranslationWords,
    ) {
        if let Some(dirty) = self.l2.fill_translations(line, words) {
            shared.write_back(dirty);
        }
    }

    /// Drops the lines of translations of an address space that hold any of these base pages.
    pub fn invalidate_translations(&mut self, asid: Asid, first: u64, end: u64) {
        self.l2.invalidate_translations(asid, first, end);
    }

    /// Drops all lines of translations.
    pub fn clear_translations(&mut self) {
        self.l2.clear_translations();
    }

    /// The counters.
    pub fn counters(&self) -> PrivateCounters {
        let [l1i, l1d] = &self.l1;
        PrivateCounters { l1i: l1i.counters, l1d: l1d.counters, l2: self.l2.counters }
    }

    /// Accesses the first level of a side and, on a miss, the next levels.
    #[inline(always)]
    fn access_l1(
        &mut self,
        shared: &mut SharedCache,
        side: SideNumber,
        line: u64,
        is_write: bool,
    ) -> Served {
        if self.hits(side, line, is_write, 0) {
            return Served { by: ServedBy::L1, latency_cycles: self.l1[side].latency_cycles };
        }
        self.serve_miss(shared, side, line, is_write)
    }

    #[inline(always)]
    fn pte(&mut self, shared: &mut SharedCache, line: u64, is_write: bool) -> Served {
        match self.pte_entry {
            PteEntry::L1d => self.access_l1(shared, L1D, line, is_write),
            PteEntry::L2 => access_l2(&mut self.l2, shared, line, is_write),
        }
    }
}

/// Reads and fills a line that missed the first level.
#[inline(never)]
fn serve_miss(
    l1: &mut Level,
    l2: &mut Level,
    shared: &mut SharedCache,
    line: u64,
    is_write: bool,
) -> Served {
    let served = access_l2(l2, shared, line, false);
    fill_l1(l1, l2, shared, line, is_write);
    served
}

/// Fills a line that missed the first level.
#[inline(always)]
fn fill_l1(l1: &mut Level, l2: &mut Level, shared: &mut SharedCache, line: u64, is_write: bool) {
    if let Some(dirty) = l1.fill(line, is_write)
        && let Some(dirty) = l2.write_back(dirty)
    {
        shared.write_back(dirty);
    }
}

/// Fills a line that missed the second level.
#[inline(always)]
fn fill_l2(l2: &mut Level, shared: &mut SharedCache, line: u64, is_write: bool) {
    if let Some(dirty) = l2.fill(line, is_write) {
        shared.write_back(dirty);
    }
}

/// Accesses the second level.
fn access_l2(l2: &mut Level, shared: &mut SharedCache, line: u64, is_write: bool) -> Served {
    if l2.access(line, is_write) {
        return Served { by: ServedBy::L2, latency_cycles: l2.latency_cycles };
    }
    let served = shared.read(line);
    fill_l2(l2, shared, line, is_write);
    served
}
