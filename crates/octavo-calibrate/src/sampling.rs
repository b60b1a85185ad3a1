//! How each kind of samples is taken.

use rand_xoshiro::Xoshiro256PlusPlus;

use crate::chase::{CHUNK, Cycle, FILLING, RandomReads};
use crate::clock::time;
use crate::memory::Memory;
use crate::plan::{LINE_BYTES, SMALL_PAGE, working_sets};
use crate::samples::{
    DenseSamples, LatencySamples, ParallelSamples, RandomSamples, SpreadSamples, StreamSamples,
    StrideSamples, WalkerSamples, WindowSamples,
};
use crate::streams::stream;
use crate::windows::Windows;

/// Loads that are timed together: so many that the time to read the clock is negligible, and so few
/// that most end before the next interrupt.
const FEWEST_LOADS: usize = 4096;
const MOST_LOADS: usize = 16384;
/// Passes of which the shortest counts, since interrupts only make them longer.
const PASSES: usize = 3;
/// The most links of a chase that is followed once before it is timed. A longer one exceeds every
/// cache, and was just written in its order.
const MOST_WARMED_LINKS: usize = 1 << 19;
/// The most links of a working set that is measured in every round; larger ones are measured in
/// fewer rounds.
const LINKS_IN_EVERY_ROUND: usize = 1 << 17;
const MOST_ROUNDS_BETWEEN: usize = 8;
/// Ticks between loads of a paced chase, which walks as rarely as many programs do.
pub const PAUSE_TICKS: u64 = 1000;
/// Lines of other memory that are read between loads of a displaced chase, as by a program that works on much data
/// between its walks.
const DISPLACING_READS: usize = 64;
/// Bytes of the memory with these lines: more than the share of one core in a last-level cache.
const DISPLACING_BYTES: usize = 64 << 20;
/// Loads of a paced or displaced chase that are timed.
const PACED_LOADS: usize = 16 * CHUNK;
/// The least working set of such a chase: the page table of a smaller one lies in the core's own caches.
const LEAST_PACED_SET: usize = 32 << 20;
/// Bytes of 4 KiB pages whose entries fill a cache line of the page table.
const BYTES_OF_A_TABLE_LINE: usize = SMALL_PAGE * LINE_BYTES / 8;
/// Pairs of loads that are timed together in a window.
const PAIRS: usize = 64;
/// Random reads that fill the caches first: for each line, and at most.
const FILLING_READS: usize = 3;
const MOST_FILLING_READS: usize = 1 << 20;
/// Random reads that are timed together: so few that other cores can displace little meanwhile.
/// Before the next ones, the caches are refilled.
const RANDOM_READS: usize = 4096;
const REFILLING_READS: usize = 1 << 16;
/// Reads of a lone chase that are timed together, after as many as fill the caches.
const LONE_READS: usize = 1 << 14;

/// The lines of a control are one in `SPARSENESS`, if it has at most `MOST_SPARSE_LINES`.
const SPARSENESS: usize = 4;
const MOST_SPARSE_LINES: usize = 8192;

/// Random reads behind faster ones, which have filled the caches with the working set.
pub fn sample_random(
    samples: &mut RandomSamples,
    memory: &Memory,
    random: &mut Xoshiro256PlusPlus,
) {
    let lines = samples.bytes / LINE_BYTES;
    let link = |line: usize| memory.link(line);
    let mut reads = RandomReads::new(random);
    reads.read::<FILLING>(lines, link, (FILLING_READS * lines).min(MOST_FILLING_READS));
    let mut shortest = f64::INFINITY;
    for _ in 0..PASSES {
        let ticks = time(|| reads.read::<1>(lines, link, RANDOM_READS));
        shortest = shortest.min(ticks as f64 / RANDOM_READS as f64);
        reads.read::<FILLING>(lines, link, REFILLING_READS);
    }
    samples.ticks.push(shortest);
}

/// Reads until the caches hold as much as so slow a program keeps in them, then times some reads.
pub fn sample_lone(samples: &mut RandomSamples, memory: &Memory, random: &mut Xoshiro256PlusPlus) {
    let lines = samples.bytes / LINE_BYTES;
    let link = |line: usize| memory.link(line);
    let mut reads = RandomReads::new(random);
    reads.read::<1>(lines, link, (FILLING_READS * lines).min(MOST_FILLING_READS));
    let ticks = time(|| reads.read::<1>(lines, link, LONE_READS));
    samples.ticks.push(ticks as f64 / LONE_READS as f64);
}

