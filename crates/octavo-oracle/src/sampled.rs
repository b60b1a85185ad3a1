//! Depths in a fully associative TLB among a subset of the pages.

use std::collections::BTreeMap;

use octavo_types::PageNumber;

/// LRU stack depths of sampled pages among each other: SHARDS (Waldspurger et al., FAST 2015) without its
/// scaling.
#[derive(Clone, Debug, Default)]
pub struct NaiveSampledDepths {
    /// The sampled pages, most recently touched first.
    pages: Vec<PageNumber>,
    /// Number of touches by the group of the page and its depth (the pages touched since), at least 1.
    pub found: BTreeMap<(u8, usize), u64>,
    /// Sampled pages by group.
    pub kept: BTreeMap<u8, u64>,
}

impl NaiveSampledDepths {
    /// Records a touch of a page; `group` is `None` if the page is not sampled.
    pub fn touch(&mut self, page: PageNumber, group: Option<u8>) {
        let Some(group) = group else { return };
        match self.pages.iter().position(|held| *held == page) {
            Some(depth) => {
                self.pages.remove(depth);
                if depth > 0 {
                    *self.found.entry((group, depth)).or_default() += 1;
                }
            }
            None => *self.kept.entry(group).or_default() += 1,
        }
        self.pages.insert(0, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sampled_depths_of_seven_touches_by_hand() {
        let mut depths = NaiveSampledDepths::default();
        // Page 2 is not sampled; page 3 is in another group than 1 and 4.
        for (page, group) in [
            (1, Some(0)),
            (2, None),
            (3, Some(1)),
            (1, Some(0)),
            (4, Some(0)),
            (3, Some(1)),
            (3, Some(1)),
        ] {
            depths.touch(PageNumber::new(page), group);
        }
        assert_eq!(depths.kept, BTreeMap::from([(0, 2), (1, 1)]));
        assert_eq!(depths.found, BTreeMap::from([((0, 1), 1), ((1, 2), 1)]));
    }
}
