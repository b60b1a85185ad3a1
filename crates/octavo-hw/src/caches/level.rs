//! One cache level.

use octavo_types::Instructions;

use super::config::{CacheConfig, CacheError, row_length};
use super::prefetch::UnusedLines;
use super::rows::Rows;
use super::translations::{TranslationLine, TranslationLines, TranslationWords};
use crate::{Asid, SetArray};

/// Counters of a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CacheCounters {
    /// Accesses that hit.
    pub hits: u64,
    /// Accesses that missed.
    pub misses: u64,
    /// Evicted dirty lines, written to the next level.
    pub write_backs: u64,
}

impl CacheCounters {
    /// The number of accesses.
    pub const fn accesses(&self) -> u64 {
        self.hits + self.misses
    }
}

/// A cache of clean and dirty lines.
#[derive(Clone, Debug)]
pub(super) struct Level {
    lines: Lines,
    pub latency_cycles: u32,
    pub counters: CacheCounters,
    /// Prefetched lines, if anything prefetches into this cache.
    pub unused: Option<Box<UnusedLines>>,
    /// Lines of translations, if the cache may hold any.
    pub translations: Option<Box<TranslationLines>>,
    sets: u64,
}

/// The lines of a cache.
#[derive(Clone, Debug)]
enum Lines {
    /// LRU with few ways, the most frequent case.
    Four(Rows<4>),
    Eight(Rows<8>),
    Sixteen(Rows<16>),
    /// Any policy and any line number.
    Sets(Box<SetArray<bool>>),
}

/// Dispatches to rows of each length, if the line fits, or to sets.
macro_rules! each {
    ($level:expr, $line:expr, $rows:ident => $in_rows:expr, $sets:ident => $in_sets:expr) => {
        match &mut $level.lines {
            Lines::Four($rows) if $rows.fits($line) => $in_rows,
            Lines::Eight($rows) if $rows.fits($line) => $in_rows,
            Lines::Sixteen($rows) if $rows.fits($line) => $in_rows,
            Lines::Sets($sets) => $in_sets,
            _ => {
                let $sets = $level.sets();
                $in_sets
            }
        }
    };
}

impl Level {
    /// An empty cache; `name` is its name in errors.
    pub fn new(
        config: &CacheConfig,
        name: &'static str,
        instructions: Instructions,
    ) -> Result<Self, CacheError> {
        let (geometry, replacement) = (config.geometry(name)?, config.replacement);
        let lines = match row_length(geometry, replacement) {
            Some(4) => Lines::Four(Rows::new(geometry, instructions)),
            Some(8) => Lines::Eight(Rows::new(geometry, instructions)),
            Some(_) => Lines::Sixteen(Rows::new(geometry, instructions)),
            None => Lines::Sets(Box::new(SetArray::new(geometry, replacement, instructions))),
        };
        let latency_cycles = config.latency_cycles;
        let sets = geometry.sets() as u64;
        Ok(Level {
            lines,
            latency_cycles,
            counters: CacheCounters::default(),
            unused: None,
            translations: None,
            sets,
        })
    }

    /// Accesses a line and returns whether it hit. A write makes a present line dirty.
    #[inline(always)]
    pub fn access(&mut self, line: u64, is_write: bool) -> bool {
        let is_hit = self.look_up(line, is_write);
        self.counters.hits += u64::from(is_hit);
        self.counters.misses += u64::from(!is_hit);
        is_hit
    }

    /// Accesses a line with `repeats` further hits, and returns whether the first hit.
    #[inline(always)]
    pub fn hits(&mut self, line: u64, is_write: bool, repeats: u32) -> bool {
        let is_hit = self.look_up(line, is_write);
        self.counters.hits += u64::from(repeats) + u64::from(is_hit);
        is_hit
    }

    /// Looks a line up without counting an access.
    #[inline(always)]
    pub fn look_up(&mut self, line: u64, is_write: bool) -> bool {
        each!(self, line, rows => rows.look_up(line, is_write), sets => {
            let found = sets.look_up(sets.geometry().set_of(line), line);
            found.map(|dirty| *dirty |= is_write).is_some()
        })
    }

    /// Fills a missed line. Returns the evicted line if it must be written back.
    #[inline]
    pub fn fill(&mut self, line: u64, dirty: bool) -> Option<u64> {
        let evicted = each!(self, line, rows => rows.insert(line, dirty), sets => {
            sets.insert_missed(sets.geometry().set_of(line), line, dirty)
        });
        self.evict(evicted)
    }

