//! A set-associative LRU TLB as a list for each set.

use octavo_types::PageNumber;

/// A set-associative TLB whose sets fill free or invalidated entries first, and then replace the least
/// recently used entry.
///
/// The caller selects the set, so that any index is possible, even one that maps a page to several sets:
/// each of them then has an entry of its own for the page.
#[derive(Clone, Debug)]
pub struct NaiveSets {
    /// The pages of each set, most recently used first.
    sets: Vec<Vec<PageNumber>>,
    ways: usize,
}

impl NaiveSets {
    /// `sets` empty sets of `ways` ways, at least 1 of each.
    pub fn new(sets: usize, ways: usize) -> Self {
        assert!(sets > 0 && ways > 0, "a TLB has at least one entry");
        NaiveSets { sets: vec![Vec::new(); sets], ways }
    }

    /// Looks `page` up in a set, and fills it on a miss. Returns whether it hit.
    pub fn access(&mut self, set: usize, page: PageNumber) -> bool {
        let held = &mut self.sets[set];
        let position = held.iter().position(|&other| other == page);
        if let Some(position) = position {
            held.remove(position);
        } else if held.len() == self.ways {
            held.pop();
        }
        held.insert(0, page);
        position.is_some()
    }

    /// Removes all entries.
    pub fn flush(&mut self) {
        self.sets.iter_mut().for_each(Vec::clear);
    }

    /// Invalidates the entries of `page` in all sets, and returns their number.
    pub fn invalidate(&mut self, page: PageNumber) -> u64 {
        let mut invalidated = 0;
        for held in &mut self.sets {
            let before = held.len();
            held.retain(|&other| other != page);
            invalidated += (before - held.len()) as u64;
        }
        invalidated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two sets of two ways, indexed by the low bit of the page number: the outcome of each look-up, and the content of
    /// its set afterwards.
    #[test]
    fn lookups_in_two_sets_of_two_ways() {
        let (hit, miss) = (true, false);
        let mut tlb = NaiveSets::new(2, 2);
        for (page, outcome, content) in [
            (1, miss, vec![1]),
            (2, miss, vec![2]),
            (3, miss, vec![3, 1]),
            (1, hit, vec![1, 3]),
            (5, miss, vec![5, 1]), // evicts 3
            (2, hit, vec![2]),
            (3, miss, vec![3, 5]), // evicts 1
        ] {
            assert_eq!(tlb.access(page % 2, PageNumber::new(page as u64)), outcome, "page {page}");
            let held: Vec<u64> = tlb.sets[page % 2].iter().map(|page| page.raw()).collect();
            assert_eq!(held, content, "after page {page}");
        }
    }

    /// A free entry is filled before any entry is replaced; a page may be in two sets.
    #[test]
    fn invalid_ways_are_filled_first() {
        let [a, b, c] = [7, 8, 9].map(PageNumber::new);
        let mut tlb = NaiveSets::new(2, 2);
        assert!(!tlb.access(0, a) && !tlb.access(0, b) && !tlb.access(1, a));
        assert_eq!((tlb.invalidate(b), tlb.invalidate(b)), (1, 0));
        assert!(!tlb.access(0, c) && tlb.access(0, a), "a was not replaced");
        assert_eq!(tlb.invalidate(a), 2);
        assert!(tlb.access(0, c) && !tlb.access(1, a));
    }
}
