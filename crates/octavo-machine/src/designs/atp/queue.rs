//! A small fully associative array of pages, replaced first in, first out.

use std::collections::VecDeque;

use octavo_os::vmas::Pages;

/// Pages with a value each, oldest first.
pub struct Queue<T> {
    entries: VecDeque<(Pages, T)>,
    capacity: usize,
}

impl<T> Queue<T> {
    /// An empty queue for `capacity` pages.
    pub fn new(capacity: u64) -> Self {
        let capacity = capacity as usize;
        Queue { entries: VecDeque::with_capacity(capacity), capacity }
    }

    fn position(&self, page: u64) -> Option<usize> {
        self.entries.iter().position(|(pages, _)| pages.contains(&page))
    }

    /// Whether the queue has a page that holds a base page.
    pub fn holds(&self, page: u64) -> bool {
        self.position(page).is_some()
    }

    /// Removes the oldest page that holds a base page, and returns its value.
    pub fn take(&mut self, page: u64) -> Option<T> {
        let (_, value) = self.entries.remove(self.position(page)?)?;
        Some(value)
    }

    /// Adds a page, given by its base pages, unless the queue holds its first base page. Returns whether the oldest
    /// page was evicted.
    pub fn push(&mut self, pages: Pages, value: T) -> bool {
        if self.holds(pages.start) {
            return false;
        }
        let evicts = self.entries.len() == self.capacity;
        if evicts {
            self.entries.pop_front();
        }
        self.entries.push_back((pages, value));
        evicts
    }

    /// Removes the pages that overlap any of these base pages.
    pub fn invalidate(&mut self, pages: &Pages) {
        self.entries.retain(|(held, _)| held.end <= pages.start || pages.end <= held.start);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_page_is_evicted_and_a_held_page_keeps_its_place() {
        let mut queue = Queue::new(2);
        assert!(!queue.push(1..2, 'a'));
        assert!(!queue.push(2..3, 'b'));
        assert!(!queue.push(1..2, 'c'));
        assert!(queue.push(512..1024, 'd'));
        assert_eq!((queue.take(1), queue.take(2), queue.take(700)), (None, Some('b'), Some('d')));
    }

    #[test]
    fn overlapping_pages_are_invalidated() {
        let mut queue = Queue::new(4);
        queue.push(1..2, ());
        queue.push(512..1024, ());
        queue.invalidate(&(2..513));
        assert!(queue.holds(1) && !queue.holds(600));
    }
}
