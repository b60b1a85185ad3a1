//! One page size alone, without a search: no branch depends on a page's depth.

use super::counted::Counted;
use super::filter::Filter;
use super::order::NO_ID;
use crate::touches::{Rows, Touch};

/// The stack of one page size.
pub struct Single {
    /// The number of the size.
    size: usize,
    filter: Filter,
    stack: Counted,
    /// The page touched last.
    newest: u32,
    /// All touches, and the touches that [alternate](Filter), which are at depth 2.
    touches: u64,
    alternations: u64,
}

impl Single {
    /// An empty stack at page size number `size`.
    pub fn new(size: usize, max_entries: u32) -> Self {
        Single {
            size,
            filter: Filter::default(),
            stack: Counted::new(max_entries),
            newest: NO_ID,
            touches: 0,
            alternations: 0,
        }
    }

    /// Makes room for all pages in `rows`.
    pub fn grow(&mut self, rows: &Rows) {
        self.stack.order.grow(rows.pages_of(self.size));
    }

    /// Looks up touches. [`Single::grow`] must have made room for their pages.
    #[inline(always)]
    pub fn process(&mut self, touches: &[Touch], rows: &Rows) {
        self.filter.process(touches, rows, self.size);
        let before_first = self.filter.before_first();
        let (mut newest, mut kept, mut alternations) = (self.newest, 0, u64::from(before_first));
        if before_first % 2 == 1 {
            newest = self.stack.order.exchange_newest();
        }
        for (row, following) in self.filter.kept() {
            let id = rows.id(row, self.size);
            self.stack.use_unowned(id);
            kept += 1;
            alternations += u64::from(following);
            let is_odd = following % 2 == 1;
            // Without a branch, since it cannot be predicted.
            let [older, newer] = if is_odd { [id, newest] } else { [newest, id] };
            self.stack.order.set_newest_owners(older, newer);
            newest = newer;
        }
        self.newest = newest;
        self.touches += kept + alternations;
        self.alternations += alternations;
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        self.filter = Filter::default();
        self.newest = NO_ID;
        self.stack.order.clear();
    }

    /// The distinct pages, and the misses of TLBs of each number of entries.
    pub fn misses(&self) -> (u64, Vec<u64>) {
        // Only a TLB of one entry misses on alternations.
        let found = self.stack.misses(self.touches).enumerate();
        let misses = found.map(|(at, misses)| misses - if at > 0 { self.alternations } else { 0 });
        (self.stack.pages, misses.collect())
    }
}
