//! Measures look-ups in arrays, and in the same arrays with a plain linear search:
//!
//!     hw_speed [--references N] [--rounds N]
//!
//! The streams are data addresses of synthetic loops: hot words, strides, and one access in twenty
//! at a random address in 64 KiB ("far": four in twenty, in 16 MiB). Each round runs all tasks in
//! turn. The table shows the median processor time of a reference in nanoseconds, for each
//! instruction set and for the linear search, and the ratio of the linear search to the best
//! instruction set. The hits of all runs of a task must be equal.
//!
//! "tlb+cache" looks every reference up in a first-level TLB and in a first-level cache; "tlb+caches"
//! has all cache levels, with write-backs, which the linear search leaves out.

mod timing;

use std::hint::black_box;

use octavo_hw::{
    CacheConfig, Caches, Geometry, PrefetchersConfig, PrivateConfig, PteEntry, Replacement,
    ServedBy, SetArray, SharedConfig,
};
use octavo_types::{Compiled, Instructions};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use timing::{median, thread_ns};

/// The addresses of one access in the body of a loop.
enum Site {
    /// Always the same word.
    Hot(u64),
    /// Addresses `bytes` apart; `at` is the last one.
    Strided { at: u64, bytes: u64 },
    /// Random addresses in `pages` pages.
    Anywhere { pages: u64 },
}

/// The data addresses of loops with twenty accesses each: eight hot, `anywhere` random in `pages`
/// pages, the others strided. After 5,000 iterations a new loop begins.
fn stream(references: usize, anywhere: usize, pages: u64, seed: u64) -> Vec<u64> {
    let mut numbers = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut addresses = Vec::with_capacity(references);
    while addresses.len() < references {
        let mut body: Vec<Site> = (0..20)
            .map(|place| match place {
                0..8 => Site::Hot(0x7000_0000 + numbers.next_u64() % 0x4000),
                place if place < 8 + anywhere => Site::Anywhere { pages },
                _ => Site::Strided {
                    at: 0x1000_0000 + numbers.next_u64() % (pages << 12),
                    bytes: [4, 4, 8, 8, 8, 16][(numbers.next_u64() % 6) as usize],
                },
            })
            .collect();
        // The kinds are mixed, as in code.
        for place in 0..body.len() {
            body.swap(place, (numbers.next_u64() % 20) as usize);
        }
        for _ in 0..5_000 {
            addresses.extend(body.iter_mut().map(|site| match site {
                Site::Hot(at) => *at,
                Site::Strided { at, bytes } => {
                    *at += *bytes;
                    *at
                }
                Site::Anywhere { pages } => 0x2000_0000 + numbers.next_u64() % (*pages << 12),
            }));
        }
    }
    addresses.truncate(references);
    addresses
}

/// LRU sets of numbers, the most recently used first, searched linearly.
struct Plain {
    sets: Vec<Vec<u64>>,
    ways: usize,
}

impl Plain {
    fn new(sets: usize, ways: usize) -> Self {
        Plain { sets: vec![Vec::with_capacity(ways); sets], ways }
    }

    /// Looks a number up, and inserts it on a miss. Returns whether it hit.
    #[inline(always)]
    fn access(&mut self, number: u64) -> bool {
        let sets = self.sets.len();
        let set = &mut self.sets[number as usize & (sets - 1)];
        let place = set.iter().position(|held| *held == number);
        match place {
            Some(place) => set[..=place].rotate_right(1),
            None => {
                if set.len() == self.ways {
                    set.pop();
                }
                set.insert(0, number);
            }
        }
        place.is_some()
    }
}

/// As [`Plain::access`], in a [`SetArray`].
#[inline(always)]
fn access(array: &mut SetArray<u64>, number: u64) -> bool {
    let set = array.geometry().set_of(number);
    let hit = array.look_up(set, number).is_some();
    if !hit {
        array.insert_missed(set, number, number);
    }
    hit
}

fn array(sets: u64, ways: u64, instructions: Instructions) -> SetArray<u64> {
    let geometry = Geometry::new(sets, ways).expect("it has entries");
    SetArray::new(geometry, Replacement::Lru, instructions)
}

