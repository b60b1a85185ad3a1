//! The measurement: rounds over all sizes, in random order.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use serde::Serialize;

use crate::CalibrateError;
use crate::chase::{CHASES, CHUNK, Cycle, FILLING, RandomReads, shuffle};
use crate::clock::{Stopwatch, core_cycles_per_tick, time};
use crate::faults::{ticks_of_samples, ticks_per_fault};
use crate::memory::{Memory, Obtained};
use crate::plan::{
    FAULTS, FREE_MEMORY_FAULTS, FREE_MEMORY_SAMPLES, GIGANTIC_PAGE, HUGE_PAGE, LINE_BYTES, Plan,
    SMALL_PAGE, STREAMED, dense_sets, lone_sets, page_counts, parallel_sets, piece_counts,
    random_sets, strides, walker_pages, working_sets,
};
use crate::streams::{Direction, stream};
use crate::windows::{Filler, Windows};

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
/// Requests for memory may take at most the planned time divided by this.
const MEMORY_TIME_SHARE: u32 = 2;
/// The time between calls of `on_progress` while memory is left free.
const WAITING_STEP: Duration = Duration::from_millis(50);
/// Ticks between loads of a paced chase, which walks as rarely as many programs do.
const PAUSE_TICKS: u64 = 1000;
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
/// First touches that take more than this multiple of the median are slow.
const SLOW_FAULT: f64 = 2.0;
/// The core's clock is measured once in this number of measurements.
const CLOCK_EVERY: u64 = 16;

/// Times agree if the median exceeds the lower quartile by at most this fraction.
const SETTLED: f64 = 0.02;
/// Pairs of loads that are timed together in a window.
const PAIRS: usize = 64;
/// Random reads that fill the caches first: for each line, and at most.
const FILLING_READS: usize = 3;
const MOST_FILLING_READS: usize = 1 << 20;
/// Random reads that are timed together: so few that other cores can displace little meanwhile.
/// Before the next ones, the caches are refilled.
const RANDOM_READS: usize = 4096;
const REFILLING_READS: usize = 1 << 16;
/// Reads of a lone chase that are timed together, after as many as fill the caches; and the number
/// of rounds of which one has them.
const LONE_READS: usize = 1 << 14;
const LONE_EVERY: usize = 4;

/// The lines of a control are one in `SPARSENESS`, if it has at most `MOST_SPARSE_LINES`.
const SPARSENESS: usize = 4;
const MOST_SPARSE_LINES: usize = 8192;
/// Lines at each distance: more than a first-level TLB has entries, and few enough for the first
/// cache.
const STRIDE_LINES: usize = 192;

/// All samples; times are ticks of the time-stamp counter per load.
#[derive(Debug, Serialize)]
pub struct Measured {
    /// Complete rounds.
    pub rounds: usize,
    /// Ticks of the time-stamp counter per second.
    pub ticks_per_second: f64,
    /// Cycles of the core during one tick, measured throughout.
    pub core_cycles_per_tick: Vec<f64>,
    /// Memory obtained from the kernel, by page size.
    pub memory: Vec<Obtained>,
    /// Bytes that were in 2 MiB pages at the beginning, and are not at the end.
    pub huge_bytes_lost: usize,
    /// Bytes of the pages of `latency`.
    pub latency_page_bytes: usize,
    /// Dependent loads over working sets.
    pub latency: Vec<LatencySamples>,
    /// Loads of one line in each page, beside as many lines that lie close together.
    pub spread: Vec<SpreadSamples>,
    /// Loads at several distances within 2 MiB pages.
    pub strides: Vec<StrideSamples>,
    /// Ticks of the pause behind each paced load.
    pub pause_ticks: u64,
    /// Loads over all lines of working sets, in 4 KiB and in 2 MiB pages.
    pub dense: Vec<DenseSamples>,
    /// Several chases at once, over two working sets in 2 MiB pages.
    pub parallel: Vec<ParallelSamples>,
    /// Random reads of working sets.
    pub random: Vec<RandomSamples>,
    /// Random reads of working sets without faster reads before them.
    pub lone: Vec<RandomSamples>,
    /// Several chases at once, over pages that exceed the TLB.
    pub walkers: Vec<WalkerSamples>,
    /// Pairs of loads that miss with instructions between them; empty where the system allows no new code.
    pub windows: Vec<WindowSamples>,
    /// Memory read and written from beginning to end.
    pub streams: Vec<StreamSamples>,
    /// First touches of fresh memory, which is then given back.
    pub faults: Vec<FaultSamples>,
    /// First touches after memory has been free for some time, so that the host of a virtual
    /// machine may have taken it back. Empty where the first touches at the beginning gave no
    /// reason to measure them again.
    pub later_faults: Vec<FaultSamples>,
}

