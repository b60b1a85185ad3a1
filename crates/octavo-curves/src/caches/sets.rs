//! The lists of all sets, for every number of them.

use octavo_types::Instructions;

use super::{LineBatch, LineSize};
use crate::sets::MAX_WAYS;
use crate::sets::lanes::{Lanes, Machine, first, up_to_first};
use crate::sets::run::{Work, run};
use crate::touches::{Row, Rows};

/// The most sets of a cache, as a logarithm: with lines of 16 bytes, 1 MiB direct-mapped.
pub const MAX_CACHE_SETS_LOG2: u8 = 16;
/// How many different numbers of sets there are.
const LEVELS: usize = MAX_CACHE_SETS_LOG2 as usize + 1;
/// Bound on rows: with more, a line's id would not fit in 32 bits or would equal the empty id.
const fn most_rows(size_in_page_log2: u8) -> u64 {
    (1 << (32 - size_in_page_log2)) - 1
}

/// Misses of LRU caches of every number of sets and ways, with lines of one size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheCurves {
    /// The size of the lines.
    pub line: LineSize,
    /// How often lines were looked up.
    pub lookups: u64,
    /// Misses with 2^*s* sets of *w* ways, at `[s][w - 1]`; empty if the program touched more lines
    /// than ids distinguish (64 GiB of pages).
    pub misses: Vec<[u64; MAX_WAYS]>,
}

/// All caches of one stream with lines of one size.
pub struct CacheSets {
    line: LineSize,
    instructions: Instructions,
    /// The sets of the cache with one set, then of that with two, with four, and so on.
    sets: Vec<Lanes>,
    /// The line used last.
    last: u32,
    /// By level and position how often a line was found; [`MAX_WAYS`]: that it was not.
    found: Box<[[u64; MAX_WAYS + 1]; LEVELS]>,
    lookups: u64,
    /// Whether there were more lines than ids: counting has stopped.
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

    /// Takes the next batch, of lines of a size that is not larger; `place` is that of this one's
    /// size among those of the splitter.
    pub fn take(&mut self, batch: &LineBatch, smallest: LineSize, place: usize, rows: &Rows) {
        self.lookups += batch.lookups[place];
        self.is_over |= rows.len() as u64 > most_rows(self.line.in_page_log2());
        if !self.is_over {
            run(self.instructions, Take { caches: self, batch, smallest, rows });
        }
    }

    /// Empties the caches; counts stay.
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

/// A batch is taken in.
struct Take<'a> {
    caches: &'a mut CacheSets,
    batch: &'a LineBatch,
    smallest: LineSize,
    rows: &'a Rows,
}

impl Work for Take<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let Take { caches, batch, smallest, rows } = self;
        let CacheSets { line: size, sets, last, found, .. } = caches;
        let in_page_log2 = size.in_page_log2();
        for (Row(row), line) in batch.lines(smallest, *size) {
            let id = row << in_page_log2 | line;
            if id == *last {
                continue;
            }
            *last = id;
            // Bits that no index has are lost, so that it does not matter whose they are.
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
