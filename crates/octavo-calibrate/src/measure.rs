//! The measurement: rounds over all sizes, in random order.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

use crate::CalibrateError;
use crate::chase::{CHASES, shuffle};
use crate::clock::{Stopwatch, core_cycles_per_tick};
use crate::faults::{ticks_of_samples, ticks_per_fault};
use crate::memory::Memory;
use crate::plan::{
    FAULTS, FREE_MEMORY_FAULTS, FREE_MEMORY_SAMPLES, GIGANTIC_PAGE, HUGE_PAGE, Plan, SMALL_PAGE,
    STREAMED, dense_sets, lone_sets, page_counts, parallel_sets, piece_counts, random_sets,
    strides, walker_pages, working_sets,
};
use crate::samples::{
    ChaseSamples, DenseSamples, FaultSamples, LatencySamples, Measured, ParallelSamples,
    RandomSamples, SpreadSamples, StreamSamples, StrideSamples, WalkerSamples, WindowSamples,
    WorkingSetSamples,
};
use crate::sampling::{
    PAUSE_TICKS, control_bytes, quartile, sample_dense, sample_latency, sample_lone,
    sample_parallel, sample_random, sample_spread, sample_stream, sample_stride, sample_walkers,
    sample_windows,
};
use crate::streams::Direction;
use crate::windows::Windows;

/// Requests for memory may take at most the planned time divided by this.
const MEMORY_TIME_SHARE: u32 = 2;
/// The time between calls of `on_progress` while memory is left free.
const WAITING_STEP: Duration = Duration::from_millis(50);
/// First touches that take more than this multiple of the median are slow.
const SLOW_FAULT: f64 = 2.0;
/// A lone chase is measured in one of so many rounds.
const LONE_EVERY: usize = 4;
/// Lines at each distance: more than a first-level TLB has entries, and few enough for the first
/// cache.
const STRIDE_LINES: usize = 192;
/// The core's clock is measured once in this number of measurements.
const CLOCK_EVERY: u64 = 16;

/// Times agree if the median exceeds the lower quartile by at most this fraction.
const SETTLED: f64 = 0.02;

/// One measurement of a round, by its index in the results.
#[derive(Clone, Copy)]
enum Task {
    Latency(usize),
    Spread(usize),
    Stride(usize),
    Dense(usize),
    Parallel(usize),
    Random(usize),
    Lone(usize),
    Walkers(usize),
    Windows,
    Stream(usize),
    Fault(usize),
}

/// Measures this processor as `plan` says.
///
/// `on_progress` gets the number of finished measurements and of all measurements, and returns
/// whether to go on; if not, the measurements until then are returned. The calling thread stays
/// pinned to the processor that it runs on.
pub fn measure(
    plan: &Plan,
    mut on_progress: impl FnMut(u64, u64) -> bool,
) -> Result<Measured, CalibrateError> {
    stay_on_this_processor();
    if plan.free_seconds == 0 {
        return measure_in_memory(plan, &mut on_progress);
    }
    let started = Instant::now();
    let first = faults_of_free_memory(plan);
    let mut measured = measure_in_memory(plan, &mut on_progress)?;
    // Slow first touches may be of memory that was never used; a host that takes memory back makes
    // later ones slow, too.
    let were_slow = first.iter().zip(&measured.faults).any(|(first, usual)| {
        let slowest = first.ticks.iter().copied().fold(0.0, f64::max);
        quartile(&usual.ticks, 2).is_some_and(|usual| slowest > SLOW_FAULT * usual)
    });
    let free = Duration::from_secs(plan.free_seconds);
    if were_slow && has_waited(free, started, &mut on_progress) {
        measured.later_faults = faults_of_free_memory(plan);
    }
    Ok(measured)
}

/// First touches of memory as a program that starts now finds it.
fn faults_of_free_memory(plan: &Plan) -> Vec<FaultSamples> {
    let sample = |(page_bytes, pages)| {
        let most = (plan.small_bytes + plan.huge_bytes) / (page_bytes * pages);
        let ticks = ticks_of_samples(page_bytes, pages, FREE_MEMORY_SAMPLES.min(most));
        FaultSamples { page_bytes, pages, ticks }
    };
    FREE_MEMORY_FAULTS.map(sample).into()
}

