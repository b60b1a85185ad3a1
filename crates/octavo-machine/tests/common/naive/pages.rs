//! What page tables say, and what a walk sees beside.

use octavo_types::PageNumber;

use super::tlb::Page;
use super::{NaiveMachine, PROCESS};

impl NaiveMachine {
    /// What the page table says of a base page that is mapped.
    pub fn page(&self, page: u64) -> Page {
        let table = &self.os.memory().process(PROCESS).table;
        let leaf = table.leaf(PageNumber::new(page)).unwrap();
        let (_, dirty) = table.used(PageNumber::new(page)).unwrap();
        let first = leaf.page.raw() >> leaf.size.base_shift();
        let (frame, write) = (leaf.frame.raw(), leaf.rights.write);
        Page { size: leaf.size, first, count: 1, frame, write, dirty, filter: None, bits: 0 }
    }

    /// The same with the pages beside it that its walk has seen, and that are like it.
    pub fn page_and_neighbours(&self, page: u64) -> Page {
        let own = self.page(page);
        if own.size.base_shift() > 0 {
            return own;
        }
        let table = &self.os.memory().process(PROCESS).table;
        let own_rights = table.leaf(PageNumber::new(page)).unwrap().rights;
        let is_like_it = |other: u64| {
            let number = PageNumber::new(other);
            table.leaf(number).is_some_and(|leaf| {
                leaf.size == own.size
                    && leaf.rights == own_rights
                    && leaf.frame.raw() + page == own.frame + other
                    && table.used(number) == Some((true, own.dirty))
            })
        };
        let seen = 8.min(self.line_bytes / 8);
        let group = page / seen * seen;
        let (mut first, mut end) = (page, page + 1);
        while first > group && is_like_it(first - 1) {
            first -= 1;
        }
        while end < group + seen && is_like_it(end) {
            end += 1;
        }
        Page { first, count: end - first, frame: own.frame - (page - first), ..own }
    }
}
