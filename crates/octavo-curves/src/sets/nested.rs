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
//!
//! An invalidated entry leaves a hole, see [`super::holes`]. Its page is first moved to the lists, with
//! all pages used before it, so that only lists have holes. A hole is the same as a position that was
//! never filled.

use octavo_types::Instructions;

use super::front::Front;
use super::lists::Lists;
use super::misses::{Counts, Misses};
use super::pages::Page;
use super::top::Top;
use crate::lanes::{
    LEVELS, Lanes, MAX_WAYS, Machine, NONE, TOP, Work, first, from_first, run, up_to_first,
};

/// The use of a page, and then uses of the previous page and this one in alternation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub page: Page,
    /// The kind of the page: 0 or 1.
    pub kind: usize,
    /// The kind of the previous page; meaningless without alternations.
    pub before_kind: usize,
    /// Number of uses in alternation, beginning with the previous page.
    pub alternations: u32,
}

/// The sets of one stream.
pub(super) struct Nested {
    /// The four pages used last.
    top: Top,
    /// The pages used before the top.
    front: Front,
    /// Pages that have left the front.
    behind: Lists,
    instructions: Instructions,
}

impl Nested {
    /// Empty sets.
    pub fn new(instructions: Instructions) -> Self {
        Nested {
            top: Top([Page::NONE; 4]),
            front: Front::new(),
            behind: Lists::new(),
            instructions,
        }
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
        let Nested { top: last, front, behind, .. } = self;
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

    /// Uses pages of two kinds in turn, each kind with misses of its own.
    #[inline(always)]
    pub fn use_steps<M: Machine>(
        &mut self,
        machine: M,
        steps: impl Iterator<Item = Step>,
        misses: &mut [Misses; 2],
    ) {
        let Nested { top: last, front, behind, .. } = self;
        let mut top = *last;
        for Step { page, kind, before_kind, alternations } in steps {
            let (counts, at_top) = misses[kind % 2].parts();
            match top.find(page) {
                Some(found) => at_top.add(found, 1),
                None => far(machine, page, &mut top, front, behind, counts),
            }
            // Also without alternations, which saves a branch.
            let found = top.alternate(alternations);
            misses[kind % 2].parts().1.add(found, u64::from(alternations / 2));
            misses[before_kind % 2].parts().1.add(found, u64::from(alternations.div_ceil(2)));
        }
        *last = top;
    }

    /// Uses a page.
    #[inline(always)]
    pub fn touch(&mut self, page: Page, misses: &mut Misses) {
        match self.top.find(page) {
            Some(found) => misses.parts().1.add(found, 1),
            None => run(self.instructions, OneFar { sets: self, page, misses }),
        }
    }

    /// Invalidates all entries of the id of `page`. Its index bits are among 2^`indexes_log2` values,
    /// of which `page` has the first.
    pub fn invalidate(&mut self, page: Page, indexes_log2: u8, invalidated: &mut Misses) {
        let at = last_pages(&self.top, &self.front).position(|other| other.id() == page.id());
        if let Some(at) = at {
            self.spill(at);
        }
        let Nested { top, front, behind, .. } = self;
        let before = |level: usize, set: u32| {
            let share = |other: &Page| (other.index_bits() ^ set) & ((1 << level) - 1) == 0;
            last_pages(top, front).filter(share).count()
        };
        behind.invalidate(page, indexes_log2, before, invalidated);
    }

    /// Removes all pages.
    pub fn clear(&mut self) {
        self.top = Top([Page::NONE; 4]);
        self.front = Front::new();
        self.behind.clear();
    }

    /// The instruction set that it uses.
    pub fn instructions(&self) -> Instructions {
        self.instructions
    }

    /// Moves all but the first `keep` of the last pages to the lists.
    fn spill(&mut self, keep: usize) {
        let pages: Vec<Page> = last_pages(&self.top, &self.front).skip(keep).collect();
        run(self.instructions, Spill { pages, lists: &mut self.behind });
        self.front.truncate(keep.saturating_sub(TOP));
        for page in self.top.0.iter_mut().skip(keep) {
            *page = Page::NONE;
        }
    }

    /// Converts all pages to lists.
    pub fn into_lists(mut self) -> Lists {
        self.spill(0);
        self.behind
    }
}

/// The last pages, in order.
fn last_pages<'a>(top: &'a Top, front: &'a Front) -> impl Iterator<Item = Page> + 'a {
    top.pages().chain(front.iter())
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
        let at = remove(machine, behind.set(level, page.index_bits()), page.id());
        counts.add(level, before as usize + at, 1);
    }
    if let Some(leaving) = leaving {
        for level in 0..LEVELS {
            let list = behind.set(level, leaving.index_bits());
            machine.push(list, leaving.id(), u32::MAX);
        }
    }
}

/// Removes an id from a list, because its page is used, and returns its position.
///
/// Since one more page now comes before the list, the ids below this one keep their positions in the
/// set. If there is a hole above the id, or the id is absent, that hole is filled by the ids above it:
/// the list closes up there, and the id's own position becomes a hole.
#[inline(always)]
fn remove<M: Machine>(machine: M, list: &mut Lanes, id: u32) -> usize {
    let at = machine.equal(list, id);
    let ends = at | machine.equal(list, NONE);
    if at & !up_to_first(ends) != 0 {
        list.0[first(at) % MAX_WAYS] = NONE;
    }
    machine.pull(list, from_first(ends));
    first(at)
}

/// The use of one page that is not in the top.
struct OneFar<'a> {
    sets: &'a mut Nested,
    page: Page,
    misses: &'a mut Misses,
}

impl Work for OneFar<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        let Nested { top, front, behind, .. } = self.sets;
        far(machine, self.page, top, front, behind, self.misses.parts().0);
    }
}

/// The move of pages, most recently used first, to the lists.
struct Spill<'a> {
    pages: Vec<Page>,
    lists: &'a mut Lists,
}

impl Work for Spill<'_> {
    #[inline(always)]
    fn on<M: Machine>(self, machine: M) {
        for page in self.pages.iter().rev() {
            for level in 0..LEVELS {
                machine.push(self.lists.set(level, page.index_bits()), page.id(), u32::MAX);
            }
        }
    }
}