fn caches(instructions: Instructions) -> Caches {
    let cache = |bytes, ways, latency_cycles| CacheConfig {
        bytes,
        ways,
        line_bytes: 64,
        latency_cycles,
        replacement: Replacement::Lru,
    };
    let l1 = cache(32 << 10, 8, 4);
    let l2 = cache(256 << 10, 4, 12);
    let prefetchers = PrefetchersConfig::default();
    let private = PrivateConfig { l1i: l1, l1d: l1, l2, pte_entry: PteEntry::L1d, prefetchers };
    let shared = SharedConfig {
        llc: cache(8 << 20, 16, 42),
        memory_latency_cycles: 200,
        others_fill_every_cycles: 0,
        tiers: Vec::new(),
    };
    Caches::new(&private, &shared, instructions).expect("they are real ones")
}

/// The structures that each address is looked up in.
trait Path {
    /// Empty structures.
    fn new(instructions: Instructions) -> Self;

    /// Looks an address up. Returns the number of structures that hit.
    fn access(&mut self, addr: u64) -> u64;
}

/// No look-up, to measure the loop itself.
struct Nothing;

impl Path for Nothing {
    fn new(_: Instructions) -> Self {
        Nothing
    }

    #[inline(always)]
    fn access(&mut self, addr: u64) -> u64 {
        black_box(addr) & 1
    }
}

/// One array of pages or lines of 2^`SHIFT` bytes.
struct One<const SETS: usize, const WAYS: usize, const SHIFT: u32, A>(A);

impl<const SETS: usize, const WAYS: usize, const SHIFT: u32> Path
    for One<SETS, WAYS, SHIFT, SetArray<u64>>
{
    fn new(instructions: Instructions) -> Self {
        One(array(SETS as u64, WAYS as u64, instructions))
    }

    #[inline(always)]
    fn access(&mut self, addr: u64) -> u64 {
        u64::from(access(&mut self.0, addr >> SHIFT))
    }
}

impl<const SETS: usize, const WAYS: usize, const SHIFT: u32> Path
    for One<SETS, WAYS, SHIFT, Plain>
{
    fn new(_: Instructions) -> Self {
        One(Plain::new(SETS, WAYS))
    }

    #[inline(always)]
    fn access(&mut self, addr: u64) -> u64 {
        u64::from(self.0.access(addr >> SHIFT))
    }
}

/// Two paths, one after the other.
struct Both<A, B>(A, B);

impl<A: Path, B: Path> Path for Both<A, B> {
    fn new(instructions: Instructions) -> Self {
        Both(A::new(instructions), B::new(instructions))
    }

    #[inline(always)]
    fn access(&mut self, addr: u64) -> u64 {
        self.0.access(addr) + self.1.access(addr)
    }
}

/// Loads through all cache levels; hits of the first level count.
struct Loads<C>(C);

impl Path for Loads<Caches> {
    fn new(instructions: Instructions) -> Self {
        Loads(caches(instructions))
    }

    #[inline(always)]
    fn access(&mut self, addr: u64) -> u64 {
        u64::from(self.0.load(addr >> 6).by == ServedBy::L1)
    }
}

impl Path for Loads<[Plain; 3]> {
    fn new(_: Instructions) -> Self {
        Loads([Plain::new(64, 8), Plain::new(1024, 4), Plain::new(8192, 16)])
    }

    #[inline(always)]
    fn access(&mut self, addr: u64) -> u64 {
        let [l1, l2, llc] = &mut self.0;
        let line = addr >> 6;
        if l1.access(line) {
            return 1;
        }
        black_box(l2.access(line) || llc.access(line));
        0
    }
}

/// A path, and the addresses to look up in it.
struct Accesses<'a, P>(P, &'a [u64]);

impl<P: Path> Compiled for Accesses<'_, P> {
    type Output = u64;

    #[inline(always)]
    fn run(mut self) -> u64 {
        let mut hits = 0;
        for addr in self.1 {
            hits += self.0.access(*addr);
        }
        hits
    }
}

/// A measured run over addresses. Returns the number of hits.
type Run = fn(Instructions, &[u64]) -> u64;