/// Several chases at once over one line in each page.
pub fn sample_walkers(
    samples: &mut WalkerSamples,
    memory: &Memory,
    random: &mut Xoshiro256PlusPlus,
) {
    let pages = samples.pages;
    let cycle = Cycle::new(memory.one_in_each(pages, SMALL_PAGE, random), random);
    warm(&cycle);
    for entry in &mut samples.by_chases {
        entry
            .ticks
            .push(shortest(loads(pages), |loads| cycle.follow_parallel(entry.chases, loads)));
    }
}

/// Measures in every eighth round, as often as other measurements in eight: linking a working set
/// that no cache holds takes longer than measuring it.
pub fn sample_windows(
    samples: &mut [WindowSamples],
    round: usize,
    windows: &Windows,
    memory: &Memory,
    random: &mut Xoshiro256PlusPlus,
) {
    let bytes = working_sets(memory.bytes()).last().copied().unwrap_or(0);
    let (links, passes) = passes_in(round, bytes);
    if passes == 0 {
        return;
    }
    let cycle = Cycle::new(memory.all(bytes), random);
    let mut chases = [cycle.place(0), cycle.place(links / 2)];
    for _ in 0..passes {
        for (number, entry) in samples.iter_mut().enumerate() {
            let mut shortest = f64::INFINITY;
            for _ in 0..PASSES {
                let ticks = time(|| chases = windows.follow(number, chases, PAIRS));
                shortest = shortest.min(ticks as f64 / PAIRS as f64);
            }
            entry.ticks.push(shortest);
        }
    }
}

/// A chase over one line in each piece of huge pages.
pub fn sample_stride(
    samples: &mut StrideSamples,
    memory: &Memory,
    random: &mut Xoshiro256PlusPlus,
) {
    let lines = memory.one_in_each(samples.lines, samples.stride_bytes, random);
    let cycle = Cycle::new(lines, random);
    warm(&cycle);
    samples.ticks.push(shortest(loads(samples.lines), |loads| cycle.follow(loads)));
}

/// A chase over all lines of a working set.
pub fn sample_latency(
    samples: &mut LatencySamples,
    round: usize,
    memory: &Memory,
    random: &mut Xoshiro256PlusPlus,
) {
    let (links, passes) = passes_in(round, samples.bytes);
    if passes == 0 {
        return;
    }
    let cycle = Cycle::new(memory.all(samples.bytes), random);
    warm(&cycle);
    for _ in 0..passes {
        samples.ticks.push(shortest(loads(links), |loads| cycle.follow(loads)));
    }
}

/// Chases over all lines of a working set in pages of both sizes.
pub fn sample_dense(
    samples: &mut DenseSamples,
    round: usize,
    small: &Memory,
    huge: &Memory,
    random: &mut Xoshiro256PlusPlus,
) {
    let (links, passes) = passes_in(round, samples.bytes);
    if passes == 0 {
        return;
    }
    let loads = loads(links);
    let mut reads = RandomReads::new(random);
    for (memory, times) in [(small, &mut samples.small), (huge, &mut samples.huge)] {
        let cycle = Cycle::new(memory.all(samples.bytes), random);
        warm(&cycle);
        // Before loads of a kind are timed, twice as many loads of this kind are made as the page table has lines. The
        // page table then lies in the cache level where a program with such loads finds it. After faster loads it lies
        // in a nearer one, so that the first slow loads are too fast: therefore every pass counts, not the shortest.
        let before = 2 * samples.bytes / BYTES_OF_A_TABLE_LINE;
        cycle.follow(before);
        for _ in 0..passes {
            times.dependent.push(ticks_per_load(loads, |loads| cycle.follow(loads)));
        }
        cycle.follow_overlapped(before);
        for _ in 0..passes {
            times.overlapped.push(ticks_per_load(loads, |loads| cycle.follow_overlapped(loads)));
        }
        if samples.bytes >= LEAST_PACED_SET {
            cycle.follow_paced(before, PAUSE_TICKS);
            for _ in 0..passes {
                let chunks = cycle.follow_paced(PACED_LOADS, PAUSE_TICKS);
                times.paced.extend(quartile(&chunks, 2));
            }
            let lines = DISPLACING_BYTES.min(huge.bytes()) / LINE_BYTES;
            let first = huge.bytes() / LINE_BYTES - lines;
            let mut displace = || {
                reads.read::<FILLING>(lines, |line| huge.link(first + line), DISPLACING_READS);
            };
            cycle.follow_between(before, &mut displace);
            for _ in 0..passes {
                let chunks = cycle.follow_between(PACED_LOADS, &mut displace);
                times.displaced.extend(quartile(&chunks, 2));
            }
        }
    }
}

