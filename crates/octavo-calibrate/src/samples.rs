//! The samples of a measurement, by what was measured. Times are ticks of the time-stamp counter.

use serde::Serialize;

use crate::memory::Obtained;
use crate::streams::Direction;
use crate::windows::Filler;

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
