//! An order of last use with counts of the depths at which pages are found.

use super::order::{NO_ID, Order};

/// The order of one page size, or the deeper part of it.
pub struct Counted {
    /// The order.
    pub order: Order,
    /// How often a page was found at each depth, less one.
    pub found: Vec<u64>,
    /// Pages that were never found because they were new.
    pub pages: u64,
}

impl Counted {
    /// An empty order for depths up to `max_entries`.
    pub fn new(max_entries: u32) -> Self {
        let found = vec![0; max_entries as usize];
        Counted { order: Order::new(max_entries), found, pages: 0 }
    }

    /// Looks a page up and takes it out, for another that is put in, if it is one.
    #[inline(always)]
    pub fn swap(&mut self, wanted: u32, fallen: u32) {
        if let Some(slot) = self.look_up(wanted) {
            // The lists are full, or nothing would have fallen here.
            self.order.replace(slot, fallen);
        } else if fallen != NO_ID {
            self.order.push(fallen);
        }
    }

    /// Looks a page up and makes the newest slot its own; it is to be named.
    #[inline(always)]
    pub fn use_unnamed(&mut self, id: u32) {
        match self.look_up(id) {
            Some(slot) => self.order.replace_unnamed(slot),
            None => self.order.push_unnamed(),
        }
    }

    #[inline(always)]
    fn look_up(&mut self, id: u32) -> Option<u32> {
        let slot = self.order.slot(id);
        match slot {
            Some(slot) => self.found[self.order.depth(slot) as usize - 1] += 1,
            None => self.pages += u64::from(self.order.is_new(id)),
        }
        slot
    }

    /// How many of `touches` are not found down to each depth.
    pub fn misses(&self, touches: u64) -> impl Iterator<Item = u64> + '_ {
        self.found.iter().scan(touches, |misses, found| {
            *misses -= found;
            Some(*misses)
        })
    }
}
