//! A fully associative LRU TLB as a list in recency order, and hierarchies of such TLBs.

use octavo_types::PageNumber;

/// A fully associative TLB that replaces the least recently used entry.
#[derive(Clone, Debug)]
pub struct NaiveTlb {
    /// The pages held, most recently used first.
    pages: Vec<PageNumber>,
    entries: usize,
}

impl NaiveTlb {
    /// An empty TLB with room for `entries` pages, at least 1.
    pub fn new(entries: usize) -> Self {
        assert!(entries > 0, "a TLB has at least one entry");
        NaiveTlb { pages: Vec::new(), entries }
    }

    /// Looks `page` up, and fills it on a miss. Returns whether it hit.
    pub fn access(&mut self, page: PageNumber) -> bool {
        let position = self.pages.iter().position(|&held| held == page);
        if let Some(position) = position {
            self.pages.remove(position);
        } else if self.pages.len() == self.entries {
            self.pages.pop();
        }
        self.pages.insert(0, page);
        position.is_some()
    }

    /// Removes all entries.
    pub fn flush(&mut self) {
        self.pages.clear();
    }

    /// Invalidates the entry of `page`, and returns whether it was present. The entry is free for the next page.
    pub fn invalidate(&mut self, page: PageNumber) -> bool {
        let position = self.pages.iter().position(|&held| held == page);
        if let Some(position) = position {
            self.pages.remove(position);
        }
        position.is_some()
    }
}

/// A hierarchy of TLBs: each level is looked up only if the level before it missed, and every level that missed
/// is filled.
#[derive(Clone, Debug)]
pub struct NaiveHierarchy {
    levels: Vec<NaiveTlb>,
}

impl NaiveHierarchy {
    /// Empty levels of `entries` entries, the first level first.
    pub fn new(entries: &[usize]) -> Self {
        NaiveHierarchy { levels: entries.iter().map(|&entries| NaiveTlb::new(entries)).collect() }
    }

    /// Looks `page` up and returns the number of levels that missed: 0 is a hit in the first level, the number of
    /// levels is a miss in all.
    pub fn access(&mut self, page: PageNumber) -> usize {
        for (missed, level) in self.levels.iter_mut().enumerate() {
            if level.access(page) {
                return missed;
            }
            // The level missed, and has been filled: continue with the next.
        }
        self.levels.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten look-ups in a TLB of three entries, and its content after each, most recent first.
    #[test]
    fn ten_lookups_in_three_entries() {
        let (hit, miss) = (true, false);
        let mut tlb = NaiveTlb::new(3);
        for (page, outcome, content) in [
            (1, miss, vec![1]),
            (2, miss, vec![2, 1]),
            (1, hit, vec![1, 2]),
            (3, miss, vec![3, 1, 2]),
            (4, miss, vec![4, 3, 1]), // evicts 2, the least recent
            (1, hit, vec![1, 4, 3]),
            (2, miss, vec![2, 1, 4]), // evicts 3
            (2, hit, vec![2, 1, 4]),
            (3, miss, vec![3, 2, 1]), // evicts 4
            (1, hit, vec![1, 3, 2]),
        ] {
            assert_eq!(tlb.access(PageNumber::new(page)), outcome, "page {page}");
            let held: Vec<u64> = tlb.pages.iter().map(|page| page.raw()).collect();
            assert_eq!(held, content, "after page {page}");
        }
    }

    /// An invalidated entry is filled before any other is evicted.
    #[test]
    fn invalid_entry_is_filled_first() {
        let mut tlb = NaiveTlb::new(2);
        tlb.access(PageNumber::new(1));
        tlb.access(PageNumber::new(2));
        assert!(tlb.invalidate(PageNumber::new(2)));
        assert!(!tlb.invalidate(PageNumber::new(2)));
        assert!(!tlb.access(PageNumber::new(3)));
        assert!(tlb.access(PageNumber::new(1)));
        assert!(!tlb.access(PageNumber::new(2))); // evicts 3
        assert!(!tlb.access(PageNumber::new(3)));
    }

    /// Ten look-ups in two levels of one and two entries.
    #[test]
    fn ten_lookups_in_two_levels() {
        let (first, second, neither) = (0, 1, 2);
        let mut levels = NaiveHierarchy::new(&[1, 2]);
        for (page, found) in [
            (1, neither),
            (1, first),
            (2, neither), // second level: 2 1
            (1, second),  // second level: 1 2
            (1, first),   // not seen by the second level
            (2, second),  // second level: 2 1
            (3, neither), // second level: 3 2
            (1, neither), // second level: 1 3
            (3, second),  // second level: 3 1
            (2, neither),
        ] {
            assert_eq!(levels.access(PageNumber::new(page)), found, "page {page}");
        }
    }
}