/// Waits for `duration`, as long as `on_progress` returns true; returns whether it always did. It
/// gets the milliseconds since `started`, and their number at the end.
fn has_waited(
    duration: Duration,
    started: Instant,
    on_progress: &mut impl FnMut(u64, u64) -> bool,
) -> bool {
    let end = started.elapsed() + duration;
    while started.elapsed() < end {
        if !on_progress(started.elapsed().as_millis() as u64, end.as_millis() as u64) {
            return false;
        }
        sleep(WAITING_STEP);
    }
    true
}

/// Makes all measurements for which the memory is in use throughout.
fn measure_in_memory(
    plan: &Plan,
    on_progress: &mut impl FnMut(u64, u64) -> bool,
) -> Result<Measured, CalibrateError> {
    let started = Instant::now();
    let is_over = |share: u32| started.elapsed() >= Duration::from_secs(plan.seconds) / share;
    let stopwatch = Stopwatch::start();
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let (small, small_obtained) = Memory::small(plan.small_bytes, &mut random)?;
    // A host that gives memory slowly must not take the time of the measurement.
    let mut go_on = || on_progress(0, 1) && !is_over(MEMORY_TIME_SHARE);
    let (huge, huge_obtained) = Memory::huge(plan.huge_bytes, &mut go_on)?;
    let (gigantic, gigantic_obtained) = Memory::gigantic(plan.huge_bytes);

    let windows = Windows::new();
    let latency_memory = huge.as_ref().unwrap_or(&small);
    let mut measured = Measured {
        rounds: 0,
        ticks_per_second: 0.0,
        core_cycles_per_tick: vec![core_cycles_per_tick()],
        memory: vec![small_obtained, huge_obtained, gigantic_obtained],
        huge_bytes_lost: 0,
        latency_page_bytes: if huge.is_some() { HUGE_PAGE } else { SMALL_PAGE },
        latency: working_sets(latency_memory.bytes())
            .into_iter()
            .map(|bytes| LatencySamples { bytes, ticks: Vec::new() })
            .collect(),
        spread: Vec::new(),
        strides: Vec::new(),
        pause_ticks: PAUSE_TICKS,
        dense: Vec::new(),
        parallel: Vec::new(),
        random: Vec::new(),
        lone: Vec::new(),
        walkers: Vec::new(),
        windows: Vec::new(),
        streams: [Direction::Read, Direction::Write]
            .map(|direction| {
                let bytes = STREAMED.min(latency_memory.bytes());
                StreamSamples { direction, bytes, ticks: Vec::new() }
            })
            .into(),
        faults: FAULTS
            .map(|(page_bytes, pages)| FaultSamples { page_bytes, pages, ticks: Vec::new() })
            .into(),
        later_faults: Vec::new(),
    };
    // Without 2 MiB pages there is no control.
    let Some(control) = huge.as_ref() else {
        let mut rounds = Rounds {
            plan,
            random: &mut random,
            windows: windows.as_ref(),
            is_over: &|| is_over(1),
        };
        rounds.run(&mut measured, on_progress, |_| None, latency_memory);
        measured.ticks_per_second = stopwatch.ticks_per_second();
        return Ok(measured);
    };
    let by_size = [
        (SMALL_PAGE, Some(&small)),
        (HUGE_PAGE, huge.as_ref()),
        (GIGANTIC_PAGE, gigantic.as_ref()),
    ];
    let whole_pages = by_size.map(|(page_bytes, memory)| {
        let most = memory.map_or(0, Memory::bytes) / page_bytes;
        (page_bytes, page_bytes, page_counts(most))
    });
    // On a host with base pages, these pieces need a TLB entry each.
    let pieces = (HUGE_PAGE, SMALL_PAGE, piece_counts(control.bytes() / SMALL_PAGE));
    for (page_bytes, stride_bytes, mut counts) in whole_pages.into_iter().chain([pieces]) {
        counts.retain(|pages| control_bytes(*pages) <= control.bytes());
        measured.spread.extend(counts.into_iter().map(|pages| SpreadSamples {
            page_bytes,
            stride_bytes,
            pages,
            control_bytes: control_bytes(pages),
            dependent: Vec::new(),
            overlapped: Vec::new(),
            control_dependent: Vec::new(),
            control_overlapped: Vec::new(),
        }));
    }
    measured.strides = strides(control.bytes() / STRIDE_LINES)
        .into_iter()
        .map(|stride_bytes| StrideSamples { stride_bytes, lines: STRIDE_LINES, ticks: Vec::new() })
        .collect();
    measured.dense = dense_sets(small.bytes().min(control.bytes()))
        .into_iter()
        .map(|bytes| DenseSamples {
            bytes,
            small: WorkingSetSamples::default(),
            huge: WorkingSetSamples::default(),
        })
        .collect();
    measured.parallel = parallel_sets(control.bytes())
        .into_iter()
        .map(|bytes| {
            let by_chases = CHASES.map(|chases| ChaseSamples { chases, ticks: Vec::new() }).into();
            ParallelSamples { bytes, by_chases }
        })
        .collect();
    measured.random = random_sets(control.bytes())
        .into_iter()
        .map(|bytes| RandomSamples { bytes, ticks: Vec::new() })
        .collect();
    measured.lone = lone_sets(control.bytes())
        .into_iter()
        .map(|bytes| RandomSamples { bytes, ticks: Vec::new() })
        .collect();
    measured.walkers = walker_pages(small.bytes() / SMALL_PAGE)
        .into_iter()
        .map(|pages| {
            let by_chases = CHASES.map(|chases| ChaseSamples { chases, ticks: Vec::new() }).into();
            WalkerSamples { pages, by_chases }
        })
        .collect();
    measured.windows = windows
        .iter()
        .flat_map(Windows::loops)
        .map(|(filler, instructions)| WindowSamples { filler, instructions, ticks: Vec::new() })
        .collect();
    let memories = |page_bytes: usize| {
        let found = by_size.iter().find(|(bytes, _)| *bytes == page_bytes);
        found.and_then(|(_, memory)| memory.zip(huge.as_ref()))
    };
    let mut rounds =
        Rounds { plan, random: &mut random, windows: windows.as_ref(), is_over: &|| is_over(1) };
    rounds.run(&mut measured, on_progress, memories, latency_memory);
    measured.ticks_per_second = stopwatch.ticks_per_second();
    measured.huge_bytes_lost = control.bytes().saturating_sub(control.huge_bytes());
    Ok(measured)
}

