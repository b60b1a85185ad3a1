//! Depths in a fully associative TLB among a subset of the pages.

use std::collections::BTreeMap;

use octavo_types::PageNumber;

/// How deep kept pages are found among each other: SHARDS (Waldspurger et al., FAST 2015) without
/// its scaling.
#[derive(Clone, Debug, Default)]
pub struct NaiveSampledDepths {
    /// The kept pages, most recently touched first.
    pages: Vec<PageNumber>,
    /// How often a page of a group was found under so many others, at least one.
    pub found: BTreeMap<(u8, usize), u64>,
    /// Pages by group, each counted at its first touch.
    pub kept: BTreeMap<u8, u64>,
}

impl NaiveSampledDepths {
    /// A touch of a page; `group` is none where it is not kept.
    pub fn touch(&mut self, page: PageNumber, group: Option<u8>) {
        let Some(group) = group else { return };
        match self.pages.iter().position(|held| *held == page) {
            Some(others) => {
                self.pages.remove(others);
                if others > 0 {
                    *self.found.entry((group, others)).or_default() += 1;
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
        // Page 2 is not kept, page 3 is of another group than 1 and 4.
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
