//! One page size on its own, without a search: no branch depends on a page's depth.

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
    /// All touches, and those that [alternate](Filter), which are found at depth 2.
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

    /// Takes some touches in, of pages for which there is [room](Single::grow).
    #[inline(always)]
    pub fn take(&mut self, touches: &[Touch], rows: &Rows) {
        self.filter.take(touches, rows, self.size);
        let before_first = self.filter.before_first();
        let (mut newest, mut kept, mut alternations) = (self.newest, 0, u64::from(before_first));
        if before_first % 2 == 1 {
            newest = self.stack.order.exchange_newest();
        }
        for (row, following) in self.filter.kept() {
            let id = rows.id(row, self.size);
            self.stack.use_unnamed(id);
            kept += 1;
            alternations += u64::from(following);
            let is_odd = following % 2 == 1;
            // Without a branch, as it is odd as often as not.
            let [older, newer] = if is_odd { [id, newest] } else { [newest, id] };
            self.stack.order.name_two(older, newer);
            newest = newer;
        }
        self.newest = newest;
        self.touches += kept + alternations;
        self.alternations += alternations;
    }

    /// Takes all pages out.
    pub fn clear(&mut self) {
        self.filter = Filter::default();
        self.newest = NO_ID;
        self.stack.order.clear();
    }

    /// The distinct pages, and the misses of TLBs of each number of entries.
    pub fn misses(&self) -> (u64, Vec<u64>) {
        // One entry misses whatever goes to and fro.
        let found = self.stack.misses(self.touches).enumerate();
        let misses = found.map(|(at, misses)| misses - if at > 0 { self.alternations } else { 0 });
        (self.stack.pages, misses.collect())
    }
}
