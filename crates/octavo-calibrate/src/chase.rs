//! Pointer chases: random cycles over cache lines, and the loops that follow them.

use std::cell::Cell;
use std::ptr;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

/// Independent chases that run at once to let page walks overlap: more than the page walkers of any
/// known core.
pub const OVERLAPPED: usize = 8;

/// Numbers of independent chases whose time is measured: up to more misses than any known core has under way.
pub const CHASES: [usize; 9] = [1, 2, 4, 8, 16, 24, 32, 48, 64];

const UNROLLED: usize = 16;

/// A place in memory that holds the address of the next one; zeroed memory is one that is in no cycle.
#[repr(transparent)]
pub struct Link(Cell<*const Link>);

/// A random cycle through all of its links.
pub struct Cycle<'a> {
    order: Vec<&'a Link>,
    at: Cell<usize>,
}

impl<'a> Cycle<'a> {
    /// Links `order` into one cycle, in an order that is drawn from `random`.
    pub fn new(mut order: Vec<&'a Link>, random: &mut Xoshiro256PlusPlus) -> Self {
        assert!(!order.is_empty(), "a cycle has links");
        shuffle(&mut order, random);
        for (link, next) in order.iter().zip(order.iter().cycle().skip(1)) {
            link.0.set(ptr::from_ref(*next));
        }
        Cycle { order, at: Cell::new(0) }
    }

    /// Its links, in order.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Follows `steps` links, each load depending on the one before, from where the last call ended.
    ///
    /// `steps` is rounded up to the steps of an unrolled loop; the steps made are returned.
    pub fn follow(&self, steps: usize) -> usize {
        let mut at = self.order[self.at.get()];
        let iterations = steps.div_ceil(UNROLLED);
        for _ in 0..iterations {
            for _ in 0..UNROLLED {
                at = next(at);
            }
        }
        std::hint::black_box(ptr::from_ref(at));
        let made = iterations * UNROLLED;
        self.at.set((self.at.get() + made) % self.order.len());
        made
    }

    /// Follows the cycle from `OVERLAPPED` places at once: see `follow_from`.
    pub fn follow_overlapped(&self, steps: usize) -> usize {
        self.follow_from::<OVERLAPPED>(steps)
    }

    /// Follows the cycle from so many places at once, one of [`CHASES`]: see `follow_from`.
    pub fn follow_parallel(&self, chases: usize, steps: usize) -> usize {
        match chases {
            1 => self.follow(steps),
            2 => self.follow_from::<2>(steps),
            4 => self.follow_from::<4>(steps),
            8 => self.follow_from::<8>(steps),
            16 => self.follow_from::<16>(steps),
            24 => self.follow_from::<24>(steps),
            32 => self.follow_from::<32>(steps),
            48 => self.follow_from::<48>(steps),
            64 => self.follow_from::<64>(steps),
            _ => unreachable!("the plan has the chases that are listed"),
        }
    }

    /// Follows the cycle from `CHASES` places at once, `steps` links in all, each chase independent
    /// of the others. `steps` is rounded up; the steps made are returned.
    fn follow_from<const CHASES: usize>(&self, steps: usize) -> usize {
        let length = self.order.len();
        let first = self.at.get();
        let mut at: [&Link; CHASES] =
            std::array::from_fn(|chase| self.order[(first + chase * length / CHASES) % length]);
        let iterations = steps.div_ceil(CHASES);
        for _ in 0..iterations {
            for link in &mut at {
                *link = next(link);
            }
        }
        std::hint::black_box(at.map(ptr::from_ref));
        self.at.set((first + iterations) % length);
        iterations * CHASES
    }
}

#[inline(always)]
fn next(link: &Link) -> &Link {
    // SAFETY: only `Cycle::new` links, to links that outlive the cycle; only a cycle can be followed.
    unsafe { &*link.0.get() }
}

/// Fisher and Yates' shuffle: every order is equally likely.
pub fn shuffle<T>(items: &mut [T], random: &mut Xoshiro256PlusPlus) {
    for last in (1..items.len()).rev() {
        items.swap(last, below(last + 1, random));
    }
}

/// A random number below `end`, by Lemire's multiplication; its bias, `end` in 2^64, is no matter here.
pub fn below(end: usize, random: &mut Xoshiro256PlusPlus) -> usize {
    ((u128::from(random.next_u64()) * end as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use octavo_oracle::cases;
    use proptest::prelude::*;
    use rand_xoshiro::rand_core::SeedableRng;

    use super::*;

    fn links(count: usize) -> Vec<Link> {
        (0..count).map(|_| Link(Cell::new(ptr::null()))).collect()
    }

    proptest! {
        #![proptest_config(cases(100))]

        #[test]
        fn a_cycle_visits_every_link_once_and_returns(count in 1usize..300, seed: u64) {
            let memory = links(count);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let cycle = Cycle::new(memory.iter().collect(), &mut random);
            let start = cycle.order[0];
            let mut at = start;
            let mut seen = HashSet::new();
            for _ in 0..count {
                prop_assert!(seen.insert(ptr::from_ref(at)));
                at = next(at);
            }
            prop_assert!(ptr::eq(at, start));
            prop_assert_eq!(seen.len(), cycle.len());
        }

        #[test]
        fn following_continues_where_it_ended(count in 1usize..100, calls in 1usize..5, seed: u64) {
            let memory = links(count);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let cycle = Cycle::new(memory.iter().collect(), &mut random);
            let made: usize = (0..calls).map(|call| cycle.follow(10 * call)).sum();
            let mut at = cycle.order[0];
            for _ in 0..made {
                at = next(at);
            }
            prop_assert!(ptr::eq(at, cycle.order[cycle.at.get()]));
        }

        #[test]
        fn overlapped_chases_make_the_steps_asked_for(count in 1usize..100, steps in 0usize..50) {
            let memory = links(count);
            let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
            let cycle = Cycle::new(memory.iter().collect(), &mut random);
            for chases in CHASES {
                let made = cycle.follow_parallel(chases, steps);
                prop_assert!(made >= steps && made < steps + chases.max(UNROLLED));
            }
        }
    }

    #[test]
    fn all_cycles_of_four_links_are_drawn() {
        let memory = links(4);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(7);
        let mut drawn = HashSet::new();
        for _ in 0..200 {
            let cycle = Cycle::new(memory.iter().collect(), &mut random);
            let mut successors = Vec::new();
            for link in &memory {
                successors.push(ptr::from_ref(next(link)));
            }
            drawn.insert(successors);
            drop(cycle);
        }
        assert_eq!(drawn.len(), 6, "(4 - 1)! cycles");
    }
}
