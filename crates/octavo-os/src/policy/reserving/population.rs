//! Touched pages of a reservation, counted for every aligned part.

use crate::frames::{BlockSet, Order};

/// Pages per word of the set.
const WORD: Order = Order::new(6).expect("64 pages");

/// The touched pages of a block.
#[derive(Clone, Debug)]
pub struct Population {
    touched: BlockSet,
    /// By order above a word's: the number of touched pages in each aligned part.
    sums: Vec<Vec<u32>>,
}

impl Population {
    /// No touched pages in a block of `order`.
    pub fn none(order: Order) -> Self {
        Population::of(BlockSet::none(order))
    }

    fn of(touched: BlockSet) -> Self {
        let pages = touched.order().frames();
        let above = (WORD.raw() + 1..=touched.order().raw()).map(|order| {
            let part = 1 << order;
            let count = |at| touched.runs(at..at + part).map(|run| (run.end - run.start) as u32);
            (0..pages).step_by(part as usize).map(|at| count(at).sum()).collect()
        });
        Population { sums: above.collect(), touched }
    }

    /// Marks page `at` as touched.
    pub fn insert(&mut self, at: u64) {
        if !self.touched.insert(at) {
            return;
        }
        for (number, sums) in self.sums.iter_mut().enumerate() {
            sums[(at >> (WORD.raw() + 1) >> number) as usize] += 1;
        }
    }

    /// The number of touched pages in the aligned part of `order` that holds page `at`.
    pub fn count(&self, at: u64, order: Order) -> u64 {
        if order > WORD {
            let sums = &self.sums[usize::from(order.raw() - WORD.raw() - 1)];
            return u64::from(sums[(at >> order.raw()) as usize]);
        }
        self.touched.count_of(at, order)
    }

    /// The aligned part of `order` that begins at page `at`, on its own.
    pub fn part(&self, at: u64, order: Order) -> Self {
        Population::of(self.touched.part(at, order))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #![proptest_config(octavo_oracle::cases(256))]

        #[test]
        fn population_counts_every_part(
            order in 0u8..10,
            places in prop::collection::vec(0u64..1024, 0..200),
            (at, part) in (0u64..1024, 0u8..10),
        ) {
            let order = Order::new(order).unwrap();
            let mut population = Population::none(order);
            let mut plain = BTreeSet::new();
            for place in places {
                population.insert(place % order.frames());
                plain.insert(place % order.frames());
            }
            let part = Order::new(part.min(order.raw())).unwrap();
            let first = (at % order.frames()) >> part.raw() << part.raw();
            let cut = population.part(first, part);
            for at in first..first + part.frames() {
                for order in part.and_smaller() {
                    let begin = at >> order.raw() << order.raw();
                    let expected = plain.range(begin..begin + order.frames()).count() as u64;
                    prop_assert_eq!(population.count(at, order), expected);
                    prop_assert_eq!(cut.count(at - first, order), expected);
                }
            }
        }
    }
}
