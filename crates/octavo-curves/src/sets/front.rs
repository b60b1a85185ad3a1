//! The most recently used pages after the first four, in vectors.

use super::pages::Page;
use super::top::Top;
use crate::lanes::{Bits, LEVELS, Lanes, MAX_WAYS, Machine, NONE, Order, PAGES, TOP, up_to_first};

/// The most pages in the front.
const MOST: usize = PAGES - TOP;

/// Pages in order of their last use.
pub(super) struct Front {
    /// Ids of the pages; [`NONE`] past the last one.
    ids: [Lanes; 2],
    bits: Bits,
    /// Number of pages.
    pages: usize,
}

impl Front {
    /// No pages.
    pub fn new() -> Self {
        Front { ids: [Lanes::EMPTY; 2], bits: Bits([0; PAGES]), pages: 0 }
    }

    /// The lane of a page, as a mask; 0 if the page is absent.
    #[inline(always)]
    pub fn find<M: Machine>(&self, machine: M, page: Page) -> u32 {
        let [near, far] = &self.ids;
        machine.equal(near, page.id()) | machine.equal(far, page.id()) << MAX_WAYS
    }

    /// Number of pages used since a page, which `find` has found at `found`, that share its set, at each level.
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

    /// Inserts a page that has left the top at the front, unless it is [`Page::NONE`]. Removes the page found at
    /// `found`; if there is none, removes the last page if the front is full, and returns it.
    #[inline(always)]
    pub fn push<M: Machine>(&mut self, machine: M, pushed: Page, found: u32) -> Option<Page> {
        let [near, far] = &mut self.ids;
        let moving = up_to_first(found) & ((1 << MOST) - 1);
        let (middle, last) = (near.0[MAX_WAYS - 1], far.0[MOST - 1 - MAX_WAYS]);
        let last_bits = self.bits.0[MOST - 1];
        machine.push(near, pushed.id(), moving);
        machine.push(far, middle, moving >> MAX_WAYS);
        machine.push_bits(&mut self.bits, pushed.index_bits() as u16, moving);
        if found != 0 {
            return None;
        }
        let is_page = pushed.id() != NONE;
        self.pages = (self.pages + usize::from(is_page)).min(MOST);
        (last != NONE).then(|| Page::new(last, u32::from(last_bits)))
    }
}