/// The order and the number of the measurements.
struct Rounds<'a> {
    plan: &'a Plan,
    random: &'a mut Xoshiro256PlusPlus,
    windows: Option<&'a Windows>,
    is_over: &'a dyn Fn() -> bool,
}

impl Rounds<'_> {
    /// Makes rounds until there are enough, the time is over or `on_progress` returns false.
    /// `memories` gives the memory of a page size, and the memory of its control.
    fn run<'m>(
        &mut self,
        measured: &mut Measured,
        on_progress: &mut impl FnMut(u64, u64) -> bool,
        memories: impl Fn(usize) -> Option<(&'m Memory, &'m Memory)>,
        latency_memory: &Memory,
    ) {
        let latencies = (0..measured.latency.len()).map(Task::Latency);
        let spreads = (0..measured.spread.len()).map(Task::Spread);
        let strides = (0..measured.strides.len()).map(Task::Stride);
        let dense = (0..measured.dense.len()).map(Task::Dense);
        let parallel = (0..measured.parallel.len()).map(Task::Parallel);
        let random = (0..measured.random.len()).map(Task::Random);
        let lone = (0..measured.lone.len()).map(Task::Lone);
        let walkers = (0..measured.walkers.len()).map(Task::Walkers);
        let windows = (!measured.windows.is_empty()).then_some(Task::Windows);
        let streams = (0..measured.streams.len()).map(Task::Stream);
        let faults = (0..measured.faults.len()).map(Task::Fault);
        let chases = latencies.chain(spreads).chain(strides).chain(dense).chain(parallel);
        let overlapped = random.chain(lone).chain(walkers).chain(windows);
        let mut tasks: Vec<Task> = chases.chain(overlapped).chain(streams).chain(faults).collect();
        // Tasks whose times agree are left out, and the total falls.
        let mut total = (tasks.len() * self.plan.rounds) as u64;
        let mut done = 0;
        for round in 0..self.plan.rounds {
            if round >= self.plan.least_rounds && (self.is_over)() {
                return;
            }
            if round >= self.plan.settled_rounds {
                tasks.retain(|task| !task.is_settled(measured));
                total = done + (tasks.len() * (self.plan.rounds - round)) as u64;
            }
            shuffle(&mut tasks, self.random);
            for task in &tasks {
                if !on_progress(done, total) {
                    return;
                }
                if done.is_multiple_of(CLOCK_EVERY) {
                    measured.core_cycles_per_tick.push(core_cycles_per_tick());
                }
                match *task {
                    Task::Latency(index) => {
                        let samples = &mut measured.latency[index];
                        sample_latency(samples, round, latency_memory, self.random);
                    }
                    Task::Spread(index) => {
                        let samples = &mut measured.spread[index];
                        let (memory, control) = memories(samples.page_bytes)
                            .expect("only sizes with memory are measured");
                        sample_spread(samples, memory, control, self.random);
                    }
                    Task::Stride(index) => {
                        sample_stride(&mut measured.strides[index], latency_memory, self.random);
                    }
                    Task::Dense(index) => {
                        let (memory, huge) =
                            memories(SMALL_PAGE).expect("only sets with memory are measured");
                        sample_dense(&mut measured.dense[index], round, memory, huge, self.random);
                    }
                    Task::Parallel(index) => {
                        let samples = &mut measured.parallel[index];
                        sample_parallel(samples, round, latency_memory, self.random);
                    }
                    Task::Random(index) => {
                        let samples = &mut measured.random[index];
                        sample_random(samples, latency_memory, self.random);
                    }
                    Task::Lone(index) => {
                        if round.is_multiple_of(LONE_EVERY) {
                            let samples = &mut measured.lone[index];
                            sample_lone(samples, latency_memory, self.random);
                        }
                    }
                    Task::Walkers(index) => {
                        let (memory, _) =
                            memories(SMALL_PAGE).expect("only pages with memory are measured");
                        sample_walkers(&mut measured.walkers[index], memory, self.random);
                    }
                    Task::Windows => {
                        let windows = self.windows.expect("only with code there are samples");
                        let samples = &mut measured.windows;
                        sample_windows(samples, round, windows, latency_memory, self.random);
                    }
                    Task::Stream(index) => {
                        sample_stream(&mut measured.streams[index], latency_memory)
                    }
                    Task::Fault(index) => {
                        let ticks = ticks_per_fault(FAULTS[index].0, FAULTS[index].1);
                        measured.faults[index].ticks.extend(ticks);
                    }
                }
                done += 1;
            }
            measured.rounds = round + 1;
        }
    }
}

