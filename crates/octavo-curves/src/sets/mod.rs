//! Set-associative TLBs of all numbers of sets and ways at once: all-associativity simulation
//! (Hill and Smith, "Evaluating associativity in CPU caches", 1989).
//!
//! With LRU a set of *w* ways holds the first *w* of the pages that belong to it, in order of last
//! use. So one list for each set gives the misses of every number of ways, and a look-up finds the
//! page's position in its list for each number of sets, a *level*. [`nested`] does so if each level
//! splits every set of the level before in two, [`scattered`] for any index.

mod front;
mod index;
mod lists;
mod misses;
mod nested;
mod pages;
mod scattered;
mod single;
#[cfg(test)]
mod tests;
mod top;

use octavo_types::{Instructions, PageSize};

use crate::lanes::{LEVELS, MAX_WAYS, Machine, Work, run};
use crate::touches::{CHUNK_TOUCHES, Filter, Kernel, Rows, Touches};
use misses::Misses;
use nested::Nested;
use pages::Pages;
use scattered::Scattered;

pub use index::SetIndex;
pub(crate) use lists::Lists;
pub(crate) use misses::{Counts, POSITIONS};
pub use single::SingleSets;
pub(crate) use top::{AtTop, NOT_BEFORE};

/// log2 of the most sets. A *level* is the log2 of a number of sets.
pub const MAX_SETS_LOG2: u8 = LEVELS as u8 - 1;

/// Misses of set-associative LRU TLBs of every number of sets and ways at one page size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SetCurves {
    /// The page size.
    pub page_size: PageSize,
    /// The function from page numbers to sets.
    pub index: SetIndex,
    /// Misses with 2^*s* sets of *w* ways, at `[s][w - 1]`.
    pub misses: Vec<[u64; MAX_WAYS]>,
}

/// The kernel for one stream at one page size.
pub struct Sets {
    page_size: PageSize,
    index: SetIndex,
    max_sets_log2: u8,
    instructions: Instructions,
    pages: Pages,
    filter: Filter,
    engine: Engine,
    misses: Misses,
}

#[expect(clippy::large_enum_variant, reason = "there are few, and they stay where they are")]
enum Engine {
    Nested(Nested),
    Scattered(Scattered),
}

impl Sets {
    /// TLBs of 1 to 2^`max_sets_log2` (at most [`MAX_SETS_LOG2`]) sets and 1 to [`MAX_WAYS`] ways.
    pub fn new(
        page_size: PageSize,
        index: SetIndex,
        max_sets_log2: u8,
        instructions: Instructions,
    ) -> Self {
        Sets {
            page_size,
            index,
            max_sets_log2: max_sets_log2.min(MAX_SETS_LOG2),
            instructions,
            pages: Pages::new(page_size, index, MAX_SETS_LOG2),
            filter: Filter::default(),
            engine: match index {
                SetIndex::Bits { .. } => Engine::Nested(Nested::new()),
                SetIndex::Xor => Engine::Scattered(Scattered::new()),
            },
            misses: Misses::default(),
        }
    }

    /// The misses so far.
    pub fn curves(&self) -> SetCurves {
        let misses = match &self.engine {
            Engine::Nested(_) => &self.misses,
            Engine::Scattered(engine) => &engine.misses(&self.misses),
        };
        SetCurves {
            page_size: self.page_size,
            index: self.index,
            misses: misses.missed(self.max_sets_log2),
        }
    }
}

impl Kernel for Sets {
    fn process(&mut self, batch: &Touches, rows: &Rows) {
        let (index, engine) = (self.index, &mut self.engine);
        self.pages.follow(rows, |number, id| {
            if let Engine::Scattered(engine) = engine {
                engine.know(index, number, id);
            }
        });
        for chunk in batch.touches.chunks(CHUNK_TOUCHES) {
            self.filter.process(self.instructions, chunk, rows, self.pages.size());
            let Sets { engine, pages, filter, misses, .. } = self;
            run(self.instructions, ProcessKept { engine, pages, filter, misses });
        }
    }

    fn flush(&mut self, _: u64) {
        self.filter = Filter::default();
        match &mut self.engine {
            Engine::Nested(engine) => engine.clear(),
            Engine::Scattered(engine) => engine.clear(),
        }
    }
}

/// The processing of the touches in a filter.
struct ProcessKept<'a> {
    engine: &'a mut Engine,
    pages: &'a Pages,
    filter: &'a Filter,
    misses: &'a mut Misses,
}

impl Work for ProcessKept<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let by_row = self.pages.by_row();
        let uses =
            self.filter.kept().map(|(row, alternations)| (by_row[row.index()], alternations));
        let before = if self.filter.is_apart() { self.filter.before_first() } else { 0 };
        match self.engine {
            Engine::Nested(engine) => engine.use_pages(machine, before, uses, self.misses),
            Engine::Scattered(engine) => engine.use_pages(machine, before, uses, self.misses),
        }
    }
}
