//! All sets and ways at once for an index that each number of sets refines.
//!
//! A page's position in its set, with 2^*l* sets, is the number of pages that were used since and that
//! agree with it in the low *l* bits of the index. So the order of use of the last pages gives the
//! position of each of them for every number of sets (Hill and Smith's forest of stacks, seen from its
//! root). The last 32 pages are kept in such an order, and nearly all touches find their page there:
//! the first four in registers ([`Top`]), where the result of a look-up is a number of twelve bits that
//! is counted directly, and the others in vectors ([`Front`]).
//!
//! In addition each set has a list of the pages that have left this order, most recently used first;
//! a page that is used again is removed from its lists. So a set holds the pages of the common order
//! that belong to it, and then the pages of its list.

use super::front::Front;
use super::lists::Lists;
use super::misses::{Counts, Misses};
use super::pages::Page;
use super::top::Top;
use crate::lanes::{LEVELS, Machine};

/// The sets of one stream.
pub(super) struct Nested {
    /// The four pages used last.
    top: Top,
    /// The pages used before the top.
    front: Front,
    /// Pages that have left the front.
    behind: Lists,
}

impl Nested {
    /// Empty sets.
    pub fn new() -> Self {
        Nested { top: Top([Page::NONE; 4]), front: Front::new(), behind: Lists::new() }
    }

    /// Uses the last two pages in alternation `before` times, and then pages in turn, each followed by a number of
    /// uses of the page before and this one in alternation.
    #[inline(always)]
    pub fn use_pages<M: Machine>(
        &mut self,
        machine: M,
        before: u32,
        uses: impl Iterator<Item = (Page, u32)>,
        misses: &mut Misses,
    ) {
        let Nested { top: last, front, behind } = self;
        let (counts, at_top) = misses.parts();
        let mut top = *last;
        at_top.add(top.alternate(before), before.into());
        for (page, alternations) in uses {
            let differs = page != top.0[0];
            match top.find(page) {
                Some(found) => at_top.add(found, 1),
                None => far(machine, page, &mut top, front, behind, counts),
            }
            // Also without alternations, which saves a branch.
            let times = if differs { alternations } else { 0 };
            at_top.add(top.alternate(times), times.into());
        }
        *last = top;
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        self.top = Top([Page::NONE; 4]);
        self.front = Front::new();
        self.behind.clear();
    }
}

/// Uses a page that is not in the top.
#[inline(always)]
fn far<M: Machine>(
    machine: M,
    page: Page,
    top: &mut Top,
    front: &mut Front,
    behind: &mut Lists,
    counts: &mut Counts,
) {
    let found = front.find(machine, page);
    let before = front.sharing(machine, *top, page, found);
    let leaving = front.push(machine, top.push(page), found);
    if found != 0 {
        for (level, before) in before.into_iter().enumerate() {
            counts.add(level, before as usize, 1);
        }
        return;
    }
    for (level, before) in before.into_iter().enumerate() {
        let at = behind.remove(machine, level, page.index_bits(), page.id());
        counts.add(level, before as usize + at, 1);
    }
    if let Some(leaving) = leaving {
        for level in 0..LEVELS {
            behind.push(machine, level, leaving.index_bits(), leaving.id());
        }
    }
}