impl Task {
    /// Whether its times agree so well that more of them add nothing.
    fn is_settled(self, measured: &Measured) -> bool {
        match self {
            Task::Latency(index) => agree(&measured.latency[index].ticks),
            Task::Spread(index) => {
                let samples = &measured.spread[index];
                agree(&samples.dependent) && agree(&samples.control_dependent)
            }
            Task::Stride(index) => agree(&measured.strides[index].ticks),
            Task::Dense(index) => {
                let DenseSamples { small, huge, .. } = &measured.dense[index];
                agree(&small.dependent) && agree(&huge.dependent)
            }
            Task::Parallel(index) => {
                measured.parallel[index].by_chases.iter().all(|samples| agree(&samples.ticks))
            }
            Task::Random(index) => agree(&measured.random[index].ticks),
            Task::Lone(index) => agree(&measured.lone[index].ticks),
            Task::Walkers(index) => {
                measured.walkers[index].by_chases.iter().all(|samples| agree(&samples.ticks))
            }
            // A step is found among many numbers, each of which may scatter.
            Task::Windows => true,
            Task::Stream(index) => agree(&measured.streams[index].ticks),
            Task::Fault(index) => agree(&measured.faults[index].ticks),
        }
    }
}

/// Whether the median is hardly above the lower quartile.
fn agree(ticks: &[f64]) -> bool {
    let both = quartile(ticks, 2).zip(quartile(ticks, 1));
    both.is_none_or(|(median, lower)| median <= (1.0 + SETTLED) * lower)
}

