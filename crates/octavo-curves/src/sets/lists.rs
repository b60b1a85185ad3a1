//! The lists of all sets, for every number of sets.

use super::misses::Misses;
use super::pages::Page;
use crate::lanes::{LEVELS, Lanes, NONE};

/// A list of ids for each set, at each level (log2 of the number of sets).
pub(super) struct Lists(Box<[Lanes; 1 << LEVELS]>);

impl Lists {
    /// Empty sets.
    pub fn new() -> Self {
        let lists: Box<[Lanes]> = vec![Lanes::EMPTY; 1 << LEVELS].into_boxed_slice();
        Lists(lists.try_into().expect("as many as were asked for"))
    }

    /// The set of a level that the low bits of `index` select.
    #[inline(always)]
    pub fn set(&mut self, level: usize, index: u32) -> &mut Lanes {
        let first = 1 << level;
        &mut self.0[(first | index as usize & (first - 1)) % (1 << LEVELS)]
    }

    /// Empties all sets.
    pub fn clear(&mut self) {
        self.0.fill(Lanes::EMPTY);
    }

    /// Turns all entries of the id of `page` into holes. Its index bits are among the 2^`indexes_log2` values
    /// from those of `page` on. `before` returns the number of entries before the list of a level and set.
    pub fn invalidate(
        &mut self,
        page: Page,
        indexes_log2: u8,
        before: impl Fn(usize, u32) -> usize,
        invalidated: &mut Misses,
    ) {
        for level in 0..LEVELS {
            let count = 1 << level.min(usize::from(indexes_log2));
            for set in (0..count).map(|set| (page.index_bits() & !(count - 1)) + set) {
                let list = self.set(level, set);
                if let Some(at) = list.0.iter().position(|id| *id == page.id()) {
                    list.0[at] = NONE;
                    invalidated.add(level, before(level, set) + at, 1);
                }
            }
        }
    }
}
