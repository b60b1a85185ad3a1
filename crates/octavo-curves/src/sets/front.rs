//! The most recently used pages after the first four, in vectors.

use super::LEVELS;
use super::MAX_WAYS;
use super::lanes::{Bits, Lanes, Machine, NONE, Order, PAGES, TOP, up_to_first};
use super::pages::Page;
use super::top::Top;

/// How many pages there are at most.
const MOST: usize = PAGES - TOP;

/// Pages in order of their last use.
pub(super) struct Front {
    /// Ids of the pages; [`NONE`] past the last one.
    ids: [Lanes; 2],
    bits: Bits,
    /// How many pages there are.
    pages: usize,
}

impl Front {
    /// No pages.
    pub fn new() -> Self {
        Front { ids: [Lanes::EMPTY; 2], bits: Bits([0; PAGES]), pages: 0 }
    }

    /// Where a page is, as lanes: none where it is not here.
    #[inline(always)]
    pub fn find<M: Machine>(&self, machine: M, page: Page) -> u32 {
        let [near, far] = &self.ids;
        machine.equal(near, page.id()) | machine.equal(far, page.id()) << MAX_WAYS
    }

    /// With how many of the pages used since it was a page, which `find` has found at `found`, shares
    /// its set, at each level.
    #[inline(always)]
    pub fn sharing<M: Machine>(
        &self,
        machine: M,
        top: Top,
        page: Page,
        found: u32,
    ) -> [u32; LEVELS] {
        // Without pages here the top may not be full.
        let pages = if self.pages > 0 {
            TOP + self.pages.min(found.trailing_zeros() as usize)
        } else {
            top.pages().count()
        };
        let order = Order { top: top.bits(), bits: &self.bits, pages };
        machine.sharing(order, page.index_bits() as u16)
    }

    /// Inserts a page that has fallen off the top, if it is one, at the front, and removes the one
    /// found at `found`, or else the last one, which is returned if it no longer fits.
    #[inline(always)]
    pub fn push<M: Machine>(&mut self, machine: M, fallen: Page, found: u32) -> Option<Page> {
        let [near, far] = &mut self.ids;
        let moving = up_to_first(found) & ((1 << MOST) - 1);
        let (middle, last) = (near.0[MAX_WAYS - 1], far.0[MOST - 1 - MAX_WAYS]);
        let last_bits = self.bits.0[MOST - 1];
        machine.push(near, fallen.id(), moving);
        machine.push(far, middle, moving >> MAX_WAYS);
        machine.push_bits(&mut self.bits, fallen.index_bits() as u16, moving);
        if found != 0 {
            return None;
        }
        let is_page = fallen.id() != NONE;
        self.pages = (self.pages + usize::from(is_page)).min(MOST);
        (last != NONE).then(|| Page::new(last, u32::from(last_bits)))
    }

    /// The pages, the last used first.
    pub fn iter(&self) -> impl Iterator<Item = Page> + '_ {
        (0..self.pages).map(|at| {
            Page::new(self.ids[at / MAX_WAYS].0[at % MAX_WAYS], u32::from(self.bits.0[at]))
        })
    }

    /// Keeps only the first so many.
    pub fn truncate(&mut self, pages: usize) {
        for at in pages..MOST {
            self.ids[at / MAX_WAYS].0[at % MAX_WAYS] = NONE;
        }
        self.pages = self.pages.min(pages);
    }
}
