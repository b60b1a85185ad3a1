//! The lists of all sets, for every number of sets.

use octavo_types::Instructions;

use super::{LineBatch, LineSize};
use crate::lanes::{Lanes, MAX_WAYS, Machine, Work, first, run, up_to_first};
use crate::touches::{Row, Rows};

/// log2 of the most sets of a cache: with lines of 16 bytes, 1 MiB direct-mapped.
pub const MAX_CACHE_SETS_LOG2: u8 = 16;
/// Number of levels; a level is the log2 of a number of sets.
const LEVELS: usize = MAX_CACHE_SETS_LOG2 as usize + 1;
/// Upper bound on rows: with more, a line's id would not fit in 32 bits or would equal the empty id.
const fn most_rows(size_in_page_log2: u8) -> u64 {
    (1 << (32 - size_in_page_log2)) - 1
}

/// Misses of LRU caches of every number of sets and ways, with lines of one size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheCurves {
    /// The size of the lines.
    pub line: LineSize,
    /// Look-ups of lines.
    pub lookups: u64,
    /// Misses with 2^*s* sets of *w* ways, at `[s][w - 1]`; empty if the program touched more lines
    /// than ids distinguish (64 GiB of pages).
    pub misses: Vec<[u64; MAX_WAYS]>,
}

/// All caches of one stream with lines of one size.
pub struct CacheSets {
    line: LineSize,
    instructions: Instructions,
    /// The sets of the cache with one set, then of the cache with two sets, with four, and so on.
    sets: Vec<Lanes>,
    /// The line used last.
    last: u32,
    /// Look-ups by level and position of the line in its set; at [`MAX_WAYS`], look-ups of absent lines.
    found: Box<[[u64; MAX_WAYS + 1]; LEVELS]>,
    lookups: u64,
    /// Whether there were more lines than ids, so that counting has stopped.
    is_over: bool,
}

impl CacheSets {
    /// Empty caches.
    pub fn new(line: LineSize, instructions: Instructions) -> Self {
        CacheSets {
            line,
            instructions,
            sets: vec![Lanes::EMPTY; (2 << MAX_CACHE_SETS_LOG2) - 1],
            last: u32::MAX,
            found: Box::new([[0; MAX_WAYS + 1]; LEVELS]),
            lookups: 0,
            is_over: false,
        }
    }

    /// Processes the next batch, whose lines have the size `smallest`, at most the size of these caches.
    /// `place` is the index of the caches' size among the sizes of the splitter.
    pub fn process(&mut self, batch: &LineBatch, smallest: LineSize, place: usize, rows: &Rows) {
        self.lookups += batch.lookups[place];
        self.is_over |= rows.len() as u64 > most_rows(self.line.in_page_log2());
        if !self.is_over {
            run(self.instructions, ProcessBatch { caches: self, batch, smallest, rows });
        }
    }

    /// Empties the caches. The counts stay.
    pub fn flush(&mut self) {
        self.sets.fill(Lanes::EMPTY);
        self.last = u32::MAX;
    }

    /// The misses so far.
    pub fn curves(&self) -> CacheCurves {
        let missed =
            |found: &[u64; MAX_WAYS + 1]| std::array::from_fn(|way| found[way + 1..].iter().sum());
        let counted = if self.is_over { &[] } else { &self.found[..] };
        CacheCurves {
            line: self.line,
            lookups: self.lookups,
            misses: counted.iter().map(missed).collect(),
        }
    }
}

/// The processing of a batch.
struct ProcessBatch<'a> {
    caches: &'a mut CacheSets,
    batch: &'a LineBatch,
    smallest: LineSize,
    rows: &'a Rows,
}

impl Work for ProcessBatch<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let ProcessBatch { caches, batch, smallest, rows } = self;
        let CacheSets { line: size, sets, last, found, .. } = caches;
        let in_page_log2 = size.in_page_log2();
        for (Row(row), line) in batch.lines(smallest, *size) {
            let id = row << in_page_log2 | line;
            if id == *last {
                continue;
            }
            *last = id;
            // Only the bits of the largest index matter; higher bits may be lost.
            let number = (rows.page(Row(row)).raw() << in_page_log2) as usize | line as usize;
            for (level, found) in found.iter_mut().enumerate() {
                let before = (1 << level) - 1;
                let set = &mut sets[before + (number & before)];
                let at = machine.equal(set, id);
                if at & 1 != 0 {
                    break;
                }
                found[first(at)] += 1;
                machine.push(set, id, up_to_first(at));
            }
        }
    }
}
