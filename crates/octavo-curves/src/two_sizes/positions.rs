//! Look-ups of one kind of page in set-associative TLBs, by the position of the page in its set.

use super::recent::{EXACT, INDEXES, Use};
use crate::lanes::{LEVELS, TOP, in_common};
use crate::sets::{AtTop, Counts, POSITIONS};

/// The TLBs that a look-up concerns: one for each index, and then the one of its page's size alone.
pub const TLBS: usize = INDEXES + 1;
/// The last of these.
pub const SPLIT: usize = INDEXES;

/// The look-ups of one kind of page.
pub struct Positions {
    /// By level, TLB and position. The counts of all TLBs at a level are adjacent, since they are addressed together.
    by_level: Box<[[[u64; POSITIONS]; TLBS]; LEVELS]>,
    /// Look-ups of one of the four pages used last.
    at_top: Box<[AtTop; TLBS]>,
    /// Look-ups in alternation with another page, by its kind and by the number of index bits that the two have in
    /// common, four bits for each index.
    alternating: [Box<[u64; 1 << (4 * INDEXES)]>; 2],
}

impl Positions {
    /// No look-ups.
    pub fn new() -> Self {
        Positions {
            by_level: Box::new([[[0; POSITIONS]; TLBS]; LEVELS]),
            at_top: Default::default(),
            alternating: std::array::from_fn(|_| Box::new([0; 1 << (4 * INDEXES)])),
        }
    }

    /// Counts a look-up by the position in each TLB, with 2^`level` sets.
    #[inline(always)]
    pub fn add(&mut self, level: usize, positions: [u32; TLBS]) {
        for (counts, position) in self.by_level[level].iter_mut().zip(positions) {
            counts[position as usize % POSITIONS] += 1;
        }
    }

    /// Counts a look-up by the index bits in common with the pages at the top: see [`AtTop`].
    #[inline(always)]
    pub fn add_at_top(&mut self, common: [usize; TLBS]) {
        for (counts, common) in self.at_top.iter_mut().zip(common) {
            counts.add(common, 1);
        }
    }

    /// Counts look-ups in alternation with a page of kind `other`. `common` is from [`common_bits`].
    #[inline(always)]
    pub fn alternate(&mut self, other: usize, common: usize, times: u64) {
        let counts = &mut self.alternating[other % 2];
        counts[common % counts.len()] += times;
    }

    /// Look-ups that [`Positions::add_at_top`] and [`Positions::alternate`] have counted, by the number of pages used
    /// since.
    pub fn at_top(&self) -> [u64; TOP] {
        let mut by_place = self.at_top[EXACT].by_place();
        by_place[1] += self.alternating.iter().flat_map(|counts| counts.iter()).sum::<u64>();
        by_place
    }

    /// All look-ups in a TLB. `kind` is the kind of these pages.
    pub fn of_tlb(&self, kind: usize, tlb: usize) -> Counts {
        let mut counts = Counts::default();
        for (level, tlbs) in self.by_level.iter().enumerate() {
            for (position, times) in tlbs[tlb].iter().enumerate() {
                counts.add(level, position, *times);
            }
        }
        self.at_top[tlb].add_to(&mut counts);
        let index = if tlb == SPLIT { EXACT } else { tlb };
        for (other, alternating) in self.alternating.iter().enumerate() {
            // Pages of different kinds stay the most recent ones of their TLBs.
            if tlb == SPLIT && other != kind {
                continue;
            }
            for (common, times) in alternating.iter().enumerate().filter(|(_, times)| **times > 0) {
                // The second most recent in the sets that both share, the most recent in others.
                let common = common >> (4 * index) & 0xf;
                (0..=common).for_each(|level| counts.add(level, 1, *times));
            }
        }
        counts
    }
}

/// The number of index bits that two uses have in common, four bits for each index.
#[inline(always)]
pub fn common_bits(a: Use, b: Use) -> usize {
    let mut all = 0;
    for index in 0..INDEXES {
        all |= in_common(a.bits[index], b.bits[index]) << (4 * index);
    }
    all as usize
}