/// Times of loads where several chases run at once over all lines of a working set.
#[derive(Debug, Serialize)]
pub struct ParallelSamples {
    /// Bytes of the working set.
    pub bytes: usize,
    /// By number of chases.
    pub by_chases: Vec<ChaseSamples>,
}

/// Times of loads where a number of chases run at once.
#[derive(Debug, Serialize)]
pub struct ChaseSamples {
    /// The number of chases.
    pub chases: usize,
    /// Ticks per load.
    pub ticks: Vec<f64>,
}

/// Times of random reads of the lines of a working set, each waiting for the one before. Except in
/// [`Measured::lone`], faster reads have filled the caches with the working set.
#[derive(Debug, Serialize)]
pub struct RandomSamples {
    /// Bytes of the working set.
    pub bytes: usize,
    /// Ticks per read, the computation of its place included.
    pub ticks: Vec<f64>,
}

/// Times of loads of one line in each of some 4 KiB pages where several chases run at once.
#[derive(Debug, Serialize)]
pub struct WalkerSamples {
    /// Pages.
    pub pages: usize,
    /// By number of chases.
    pub by_chases: Vec<ChaseSamples>,
}

/// Times of two loads that miss, with some instructions between them.
#[derive(Debug, Serialize)]
pub struct WindowSamples {
    /// The kind of the instructions.
    pub filler: Filler,
    /// Their number.
    pub instructions: usize,
    /// Ticks of a pair.
    pub ticks: Vec<f64>,
}

/// Times of reading or writing memory from beginning to end.
#[derive(Debug, Serialize)]
pub struct StreamSamples {
    /// Whether it was read or written.
    pub direction: Direction,
    /// Bytes.
    pub bytes: usize,
    /// Ticks for a line of 64 bytes.
    pub ticks: Vec<f64>,
}

/// Times of first touches of fresh memory and of giving it back.
#[derive(Debug, Serialize)]
pub struct FaultSamples {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Pages that were touched for a sample.
    pub pages: usize,
    /// Ticks for a fault.
    pub ticks: Vec<f64>,
}

/// Times of dependent loads over all lines of a working set.
#[derive(Debug, Serialize)]
pub struct LatencySamples {
    /// Bytes of the working set.
    pub bytes: usize,
    /// Ticks per load, a sample for each round that had this size.
    pub ticks: Vec<f64>,
}

/// Times of loads of one line in each of some pages or pieces of pages, and of the control: as many
/// lines that lie close together in 2 MiB pages. Samples at one index were taken one after the other.
#[derive(Debug, Serialize)]
pub struct SpreadSamples {
    /// Bytes of a page.
    pub page_bytes: usize,
    /// Bytes of a piece that has one line: those of a page, or less.
    pub stride_bytes: usize,
    /// Pieces, and lines.
    pub pages: usize,
    /// Bytes within which the lines of the control lie.
    pub control_bytes: usize,
    /// Ticks per load where each load waits for the one before.
    pub dependent: Vec<f64>,
    /// Ticks per load where many chases run at once.
    pub overlapped: Vec<f64>,
    /// `dependent`, of the control.
    pub control_dependent: Vec<f64>,
    /// `overlapped`, of the control.
    pub control_overlapped: Vec<f64>,
}