    /// Records that a fill has evicted a line, and whether the line was dirty. Returns it if it must be written back.
    #[inline(always)]
    fn evict(&mut self, evicted: Option<(u64, bool)>) -> Option<u64> {
        let (line, was_dirty) = evicted?;
        if let Some(unused) = &mut self.unused {
            unused.evict(line);
        }
        if let Some(translations) = &mut self.translations {
            translations.evict(line);
        }
        self.counters.write_backs += u64::from(was_dirty);
        was_dirty.then_some(line)
    }

    /// The contents of a line of translations, if present. This is not a use for the policy.
    pub fn translation_words(&mut self, line: TranslationLine) -> Option<&mut TranslationWords> {
        self.translations.as_mut()?.contents.get_mut(&line)
    }

    /// Fills an absent line of translations. Returns the evicted line if it must be written back.
    ///
    /// # Panics
    /// If the cache may hold no lines of translations.
    pub fn fill_translations(
        &mut self,
        line: TranslationLine,
        words: TranslationWords,
    ) -> Option<u64> {
        let (sets, set) = self.set_of_translations(line);
        let evicted = sets.insert_missed(set, line.key(), false);
        let dirty = self.evict(evicted);
        let translations = self.translations.as_mut().expect("a cache that may hold translations");
        translations.fill(line, words);
        dirty
    }

    /// Uses a present line of translations.
    pub fn use_translations(&mut self, line: TranslationLine) {
        let (sets, set) = self.set_of_translations(line);
        let found = sets.look_up(set, line.key());
        debug_assert!(found.is_some(), "a line of translations has gone");
    }

    /// Removes the lines of translations that hold any of these base pages.
    pub fn invalidate_translations(&mut self, asid: Asid, first: u64, end: u64) {
        let Some(translations) = &mut self.translations else { return };
        let out = translations.invalidate(asid, first, end);
        self.free_translations(&out);
    }

    /// Removes all lines of translations.
    pub fn clear_translations(&mut self) {
        let Some(translations) = &mut self.translations else { return };
        let out = translations.clear();
        self.free_translations(&out);
    }

    fn free_translations(&mut self, lines: &[TranslationLine]) {
        for line in lines {
            let (sets, set) = self.set_of_translations(*line);
            sets.invalidate(set, line.key());
        }
    }

    /// The lines as sets, and the set of a line of translations.
    fn set_of_translations(&mut self, line: TranslationLine) -> (&mut SetArray<bool>, usize) {
        let sets = self.sets();
        let set = sets.geometry().set_of(line.number());
        (sets, set)
    }

    /// Whether a line is present. This is not a use for the policy.
    pub fn contains(&mut self, line: u64) -> bool {
        each!(self, line, rows => rows.contains(line), sets => {
            sets.probe_mut(sets.geometry().set_of(line), line).is_some()
        })
    }

    /// The number of sets.
    pub fn count_sets(&self) -> u64 {
        self.sets
    }

    /// Whether two lines belong to one set.
    pub fn share_set(&self, one: u64, other: u64) -> bool {
        one % self.sets == other % self.sets
    }

    /// Uses a present line. Returns whether this is the first use of a prefetched line.
    pub fn use_line(&mut self, line: u64) -> bool {
        self.unused.as_mut().is_some_and(|unused| unused.use_line(line))
    }

    /// Accepts a write-back of the previous level. Returns the line to be written back in turn.
    pub fn write_back(&mut self, line: u64) -> Option<u64> {
        let is_here = each!(self, line, rows => rows.mark_dirty(line), sets => {
            sets.probe_mut(sets.geometry().set_of(line), line).map(|dirty| *dirty = true).is_some()
        });
        if is_here { None } else { self.fill(line, true) }
    }

    /// The lines as sets, for lines that do not fit into rows. Converts rows to sets permanently.
    #[cold]
    fn sets(&mut self) -> &mut SetArray<bool> {
        let sets = match &self.lines {
            Lines::Four(rows) => Some(rows.to_sets()),
            Lines::Eight(rows) => Some(rows.to_sets()),
            Lines::Sixteen(rows) => Some(rows.to_sets()),
            Lines::Sets(_) => None,
        };
        if let Some(sets) = sets {
            self.lines = Lines::Sets(Box::new(sets));
        }
        match &mut self.lines {
            Lines::Sets(sets) => sets,
            _ => unreachable!("they are sets now"),
        }
    }
}
