//! Average working sets, by counting the pages of every window.

use std::collections::BTreeSet;

use octavo_types::{PageNumber, PageSize};

/// The working set of one page size and one window: W(t, T) is "the set of distinct pages
/// referenced in the interval [t - T + 1, t]" (Talluri et al., section 3.2).
#[derive(Clone, Debug)]
pub struct NaiveWorkingSet {
    page_size: PageSize,
    window_refs: u64,
    history: Vec<Vec<PageNumber>>,
    /// The pages of W(t, T), summed over all references so far.
    pub page_refs: u128,
}

impl NaiveWorkingSet {
    /// The state before the first reference; `window_refs` is T, at least 1.
    pub fn new(page_size: PageSize, window_refs: u64) -> Self {
        NaiveWorkingSet { page_size, window_refs, history: Vec::new(), page_refs: 0 }
    }

    /// Adds a reference to these base pages.
    pub fn reference(&mut self, base_pages: &[PageNumber]) {
        self.history.push(base_pages.to_vec());
        let newest_first = self.history.iter().rev();
        let window = newest_first.zip(0..self.window_refs).flat_map(|(pages, _)| pages);
        let distinct: BTreeSet<u64> =
            window.map(|page| page.raw() >> self.page_size.base_shift()).collect();
        self.page_refs += distinct.len() as u128;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn six_references_by_hand() {
        let mut small = NaiveWorkingSet::new(PageSize::BASE, 3);
        let mut large = NaiveWorkingSet::new(PageSize::from_log2(13).unwrap(), 3);
        // Pages 0 and 1 share a page of 8 KiB; the fourth reference spans pages 1 and 2.
        let references = [vec![0], vec![1], vec![1], vec![1, 2], vec![7], vec![7]];
        for pages in references {
            let pages: Vec<PageNumber> = pages.into_iter().map(PageNumber::new).collect();
            small.reference(&pages);
            large.reference(&pages);
        }
        // {0} {0 1} {0 1} {1 2} {1 2 7} {1 2 7}
        assert_eq!(small.page_refs, 1 + 2 + 2 + 2 + 3 + 3);
        // {0} {0} {0} {0 1} {0 1 3} {0 1 3}
        assert_eq!(large.page_refs, 1 + 1 + 1 + 2 + 3 + 3);
    }
}