/// Times of dependent loads of one line in each of some equal pieces of 2 MiB pages.
#[derive(Debug, Serialize)]
pub struct StrideSamples {
    /// Bytes of a piece.
    pub stride_bytes: usize,
    /// Pieces, and lines.
    pub lines: usize,
    /// Ticks per load.
    pub ticks: Vec<f64>,
}

/// Times of loads over all lines of a working set. Data and page tables compete for the caches, as
/// they do in programs. Samples at one index were taken one after the other.
#[derive(Debug, Serialize)]
pub struct DenseSamples {
    /// Bytes of the working set.
    pub bytes: usize,
    /// In 4 KiB pages.
    pub small: WorkingSetSamples,
    /// In 2 MiB pages.
    pub huge: WorkingSetSamples,
}

/// Times of loads over all lines of a working set in pages of one size.
#[derive(Debug, Default, Serialize)]
pub struct WorkingSetSamples {
    /// Ticks per load where each load waits for the one before.
    pub dependent: Vec<f64>,
    /// Ticks per load where many chases run at once.
    pub overlapped: Vec<f64>,
    /// Ticks per load where each waits for the one before and a pause of `PAUSE_TICKS` behind it:
    /// the more time there is between walks, the more of the page table other cores displace from
    /// the caches. Empty for small working sets.
    pub paced: Vec<f64>,
    /// Ticks per load where each waits for the one before, and `DISPLACING_READS` lines of other
    /// memory are read between them, which displace the page table from the caches. Empty for small
    /// working sets.
    pub displaced: Vec<f64>,
}

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

/// The quartile of this number; `None` without samples.
fn quartile(ticks: &[f64], number: usize) -> Option<f64> {
    let mut ordered = ticks.to_vec();
    ordered.sort_by(f64::total_cmp);
    ordered.get(ordered.len() * number / 4).copied()
}

fn sample_random(samples: &mut RandomSamples, memory: &Memory, random: &mut Xoshiro256PlusPlus) {
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
fn sample_lone(samples: &mut RandomSamples, memory: &Memory, random: &mut Xoshiro256PlusPlus) {
    let lines = samples.bytes / LINE_BYTES;
    let link = |line: usize| memory.link(line);
    let mut reads = RandomReads::new(random);
    reads.read::<1>(lines, link, (FILLING_READS * lines).min(MOST_FILLING_READS));
    let ticks = time(|| reads.read::<1>(lines, link, LONE_READS));
    samples.ticks.push(ticks as f64 / LONE_READS as f64);
}

fn sample_walkers(samples: &mut WalkerSamples, memory: &Memory, random: &mut Xoshiro256PlusPlus) {
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
fn sample_windows(
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

fn sample_stride(samples: &mut StrideSamples, memory: &Memory, random: &mut Xoshiro256PlusPlus) {
    let lines = memory.one_in_each(samples.lines, samples.stride_bytes, random);
    let cycle = Cycle::new(lines, random);
    warm(&cycle);
    samples.ticks.push(shortest(loads(samples.lines), |loads| cycle.follow(loads)));
}

fn sample_latency(
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

fn sample_dense(
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
        // Before loads of a kind are timed, there are twice as many as the page table has lines, so that it lies in the
        // caches where such a program finds it: after faster loads, the first slow ones find it nearer. For the same
        // reason every pass counts, not the shortest.
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

fn sample_parallel(
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

fn sample_stream(samples: &mut StreamSamples, memory: &Memory) {
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

fn sample_spread(
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
fn control_bytes(pages: usize) -> usize {
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

    #[test]
    fn loads_are_whole_turns_of_short_cycles() {
        assert_eq!(loads(8), 4096);
        assert_eq!(loads(3000), 6000);
        assert_eq!(loads(5000), 5000);
        assert_eq!(loads(1 << 20), MOST_LOADS);
    }
}