/// Pins this thread: a move to another core would leave second-level caches and TLBs behind, and
/// cores may differ.
fn stay_on_this_processor() {
    // SAFETY: plain system calls; `CPU_SET` writes to a set of ours, whose size bounds the number.
    unsafe {
        let processor = libc::sched_getcpu();
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if processor >= 0 && (processor as usize) < 8 * size_of::<libc::cpu_set_t>() {
            libc::CPU_SET(processor as usize, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: Plan = Plan {
        small_bytes: 8 << 20,
        huge_bytes: 16 << 20,
        settled_rounds: 2,
        rounds: 2,
        seconds: 0,
        least_rounds: 2,
        free_seconds: 0,
        seed: 1,
    };

    #[test]
    fn every_size_is_measured_in_every_round() {
        let measured = measure(&TINY, |_, _| true).unwrap();
        assert_eq!(measured.rounds, 2);
        assert!(measured.ticks_per_second > 0.0);
        assert!(measured.core_cycles_per_tick.iter().all(|ratio| *ratio > 0.0));
        assert!(measured.latency.iter().all(|size| size.ticks.len() == 2));
        for size in &measured.spread {
            for samples in [
                &size.dependent,
                &size.overlapped,
                &size.control_dependent,
                &size.control_overlapped,
            ] {
                assert_eq!(samples.len(), 2);
                assert!(samples.iter().all(|ticks| *ticks > 0.0));
            }
        }
        assert!(measured.strides.iter().all(|stride| stride.ticks.len() == 2));
        let sizes = |page: usize| {
            let is_whole = move |one: &&SpreadSamples| one.stride_bytes == page;
            measured.spread.iter().filter(move |one| one.page_bytes == page).filter(is_whole)
        };
        let is_huge_given = measured.memory[1].obtained_bytes > 0;
        assert_eq!(
            sizes(SMALL_PAGE).next_back().map(|one| one.pages),
            is_huge_given.then_some(2048)
        );
        assert!(measured.random.iter().all(|set| set.ticks.len() == 2));
        assert_eq!(measured.random.last().is_some_and(|set| set.bytes == 16 << 20), is_huge_given);
        assert!(measured.lone.iter().all(|set| set.ticks.len() == 1));
        assert_eq!(measured.lone.last().is_some_and(|set| set.bytes == 16 << 20), is_huge_given);
        assert!(measured.windows.iter().all(|window| window.ticks.len() == 2));
        for samples in measured.walkers.iter().flat_map(|walkers| &walkers.by_chases) {
            assert_eq!(samples.ticks.len(), 2);
        }
        assert_eq!(!measured.dense.is_empty(), measured.memory[1].obtained_bytes >= 8 << 20);
        for times in measured.dense.iter().flat_map(|set| [&set.small, &set.huge]) {
            assert_eq!((times.dependent.len(), times.overlapped.len()), (2, 2));
        }
    }

    #[test]
    fn task_is_settled_once_its_times_agree() {
        let mut measured = measure(&TINY, |done, _| done == 0).unwrap();
        measured.latency[0].ticks = vec![4.0, 4.0, 4.05, 9.0];
        assert!(Task::Latency(0).is_settled(&measured));
        measured.latency[0].ticks = vec![4.0, 4.0, 4.1, 4.1];
        assert!(!Task::Latency(0).is_settled(&measured));
        assert!(agree(&[]));
    }

    #[test]
    fn stopping_keeps_what_was_measured() {
        let measured = measure(&TINY, |done, total| 2 * done < total + 10).unwrap();
        assert_eq!(measured.rounds, 1);
        let none = measure(&TINY, |_, _| false).unwrap();
        assert_eq!((none.rounds, none.memory[1].obtained_bytes), (0, 0));
    }

    #[test]
    fn samples_of_free_memory_are_many_and_small() {
        let samples = faults_of_free_memory(&Plan::full(256 << 20));
        assert_eq!((samples[0].page_bytes, samples[0].pages), (SMALL_PAGE, 512));
        assert_eq!(samples[0].ticks.len(), FREE_MEMORY_SAMPLES);
        assert_eq!((samples[1].page_bytes, samples[1].pages), (HUGE_PAGE, 1));
        assert!(samples.iter().flat_map(|one| &one.ticks).all(|ticks| *ticks > 0.0));
    }

    #[test]
    fn samples_of_free_memory_take_no_more_than_the_plan_has() {
        assert_eq!(faults_of_free_memory(&TINY)[0].ticks.len(), 12);
    }

    #[test]
    fn waiting_ends_when_it_is_stopped() {
        let started = Instant::now();
        assert!(has_waited(Duration::ZERO, started, &mut |_, _| false));
        let mut asked = 0;
        assert!(!has_waited(Duration::from_secs(3600), started, &mut |done, total| {
            assert!(done < total && total >= 3_600_000);
            asked += 1;
            asked < 3
        }));
        assert_eq!(asked, 3);
    }
}