/// A measurement on one stream, by this crate and by linear search.
struct Task {
    name: &'static str,
    stream: usize,
    fast: Run,
    plain: Run,
}

fn count_hits<P: Path>(instructions: Instructions, addresses: &[u64]) -> u64 {
    instructions.run(Accesses(P::new(instructions), addresses))
}

fn task<F: Path, P: Path>(name: &'static str, stream: usize) -> Task {
    Task { name, stream, fast: count_hits::<F>, plain: count_hits::<P> }
}

/// The task of one array.
macro_rules! one {
    ($name:expr, $stream:expr, $sets:literal, $ways:literal, $shift:literal) => {
        task::<One<$sets, $ways, $shift, SetArray<u64>>, One<$sets, $ways, $shift, Plain>>(
            $name, $stream,
        )
    };
}

type FastTlb = One<16, 4, 12, SetArray<u64>>;
type PlainTlb = One<16, 4, 12, Plain>;
type FastCache = One<64, 8, 6, SetArray<u64>>;
type PlainCache = One<64, 8, 6, Plain>;

fn option(name: &str, or: usize) -> usize {
    let args: Vec<String> = std::env::args().collect();
    let at = args.iter().position(|arg| arg == name);
    at.and_then(|at| args.get(at + 1)?.parse().ok()).unwrap_or(or)
}

fn main() {
    let (references, rounds) = (option("--references", 4 << 20), option("--rounds", 7));
    let streams = [stream(references, 1, 16, 1), stream(references, 4, 4096, 2)];
    let mut tasks = Vec::new();
    for (stream, [tlb, l2, cache, both, all]) in [
        ["16 x 4, pages", "128 x 12, pages", "64 x 8, lines", "tlb+cache", "tlb+caches"],
        ["16 x 4, far", "128 x 12, far", "64 x 8, far", "tlb+cache, far", "tlb+caches, far"],
    ]
    .into_iter()
    .enumerate()
    {
        tasks.push(one!(tlb, stream, 16, 4, 12));
        tasks.push(one!(l2, stream, 128, 12, 12));
        tasks.push(one!(cache, stream, 64, 8, 6));
        tasks.push(task::<Both<FastTlb, FastCache>, Both<PlainTlb, PlainCache>>(both, stream));
        tasks.push(task::<Both<FastTlb, Loads<Caches>>, Both<PlainTlb, Loads<[Plain; 3]>>>(
            all, stream,
        ));
    }
    tasks.push(task::<Nothing, Nothing>("nothing", 0));
    tasks.push(one!("1 x 64, pages", 0, 1, 64, 12));
    tasks.push(one!("1 x 2048, far", 1, 1, 2048, 12));
    let all = Instructions::all();
    let mut times = vec![vec![Vec::new(); all.len() + 1]; tasks.len()];
    let mut hits = vec![0; tasks.len()];
    for round in 0..rounds {
        for (at, task) in tasks.iter().enumerate() {
            let fast = all.iter().map(|instructions| (task.fast, *instructions));
            let runs = fast.chain([(task.plain, Instructions::PORTABLE)]);
            for (column, (run, instructions)) in runs.enumerate() {
                let addresses = black_box(&streams[task.stream]);
                let start = thread_ns();
                let hit = run(instructions, addresses);
                times[at][column].push((thread_ns() - start) as f64 / references as f64);
                if (round, column) != (0, 0) {
                    assert_eq!(hit, hits[at], "{}", task.name);
                }
                hits[at] = hit;
            }
        }
    }
    print!("{:<18}{:>7}", "ns a reference", "hits %");
    for instructions in &all {
        print!("{:>10}", instructions.name());
    }
    println!("{:>10}{:>8}", "plain", "ratio");
    for ((task, times), hits) in tasks.iter().zip(times).zip(&hits) {
        let medians: Vec<f64> = times.into_iter().map(median).collect();
        print!("{:<18}{:>7.1}", task.name, 100.0 * *hits as f64 / references as f64);
        medians.iter().for_each(|median| print!("{median:>10.2}"));
        println!("{:>8.2}", medians[medians.len() - 1] / medians[medians.len() - 2]);
    }
}
