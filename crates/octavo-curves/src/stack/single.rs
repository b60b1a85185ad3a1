//! One page size alone.
//!
//! The pages used last are in a short list, in vectors. The other pages are in an [order](super::order). Each
//! touch of a chunk is first looked up in the list, and then those that are not found there in the order. So
//! no branch depends on a page's depth, which cannot be predicted.

use octavo_types::Instructions;

use super::counted::Counted;
use crate::lanes::{Lanes, MAX_WAYS, Machine, NONE, Work, first, run, up_to_first};
use crate::touches::{Filter, Rows, Touch};

/// Positions in the list.
const POSITIONS: usize = MAX_WAYS;

/// The stack of one page size.
pub struct Single {
    /// The number of the size.
    size: usize,
    filter: Filter,
    /// The pages used last.
    last: Lanes,
    touches: u64,
    /// Touches by the position of their page in the list; at the end, those of other pages.
    found: [u64; POSITIONS + 1],
    /// Touches of pages that are not in the list, each with the page that left it, or [`NONE`].
    swaps: Vec<(u32, u32)>,
    /// The pages that have left the list.
    behind: Counted,
}

impl Single {
    /// An empty stack at page size number `size`.
    pub fn new(size: usize, max_entries: u32) -> Self {
        Single {
            size,
            filter: Filter::default(),
            last: Lanes::EMPTY,
            touches: 0,
            found: [0; POSITIONS + 1],
            swaps: Vec::new(),
            behind: Counted::new(max_entries.saturating_sub(POSITIONS as u32)),
        }
    }

    /// Makes room for all pages in `rows`.
    pub fn grow(&mut self, rows: &Rows) {
        self.behind.order.grow(rows.pages_of(self.size));
    }

    /// Looks up touches. [`Single::grow`] must have made room for their pages.
    pub fn process(&mut self, instructions: Instructions, touches: &[Touch], rows: &Rows) {
        self.touches += touches.len() as u64;
        self.filter.process(instructions, touches, rows, self.size);
        run(instructions, LookUps { stack: self, rows });
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        let pages = self.last.0.into_iter().filter(|page| *page != NONE);
        pages.for_each(|page| self.behind.order.remember(page));
        self.behind.order.clear();
        (self.filter, self.last) = (Filter::default(), Lanes::EMPTY);
    }

    /// The distinct pages, and the misses of TLBs of each number of entries.
    pub fn misses(&self) -> (u64, Vec<u64>) {
        let listed = self.found[..POSITIONS].iter().scan(self.touches, |misses, found| {
            *misses -= found;
            Some(*misses)
        });
        let behind = self.behind.misses(self.found[POSITIONS]);
        (self.behind.pages, listed.chain(behind).collect())
    }
}

/// The look-ups of the touches in the filter.
struct LookUps<'a> {
    stack: &'a mut Single,
    rows: &'a Rows,
}

impl Work for LookUps<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let LookUps { stack, rows } = self;
        let mut last = stack.last;
        let (alternations, apart) = (stack.filter.before_first(), stack.filter.is_apart());
        stack.found[usize::from(apart)] += u64::from(alternations);
        if apart && alternations % 2 == 1 {
            last.0.swap(0, 1);
        }
        let mut newest = last.0[0];
        // Every touch is written for the order; the next one overwrites it if its page is in the list.
        let kept = stack.filter.kept();
        stack.swaps.resize(kept.len() + 1, (0, 0));
        let mut swaps = 0;
        for (row, alternations) in kept {
            let id = rows.id(row, stack.size);
            let found = machine.equal(&last, id);
            stack.swaps[swaps] = (id, machine.last(&last));
            swaps += usize::from(found == 0);
            last = machine.pushed(last, id, up_to_first(found));
            let apart = id != newest;
            stack.found[first(found)] += 1;
            stack.found[usize::from(apart)] += u64::from(alternations);
            // An odd number of alternations exchanges the two pages.
            let exchanged = apart && alternations % 2 == 1;
            last = machine.pushed(last, newest, if exchanged { 0b11 } else { 0 });
            newest = if exchanged { newest } else { id };
        }
        stack.last = last;
        for (wanted, pushed) in &stack.swaps[..swaps] {
            stack.behind.swap(*wanted, *pushed);
        }
    }
}
