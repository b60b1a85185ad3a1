//! The configuration of page-walk caches.

use octavo_types::PageSize;

use crate::{Geometry, GeometryError, Replacement};

/// The cache of one level of the page table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WalkCacheConfig {
    /// The page-table level, 1 for the table of base pages: an entry of level 2 points to such a table.
    pub level: u8,
    /// log2 of the address space below one entry of the level; entries are found by the address bits above.
    pub reach_log2: u8,
    /// Number of entries.
    pub entries: u64,
    /// Ways per set; equal to `entries` for fully associative.
    pub ways: u64,
    /// The replacement policy.
    pub replacement: Replacement,
}

impl WalkCacheConfig {
    /// A fully associative LRU cache of a level (2 to 5) of x86-64 page tables, each of which resolves nine
    /// bits.
    pub const fn x86_64(level: u8, entries: u64) -> Self {
        WalkCacheConfig {
            level,
            reach_log2: PageSize::BASE.log2() + 9 * (level - 1),
            entries,
            ways: entries,
            replacement: Replacement::Lru,
        }
    }

    pub(super) fn geometry(&self) -> Result<Geometry, WalkCacheError> {
        Geometry::of_entries(self.entries, self.ways)
            .map_err(|error| WalkCacheError::Geometry { level: self.level, error })
    }
}

/// Invalid page-walk caches.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WalkCacheError {
    /// An invalid combination of entries and ways.
    #[error("walk cache of level {level}: {error}")]
    Geometry {
        /// The page-table level.
        level: u8,
        /// The error.
        error: GeometryError,
    },
    /// Two caches for one level.
    #[error("duplicate walk cache for level {level}")]
    Twice {
        /// The page-table level.
        level: u8,
    },
    /// A cache for level 1, which has leaves only.
    #[error("walk cache of level {level}: give a level from 2 on; level 1 has leaves only")]
    Leaf {
        /// As given by the user.
        level: u8,
    },
    /// A level that does not reach further than the level below it.
    #[error("walk cache of level {level}: reach_log2 = {reach_log2}: give {from} to 63")]
    Reach {
        /// The page-table level.
        level: u8,
        /// As given by the user.
        reach_log2: u8,
        /// The smallest valid value.
        from: u8,
    },
}

/// Checks caches, given in order of level.
pub(super) fn check(configs: &[WalkCacheConfig]) -> Result<(), WalkCacheError> {
    let mut from = PageSize::BASE.log2() + 1;
    for (place, &WalkCacheConfig { level, reach_log2, .. }) in configs.iter().enumerate() {
        if level < 2 {
            return Err(WalkCacheError::Leaf { level });
        }
        if place > 0 && configs[place - 1].level == level {
            return Err(WalkCacheError::Twice { level });
        }
        if !(from..64).contains(&reach_log2) {
            return Err(WalkCacheError::Reach { level, reach_log2, from });
        }
        from = reach_log2 + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_of_x86_64() {
        let reach = |level| WalkCacheConfig::x86_64(level, 4).reach_log2;
        assert_eq!([2, 3, 4, 5].map(reach), [21, 30, 39, 48]);
    }

    #[test]
    fn invalid_values_are_rejected_with_one_sentence() {
        let level = |level| WalkCacheConfig::x86_64(level, 4);
        let sentence = |configs: &[WalkCacheConfig]| check(configs).unwrap_err().to_string();
        assert_eq!(check(&[level(2), level(4)]), Ok(()));
        assert_eq!(
            sentence(&[level(1)]),
            "walk cache of level 1: give a level from 2 on; level 1 has leaves only"
        );
        assert_eq!(sentence(&[level(2), level(2)]), "duplicate walk cache for level 2");
        assert_eq!(
            sentence(&[level(2), WalkCacheConfig { reach_log2: 21, ..level(3) }]),
            "walk cache of level 3: reach_log2 = 21: give 22 to 63"
        );
        let ragged = WalkCacheConfig { ways: 3, ..level(2) };
        assert_eq!(
            ragged.geometry().unwrap_err().to_string(),
            "walk cache of level 2: 4 entries of 3 ways: give a multiple of 3, such as 6"
        );
    }
}
