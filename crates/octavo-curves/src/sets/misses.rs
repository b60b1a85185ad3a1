//! Results of look-ups and invalidations, for every number of sets and ways at once.

use super::top::AtTop;
use crate::lanes::{LEVELS, MAX_WAYS};

/// Number of positions that are counted separately; all from [`MAX_WAYS`] on are equivalent.
pub(crate) const POSITIONS: usize = 64;

/// Counts of look-ups by the position of the page in its set, for each number of sets.
#[derive(Clone, Debug, Default)]
pub(super) struct Misses {
    counts: Box<Counts>,
    at_top: Box<AtTop>,
}

/// Counts by level and position. Position 0 is the most recently used page of a set; a page at a position from
/// [`MAX_WAYS`] on is absent at any number of ways.
#[derive(Clone, Debug)]
pub(crate) struct Counts([[u64; POSITIONS]; LEVELS]);

impl Default for Counts {
    fn default() -> Self {
        Counts([[0; POSITIONS]; LEVELS])
    }
}

impl Counts {
    /// Adds `times` look-ups at `position` (below 64) with 2^`level` sets.
    #[inline(always)]
    pub fn add(&mut self, level: usize, position: usize, times: u64) {
        self.0[level][position % POSITIONS] += times;
    }

    /// Look-ups that missed with 2^*s* sets of *w* ways, at `[s][w - 1]`.
    pub fn missed(&self, max_sets_log2: u8) -> Vec<[u64; MAX_WAYS]> {
        self.sums(max_sets_log2, |at, way| at[way + 1..].iter().sum())
    }

    /// Counts of entries that were present with 2^*s* sets of *w* ways, at `[s][w - 1]`. Used for invalidations.
    pub fn held(&self, max_sets_log2: u8) -> Vec<[u64; MAX_WAYS]> {
        self.sums(max_sets_log2, |at, way| at[..=way].iter().sum())
    }

    fn sums(
        &self,
        max_sets_log2: u8,
        sum: impl Fn(&[u64; POSITIONS], usize) -> u64,
    ) -> Vec<[u64; MAX_WAYS]> {
        let levels = &self.0[..=usize::from(max_sets_log2)];
        levels.iter().map(|at| std::array::from_fn(|way| sum(at, way))).collect()
    }
}

impl Misses {
    /// As [`Counts::add`].
    #[inline(always)]
    pub fn add(&mut self, level: usize, position: usize, times: u64) {
        self.counts.add(level, position, times);
    }

    /// The counts by position, and the counts of look-ups that hit at the top.
    #[inline(always)]
    pub fn parts(&mut self) -> (&mut Counts, &mut AtTop) {
        (&mut self.counts, &mut self.at_top)
    }

    /// Look-ups that missed with 2^*s* sets of *w* ways, at `[s][w - 1]`.
    pub fn missed(&self, max_sets_log2: u8) -> Vec<[u64; MAX_WAYS]> {
        let mut counts = Counts::clone(&self.counts);
        self.at_top.add_to(&mut counts);
        counts.missed(max_sets_log2)
    }
}
