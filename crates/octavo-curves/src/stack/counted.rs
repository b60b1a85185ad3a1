//! An order of last use with counts of look-ups by depth.

use super::order::{NO_ID, Order};

/// The pages that have left the list of one page size, in order.
pub struct Counted {
    /// The order.
    pub order: Order,
    /// Look-ups by the depth of the page, less one.
    found: Vec<u64>,
    /// Look-ups of new pages.
    pub pages: u64,
}

impl Counted {
    /// An empty order for depths up to `max_entries`.
    pub fn new(max_entries: u32) -> Self {
        let found = vec![0; max_entries as usize];
        Counted { order: Order::new(max_entries), found, pages: 0 }
    }

    /// Looks up `wanted` and removes it, and inserts `pushed` unless it is [`NO_ID`].
    #[inline(always)]
    pub fn swap(&mut self, wanted: u32, pushed: u32) {
        if let Some(slot) = self.order.slot(wanted) {
            self.found[self.order.depth(slot) as usize - 1] += 1;
            // The list before this order is full, so that `pushed` is a page.
            self.order.replace(slot, pushed);
        } else {
            self.pages += u64::from(self.order.is_new(wanted));
            if pushed != NO_ID {
                self.order.push(pushed);
            }
        }
    }

    /// The number of `touches` that are not found down to each depth.
    pub fn misses(&self, touches: u64) -> impl Iterator<Item = u64> + '_ {
        self.found.iter().scan(touches, |misses, found| {
            *misses -= found;
            Some(*misses)
        })
    }
}
