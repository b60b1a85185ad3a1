//! Prefetchers of the data caches of a core.
//!
//! - A level may have a [stride](StrideConfig) prefetcher, a [streamer](StreamerConfig) and a [region](RegionConfig)
//!   prefetcher. They see physical lines, and no page sizes: a prefetch stays within the aligned block of `page_bytes`
//!   of the line that causes it, unless it may cross pages, and never leaves memory.
//! - The first level is trained by data accesses that miss it, and by the first access that hits a line that was
//!   prefetched into it. The second level is trained by the data accesses that reach it: misses of the first level and
//!   its prefetches. Instruction fetches, page walks and accesses to the tables of designs train no prefetcher, and are
//!   not counted as the first use of a prefetched line.
//! - Prefetches are issued directly after the access that causes them, into the second level before the first, and at
//!   each level in the order stride, streamer, region. A prefetch into the first level reads the second, and trains
//!   its prefetchers in turn. Look-ups of prefetches are not counted as accesses of the caches.
//! - A line that the level has already is not prefetched, and no line is prefetched into the first-level set of the
//!   accessed line, so that the accessed line stays in the first level until another access.

mod region;
mod streamer;
mod stride;

use rustc_hash::FxHashSet;

use super::ServedBy;
use region::Region;
use streamer::Streamer;
use stride::Stride;

/// Bounds of the prefetches that an access to a line causes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PrefetchBounds {
    /// Bytes of the aligned block that prefetches stay in: a power of two, at least a line.
    pub page_bytes: u64,
    /// Whether prefetches may leave the block.
    pub cross_pages: bool,
}

/// A prefetcher that follows the stride of each instruction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StrideConfig {
    /// Entries of the table of instructions; an instruction uses entry (address modulo `entries`).
    pub entries: u32,
    /// Equal strides in succession that an instruction needs before it causes prefetches.
    pub confirmations: u32,
    /// Strides from the accessed line to the first prefetched line.
    pub distance: u32,
    /// Lines prefetched by one access, a stride apart.
    pub degree: u32,
    /// Where prefetches may lie.
    pub bounds: PrefetchBounds,
}

/// A prefetcher that follows ascending and descending lines of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamerConfig {
    /// Pages tracked; the least recently used one is replaced.
    pub streams: u32,
    /// Steps in one direction in succession that a page needs before it is prefetched. With 0 the first access to a
    /// page prefetches upwards.
    pub confirmations: u32,
    /// Maximum distance of a prefetched line from the accessed one, in lines.
    pub distance: u32,
    /// Maximum number of lines prefetched by one access.
    pub degree: u32,
    /// Where prefetches may lie.
    pub bounds: PrefetchBounds,
}

/// A prefetcher of the lines around an access that have followed the accesses of its instruction before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionConfig {
    /// Entries of the table of instructions; an instruction uses entry (address modulo `entries`).
    pub entries: u32,
    /// Visits in succession that must access the line at a distance before that distance is prefetched: at least 1.
    pub confirmations: u32,
    /// Number of visits under way at once.
    pub visits: u32,
    /// Lines that a visit covers before its first accessed line: at most 31.
    pub before: u32,
    /// Lines that a visit covers behind its first accessed line: at most 31.
    pub after: u32,
    /// Maximum number of lines prefetched by one access.
    pub degree: u32,
    /// Where visits and prefetches may lie.
    pub bounds: PrefetchBounds,
}

/// The prefetchers of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LevelPrefetchers {
    /// By instruction.
    pub stride: Option<StrideConfig>,
    /// By page.
    pub streamer: Option<StreamerConfig>,
    /// By the lines around the accesses of an instruction.
    pub region: Option<RegionConfig>,
}

/// The prefetchers of a core.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrefetchersConfig {
    /// The prefetchers of the first level for data, and of the second level.
    pub levels: [LevelPrefetchers; 2],
    /// Size of memory in lines. No line beyond it is prefetched.
    pub memory_lines: u64,
}

impl PrefetchersConfig {
    /// Whether neither level has a prefetcher.
    pub fn is_empty(&self) -> bool {
        self.levels.iter().all(|level| *level == LevelPrefetchers::default())
    }
}

/// Counters of the prefetchers of a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrefetchCounters {
    /// Lines prefetched, by the level that served them: second level, last level, memory.
    pub served_by: [u64; 3],
    /// Prefetched lines that were used.
    pub useful: u64,
    /// Prefetched lines that were evicted without a use.
    pub unused: u64,
    /// Lines not prefetched, because the level had them or had to keep the accessed line.
    pub dropped: u64,
}

impl PrefetchCounters {
    /// Lines prefetched.
    pub fn issued(&self) -> u64 {
        self.served_by.iter().sum()
    }
}

/// A level with prefetchers: 0 is the first level for data, 1 the second level.
pub type PrefetchLevel = usize;

