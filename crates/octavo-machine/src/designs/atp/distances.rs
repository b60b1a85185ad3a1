//! Free distances: how far the other entries of a line of page-table entries are from the one that a walk reads, and
//! which distances have been useful.

use octavo_types::{PageNumber, PageSize};

/// Distances of a line of eight entries, from -7 to 7.
const DISTANCES: usize = 15;

/// A saturating counter for each free distance.
pub struct Distances {
    counters: [u64; DISTANCES],
    most: u64,
    threshold: u64,
}

impl Distances {
    /// Counters of `bits` bits, all 0. Distances whose counter is above the threshold are useful.
    pub fn new(bits: u64, threshold: u64) -> Self {
        Distances { counters: [0; DISTANCES], most: (1 << bits) - 1, threshold }
    }

    fn place(distance: i64) -> usize {
        (distance + DISTANCES as i64 / 2) as usize
    }

    /// Whether pages at this distance are prefetched.
    pub fn is_useful(&self, distance: i64) -> bool {
        self.counters[Self::place(distance)] > self.threshold
    }

    /// Counts a use of a page at this distance. A counter that has become full halves all of them.
    pub fn count(&mut self, distance: i64) {
        let counter = &mut self.counters[Self::place(distance)];
        *counter += 1;
        if *counter == self.most {
            self.counters.iter_mut().for_each(|counter| *counter /= 2);
        }
    }
}

/// The other pages of this size whose entries share a line of `in_line` entries with that of a page: distances and
/// first base pages, in ascending order.
pub fn neighbours(
    page: PageNumber,
    size: PageSize,
    in_line: u64,
) -> impl Iterator<Item = (i64, PageNumber)> {
    let order = size.base_shift();
    let number = page.raw() >> order;
    let first = number / in_line * in_line;
    (first..first + in_line)
        .filter(move |other| *other != number)
        .map(move |other| (other.wrapping_sub(number) as i64, PageNumber::new(other << order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_counter_halves_all_counters() {
        let mut distances = Distances::new(3, 2);
        (0..6).for_each(|_| distances.count(1));
        (0..5).for_each(|_| distances.count(-7));
        assert!(distances.is_useful(1) && distances.is_useful(-7) && !distances.is_useful(7));
        // 7 and 5 become 3 and 2.
        distances.count(1);
        assert!(distances.is_useful(1) && !distances.is_useful(-7));
    }

    #[test]
    fn a_line_has_the_entries_of_eight_pages() {
        let neighbours_of = |page, size| {
            neighbours(PageNumber::new(page), size, 8).map(|(at, page)| (at, page.raw())).collect()
        };
        let base: Vec<_> = neighbours_of(18, PageSize::BASE);
        assert_eq!(base, [(-2, 16), (-1, 17), (1, 19), (2, 20), (3, 21), (4, 22), (5, 23)]);
        let huge: Vec<_> = neighbours_of(512 * 9 + 5, PageSize::HUGE);
        assert_eq!((huge[0], huge[6], huge.len()), ((-1, 512 * 8), (6, 512 * 15), 7));
    }
}
