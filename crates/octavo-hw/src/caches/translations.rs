//! Lines of the second level that hold translations of consecutive pages instead of memory.
//!
//! Such a line is tagged by address space, page size and number, and by a bit that is 0 in line numbers of memory, so
//! that the two never match. Its number selects its set, like the number of a line of memory, and all lines of a set
//! compete by the policy of the cache. No memory backs it: it is never dirty, and an eviction drops it.

use rustc_hash::FxHashMap;

use crate::Asid;

/// The contents of a line: a word for each page.
pub type TranslationWords = [u64; 8];

/// Set in all tags of lines of translations.
const MARK: u64 = 1 << 63;
const ASID_SHIFT: u32 = 51;
const ORDER_SHIFT: u32 = 46;

/// The tag of a line of translations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TranslationLine(u64);

impl TranslationLine {
    /// The line with this number among those of pages of 2^`order` base pages.
    ///
    /// # Panics
    /// If the number has more than 46 bits, or the order more than five.
    #[inline]
    pub fn new(asid: Asid, order: u8, number: u64) -> Self {
        assert!(number >> ORDER_SHIFT == 0 && order < 32, "{number:#x} of order {order}");
        let asid = u64::from(asid.raw());
        TranslationLine(MARK | asid << ASID_SHIFT | u64::from(order) << ORDER_SHIFT | number)
    }

    fn asid(self) -> u16 {
        (self.0 >> ASID_SHIFT & 0xfff) as u16
    }

    fn order(self) -> u8 {
        (self.0 >> ORDER_SHIFT & 31) as u8
    }

    pub(super) fn number(self) -> u64 {
        self.0 & ((1 << ORDER_SHIFT) - 1)
    }

    /// The key in a cache.
    pub(super) fn key(self) -> u64 {
        self.0
    }
}

/// Counters of lines of translations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TranslationCounters {
    /// Lines filled.
    pub fills: u64,
    /// Lines evicted by fills.
    pub evicted: u64,
    /// Lines dropped by [invalidations](super::PrivateCaches::invalidate_translations).
    pub invalidated: u64,
}

/// The lines of translations that a cache holds.
#[derive(Clone, Debug)]
pub(super) struct TranslationLines {
    pub contents: FxHashMap<TranslationLine, TranslationWords>,
    pub counters: TranslationCounters,
    /// Pages per line.
    pages: u64,
    /// One bit for each order of pages that any line has had.
    orders: u32,
}

impl TranslationLines {
    pub fn new(pages: u64) -> Self {
        TranslationLines {
            contents: FxHashMap::default(),
            counters: TranslationCounters::default(),
            pages,
            orders: 0,
        }
    }

    /// Records the fill of a line.
    pub fn fill(&mut self, line: TranslationLine, words: TranslationWords) {
        self.orders |= 1 << line.order();
        self.contents.insert(line, words);
        self.counters.fills += 1;
    }

    /// Records that the cache has evicted a line, of translations or of memory.
    #[inline]
    pub fn evict(&mut self, key: u64) {
        if key & MARK != 0 {
            self.contents.remove(&TranslationLine(key));
            self.counters.evicted += 1;
        }
    }

    /// Removes the lines of an address space that hold any of these base pages. Returns their tags.
    pub fn invalidate(&mut self, asid: Asid, first: u64, end: u64) -> Vec<TranslationLine> {
        let mut out = Vec::new();
        for order in (0..32).filter(|order| self.orders & 1 << order != 0 && first < end) {
            let number = |page: u64| (page >> order) / self.pages;
            let (from, last) = (number(first), number(end - 1));
            if last - from < self.contents.len() as u64 {
                let line = |number| TranslationLine::new(asid, order, number);
                let is_held = |line: &TranslationLine| self.contents.contains_key(line);
                out.extend((from..=last).map(line).filter(is_held));
            } else {
                let is_out = |line: &TranslationLine| {
                    (line.asid(), line.order()) == (asid.raw(), order)
                        && (from..=last).contains(&line.number())
                };
                out.extend(self.contents.keys().copied().filter(is_out));
            }
        }
        for line in &out {
            self.contents.remove(line);
        }
        self.counters.invalidated += out.len() as u64;
        out
    }

    /// Removes all lines. Returns their tags.
    pub fn clear(&mut self) -> Vec<TranslationLine> {
        let out: Vec<_> = self.contents.drain().map(|(line, _)| line).collect();
        self.counters.invalidated += out.len() as u64;
        out
    }
}