/// An issued prefetch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prefetch {
    /// The physical line.
    pub line: u64,
    /// The level it was prefetched into.
    pub level: PrefetchLevel,
    /// The level that served it.
    pub by: ServedBy,
    /// Its latency, measured from the core like that of an access.
    pub latency_cycles: u32,
    /// Whether it was the first use of a line prefetched into the second level.
    pub uses_l2: bool,
    /// Number of [memory transfers](super::MemoryTransfer) in the log before it.
    pub transfers_before: usize,
}

/// The state of the prefetchers of a level.
#[derive(Clone, Debug)]
pub(super) struct LevelState {
    stride: Option<Stride>,
    streamer: Option<Streamer>,
    region: Option<Region>,
    pub counters: PrefetchCounters,
}

impl LevelState {
    fn new(config: &LevelPrefetchers) -> Self {
        LevelState {
            stride: config.stride.map(Stride::new),
            streamer: config.streamer.map(Streamer::new),
            region: config.region.map(Region::new),
            counters: PrefetchCounters::default(),
        }
    }

    /// Trains with an access of the instruction at `site`. Appends the lines to prefetch to `out`.
    fn train(&mut self, blocks: Blocks, site: u64, line: u64, out: &mut Vec<u64>) {
        if let Some(stride) = &mut self.stride {
            stride.train(blocks, site, line, out);
        }
        if let Some(streamer) = &mut self.streamer {
            streamer.train(blocks, line, out);
        }
        if let Some(region) = &mut self.region {
            region.train(blocks, site, line, out);
        }
    }
}

/// The geometry of lines in memory.
#[derive(Clone, Copy, Debug)]
struct Blocks {
    line_bytes: u64,
    memory_lines: u64,
}

impl Blocks {
    /// Lines of the block that prefetches stay in.
    fn lines(self, bounds: PrefetchBounds) -> u64 {
        (bounds.page_bytes / self.line_bytes).max(1)
    }

    /// The line `by` lines from `line`, if an access to `line` may prefetch it.
    fn reach(self, bounds: PrefetchBounds, line: u64, by: i64) -> Option<u64> {
        let to = line.checked_add_signed(by).filter(|to| *to < self.memory_lines)?;
        let block = self.lines(bounds);
        (bounds.cross_pages || to / block == line / block).then_some(to)
    }
}

/// The state of the prefetchers of a core.
#[derive(Clone, Debug)]
pub(super) struct Prefetchers {
    pub levels: [LevelState; 2],
    blocks: Blocks,
    /// Reused buffers of the lines to prefetch, by level.
    candidates: [Vec<u64>; 2],
    /// Whether prefetches are logged.
    pub logs: bool,
    /// The logged prefetches, in order.
    pub log: Vec<Prefetch>,
    /// The level of the prefetched line that the last access was the first to use.
    pub used: Option<PrefetchLevel>,
}

impl Prefetchers {
    pub fn new(config: &PrefetchersConfig, line_bytes: u64) -> Self {
        Prefetchers {
            levels: [0, 1].map(|level| LevelState::new(&config.levels[level])),
            blocks: Blocks { line_bytes, memory_lines: config.memory_lines },
            candidates: Default::default(),
            logs: false,
            log: Vec::new(),
            used: None,
        }
    }

    /// Trains the prefetchers of a level. Returns the lines to prefetch, in a buffer for [`Self::give_back`].
    pub fn train(&mut self, level: PrefetchLevel, site: u64, line: u64) -> Vec<u64> {
        let mut lines = std::mem::take(&mut self.candidates[level]);
        lines.clear();
        self.levels[level].train(self.blocks, site, line, &mut lines);
        lines
    }

    /// Returns the buffer of [`Self::train`] for reuse.
    pub fn give_back(&mut self, level: PrefetchLevel, lines: Vec<u64>) {
        self.candidates[level] = lines;
    }

    /// Counts an issued prefetch, and logs it if prefetches are logged.
    pub fn record(&mut self, prefetch: Prefetch) {
        let place = match prefetch.by {
            ServedBy::L1 | ServedBy::L2 => 0,
            ServedBy::Llc => 1,
            ServedBy::Memory => 2,
        };
        self.levels[prefetch.level].counters.served_by[place] += 1;
        if self.logs {
            self.log.push(prefetch);
        }
    }
}

/// The prefetched lines of a cache that have not been used yet.
#[derive(Clone, Debug, Default)]
pub(super) struct UnusedLines {
    lines: FxHashSet<u64>,
    /// Lines evicted without a use.
    pub evicted: u64,
}

impl UnusedLines {
    pub fn insert(&mut self, line: u64) {
        self.lines.insert(line);
    }

    /// Uses a line. Returns whether this is the first use of a prefetched line.
    pub fn use_line(&mut self, line: u64) -> bool {
        !self.lines.is_empty() && self.lines.remove(&line)
    }

    pub fn evict(&mut self, line: u64) {
        self.evicted += u64::from(self.use_line(line));
    }
}
