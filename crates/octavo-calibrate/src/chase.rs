//! Pointer chases: random cycles over cache lines, and the loops that follow them.

use std::cell::Cell;
use std::ptr;

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::Rng;

use crate::clock::ticks;

/// Independent chases that run at once where loads are to overlap as widely as in a program without dependences: more
/// than the page walkers of any known core, and about as many as a core has misses under way.
const OVERLAPPED: usize = 24;
/// Loads of a chase with other work between them that are timed together.
pub const CHUNK: usize = 256;

/// Numbers of independent chases whose time is measured: up to more misses than any known core has under way.
pub const CHASES: [usize; 9] = [1, 2, 4, 8, 16, 24, 32, 48, 64];

const UNROLLED: usize = 16;

/// A place in memory that holds the address of the next link. Zeroed memory is a link in no cycle.
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

    /// The number of its links.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// The link `number` steps behind the first.
    pub fn place(&self, number: usize) -> &'a Link {
        self.order[number % self.order.len()]
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

    /// Follows links one at a time, with other work after each. Returns the ticks of a load without those of reading
    /// the clock: the mean of each [`CHUNK`] of loads.
    pub fn follow_between(&self, steps: usize, mut work: impl FnMut()) -> Vec<f64> {
        let clock = (0..CHUNK).map(|_| ticks().abs_diff(ticks())).min().unwrap_or(0);
        let mut at = self.order[self.at.get()];
        let mut chunks = Vec::with_capacity(steps / CHUNK);
        for _ in 0..steps / CHUNK {
            let mut sum = 0;
            for _ in 0..CHUNK {
                let before = ticks();
                at = std::hint::black_box(next(at));
                let after = ticks();
                sum += (after - before).saturating_sub(clock);
                work();
            }
            chunks.push(sum as f64 / CHUNK as f64);
        }
        self.at.set((self.at.get() + steps / CHUNK * CHUNK) % self.order.len());
        chunks
    }

    /// As [`Cycle::follow_between`], with a pause of `pause` ticks as the work.
    pub fn follow_paced(&self, steps: usize, pause: u64) -> Vec<f64> {
        self.follow_between(steps, || {
            let began = ticks();
            while ticks() - began < pause {}
        })
    }

    /// Follows the cycle from `OVERLAPPED` places at once: see `follow_from`.
    pub fn follow_overlapped(&self, steps: usize) -> usize {
        self.follow_from::<OVERLAPPED>(steps)
    }

    /// Follows the cycle from `chases` places at once, a number in [`CHASES`]: see `follow_from`.
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

/// Chases of random reads that fill the caches before a few are timed.
pub const FILLING: usize = 16;

/// Random reads of lines, with reuse, as a program reads a table: unlike a cycle, which returns to
/// a line only after all others. The value of each read changes the place of the next one of its
/// chase.
pub struct RandomReads {
    states: [u64; FILLING],
}

impl RandomReads {
    /// Chases that begin at random places.
    pub fn new(random: &mut Xoshiro256PlusPlus) -> Self {
        RandomReads { states: std::array::from_fn(|_| random.next_u64()) }
    }

    /// Reads the first lines of a memory in turns of `CHASES` chases at once, each read of a chase depending on the one
    /// before, `reads` in all. `reads` is rounded up; the reads made are returned.
    pub fn read<'a, const CHASES: usize>(
        &mut self,
        lines: usize,
        link: impl Fn(usize) -> &'a Link,
        reads: usize,
    ) -> usize {
        const { assert!(CHASES <= FILLING) };
        let mut states: [u64; CHASES] = std::array::from_fn(|chase| self.states[chase]);
        let turns = reads.div_ceil(CHASES);
        for _ in 0..turns {
            for state in &mut states {
                // Knuth's generator: its upper bits choose the line.
                *state = state.wrapping_mul(MULTIPLIER).wrapping_add(INCREMENT);
                let line = ((u128::from(*state) * lines as u128) >> 64) as usize;
                *state = state.wrapping_add(link(line).0.get() as u64);
            }
        }
        self.states[..CHASES].copy_from_slice(&std::hint::black_box(states));
        turns * CHASES
    }
}

const MULTIPLIER: u64 = 6_364_136_223_846_793_005;
const INCREMENT: u64 = 1_442_695_040_888_963_407;

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

/// A random number below `end`, by Lemire's multiplication; its bias, `end` in 2^64, does not matter here.
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
    fn paced_loads_pause_and_go_on_where_they_ended() {
        let memory = links(1000);
        let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
        let cycle = Cycle::new(memory.iter().collect(), &mut random);
        let started = ticks();
        let chunks = cycle.follow_paced(3 * CHUNK + 1, 100);
        assert!(ticks() - started >= 100 * 3 * CHUNK as u64);
        assert_eq!(chunks.len(), 3);
        assert!(chunks.iter().all(|ticks| *ticks >= 0.0));
        assert_eq!(cycle.at.get(), 3 * CHUNK);
        cycle.follow_paced(CHUNK, 1);
        assert_eq!(cycle.at.get(), (4 * CHUNK) % 1000);
    }

    #[test]
    fn other_work_comes_after_each_load() {
        let memory = links(1000);
        let cycle = Cycle::new(memory.iter().collect(), &mut Xoshiro256PlusPlus::seed_from_u64(1));
        let mut times = 0;
        assert_eq!(cycle.follow_between(2 * CHUNK, || times += 1).len(), 2);
        assert_eq!(times, 2 * CHUNK);
    }

    #[test]
    fn random_reads_reach_all_lines_and_no_others() {
        let memory = links(40);
        let seen = std::cell::RefCell::new(HashSet::new());
        let mut reads = RandomReads::new(&mut Xoshiro256PlusPlus::seed_from_u64(2));
        let link = |line: usize| {
            seen.borrow_mut().insert(line);
            &memory[line]
        };
        assert_eq!(reads.read::<1>(40, link, 500), 500);
        assert_eq!(reads.read::<FILLING>(40, link, 500), 512);
        assert_eq!(seen.into_inner(), (0..40).collect());
    }

    #[test]
    fn a_random_read_depends_on_the_value_of_the_one_before() {
        let places = |value: usize| {
            let memory = [Link(Cell::new(value as *const Link))];
            let mut places = Vec::new();
            let places_of = std::cell::RefCell::new(&mut places);
            let mut reads = RandomReads::new(&mut Xoshiro256PlusPlus::seed_from_u64(2));
            let link = |line: usize| {
                places_of.borrow_mut().push(line);
                &memory[0]
            };
            reads.read::<1>(1 << 20, link, 2);
            places
        };
        let (zero, other) = (places(0), places(1 << 60));
        assert_eq!(zero[0], other[0]);
        assert_ne!(zero[1], other[1]);
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