/// Several chases at once over all lines of a working set.
pub fn sample_parallel(
    samples: &mut ParallelSamples,
    round: usize,
    memory: &Memory,
    random: &mut Xoshiro256PlusPlus,
) {
    let (links, passes) = passes_in(round, samples.bytes);
    if passes == 0 {
        return;
    }
    let cycle = Cycle::new(memory.all(samples.bytes), random);
    warm(&cycle);
    for _ in 0..passes {
        for entry in &mut samples.by_chases {
            let loads = loads(links) * entry.chases.div_ceil(4);
            entry.ticks.push(shortest(loads, |loads| cycle.follow_parallel(entry.chases, loads)));
        }
    }
}

/// Memory from beginning to end.
pub fn sample_stream(samples: &mut StreamSamples, memory: &Memory) {
    let lines = samples.bytes / LINE_BYTES;
    samples.ticks.push(shortest(lines, |lines| {
        stream(memory, samples.bytes, samples.direction);
        lines
    }));
}

/// The links of a working set, and the number of passes over them in a round: a large one is
/// measured in few rounds only, but then as often as smaller ones in the rounds that it leaves out.
fn passes_in(round: usize, bytes: usize) -> (usize, usize) {
    let links = bytes / LINE_BYTES;
    let rounds_between = (links / LINKS_IN_EVERY_ROUND).clamp(1, MOST_ROUNDS_BETWEEN);
    (links, if round.is_multiple_of(rounds_between) { rounds_between } else { 0 })
}

/// A chase over one line in each page, and then one over the lines of the control.
pub fn sample_spread(
    samples: &mut SpreadSamples,
    memory: &Memory,
    control: &Memory,
    random: &mut Xoshiro256PlusPlus,
) {
    let pages = samples.pages;
    let loads = loads(pages);
    let cycle = Cycle::new(memory.one_in_each(pages, samples.stride_bytes, random), random);
    warm(&cycle);
    samples.dependent.push(shortest(loads, |loads| cycle.follow(loads)));
    samples.overlapped.push(shortest(loads, |loads| cycle.follow_overlapped(loads)));
    drop(cycle);
    let cycle = Cycle::new(control.scattered(pages, samples.control_bytes, random), random);
    warm(&cycle);
    samples.control_dependent.push(shortest(loads, |loads| cycle.follow(loads)));
    samples.control_overlapped.push(shortest(loads, |loads| cycle.follow_overlapped(loads)));
}

/// Bytes within which the lines of the control lie.
///
/// They lie close together, so that they need few TLB entries even where a host translates 2 MiB
/// pages in pieces of 4 KiB. Few lines are one in four at random, to spread over the sets of caches as
/// unevenly as one line in each page does; among many this makes no difference.
pub fn control_bytes(pages: usize) -> usize {
    let lines = if pages <= MOST_SPARSE_LINES { SPARSENESS * pages } else { pages };
    lines * LINE_BYTES
}

/// Loads that are timed together over a cycle of this number of links: whole turns of a short one.
fn loads(links: usize) -> usize {
    if links >= FEWEST_LOADS {
        return links.min(MOST_LOADS);
    }
    FEWEST_LOADS.div_ceil(links) * links
}

/// Follows a whole cycle from many places at once: so fast that other cores displace little of it
/// meanwhile from a shared cache.
fn warm(cycle: &Cycle<'_>) {
    if cycle.len() <= MOST_WARMED_LINKS {
        cycle.follow_parallel(FILLING, cycle.len());
    }
}

/// Ticks per load of the shortest of some passes.
fn shortest(loads: usize, pass: impl Fn(usize) -> usize) -> f64 {
    (0..PASSES).map(|_| ticks_per_load(loads, &pass)).fold(f64::INFINITY, f64::min)
}

/// Ticks per load of a pass, which returns the loads it made.
fn ticks_per_load(loads: usize, pass: impl Fn(usize) -> usize) -> f64 {
    let mut made = 0;
    let ticks = time(|| made = pass(loads));
    ticks as f64 / made.max(1) as f64
}

/// The quartile of this number; `None` without samples.
pub fn quartile(ticks: &[f64], number: usize) -> Option<f64> {
    let mut ordered = ticks.to_vec();
    ordered.sort_by(f64::total_cmp);
    ordered.get(ordered.len() * number / 4).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_whole_turns_of_short_cycles() {
        assert_eq!(loads(8), 4096);
        assert_eq!(loads(3000), 6000);
        assert_eq!(loads(5000), 5000);
        assert_eq!(loads(1 << 20), MOST_LOADS);
    }
}
