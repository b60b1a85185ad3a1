//! Misses of one stream by region, page size and level, and their totals.

use octavo_trace::RegionId;

/// Misses of the first and of the second level at one page size.
pub type ByLevel = [u64; 2];

/// The misses of a stream.
#[derive(Clone, Debug)]
pub struct Misses {
    /// `[region][size]` flat.
    regions: Vec<ByLevel>,
    /// Sums over the regions at each size: threads switch often, and each switch reads these.
    total: Vec<ByLevel>,
}

impl Misses {
    /// No misses.
    pub fn new(sizes: usize) -> Self {
        Misses { regions: Vec::new(), total: vec![[0; 2]; sizes] }
    }

    /// Counts a miss at a level (from 0) in a region.
    #[inline(always)]
    pub fn count(&mut self, region: RegionId, size: usize, level: usize) {
        let sizes = self.total.len();
        let at = usize::from(region.0) * sizes + size;
        if self.regions.len() <= at {
            self.regions.resize((usize::from(region.0) + 1) * sizes, [0; 2]);
        }
        self.regions[at][level] += 1;
        self.total[size][level] += 1;
    }

    /// The misses of all regions at a page size.
    pub fn total(&self, size: usize) -> ByLevel {
        self.total[size]
    }

    /// The misses of a region at a page size.
    pub fn of_region(&self, region: usize, size: usize) -> ByLevel {
        self.regions.get(region * self.total.len() + size).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_are_the_sums_of_the_regions() {
        let mut misses = Misses::new(2);
        for (region, size, level) in [(0, 0, 0), (2, 0, 0), (2, 0, 1), (1, 1, 0), (2, 1, 1)] {
            misses.count(RegionId(region), size, level);
        }
        assert_eq!([misses.total(0), misses.total(1)], [[2, 1], [1, 1]]);
        assert_eq!([misses.of_region(2, 0), misses.of_region(2, 1)], [[1, 1], [0, 1]]);
        assert_eq!(misses.of_region(3, 0), [0, 0]);
    }
}
