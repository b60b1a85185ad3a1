//! The kernels that depend on time: working sets, and the policy of two page sizes.
//!
//! Time is counted in references of the whole program. With a time of its own for each stream, the
//! last T references of one stream would span a longer time than those of both together: working
//! sets would not be comparable, and the streams of an address space would have different page
//! sizes for the same chunk.

use octavo_trace::{Segments, Stream};
use octavo_types::{Segment, VirtAddr};

use super::CurvesConfig;
use crate::page_sample::{SampledPages, SampledSize};
use crate::touches::{Job, Kernel, Rows, Runs, Splitter, Touches};
use crate::two_sizes::{TwoSizes, TwoSizesResult, TwoSizesTlbs};
use crate::working_sets::{WorkingSet, WorkingSets};

/// All analyses that depend on time, fed by all references of a program.
pub struct ProgramTime {
    splitter: Splitter,
    /// The batch dispatched last.
    batch: Touches,
    streams: Vec<TimedStream>,
    two_sizes: Vec<TwoSizes>,
}

/// The working sets and the page sample of one stream.
struct TimedStream {
    runs: Runs,
    working_sets: Option<WorkingSets>,
    sampled: Option<SampledPages>,
}

/// The results of one stream.
#[derive(Default)]
pub struct StreamTimed {
    /// See [`super::StreamCurves::program_references`].
    pub program_references: u64,
    pub working_sets: Vec<WorkingSet>,
    pub sampled: Option<Vec<SampledSize>>,
    pub two_sizes: Vec<TwoSizesResult>,
    /// By pair and core.
    pub two_sizes_on_cores: Vec<Vec<TwoSizesTlbs>>,
}

impl ProgramTime {
    /// The state before the first reference; `None` if no requested kernel depends on time.
    pub fn new(config: &CurvesConfig) -> Option<Self> {
        let CurvesConfig { streams, two_sizes, instructions, .. } = config;
        let has_sets = config.sample.is_some() || !config.windows_refs.is_empty();
        (has_sets || !two_sizes.is_empty()).then(|| ProgramTime {
            splitter: Splitter::new(Stream::All).with_kinds(),
            batch: Touches::default(),
            streams: match has_sets {
                true => streams.iter().map(|stream| TimedStream::new(*stream, config)).collect(),
                false => Vec::new(),
            },
            two_sizes: two_sizes
                .iter()
                .map(|pair| TwoSizes::new(pair.clone(), streams, *instructions))
                .collect(),
        })
    }

    /// Adds an execution of a segment to the batch, and returns whether the batch must be
    /// [dispatched](ProgramTime::dispatch).
    pub fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr], rows: &mut Rows) -> bool {
        self.splitter.segment(segment, addresses, rows);
        self.splitter.is_full()
    }

    /// Adds executions: see [`Splitter::executions`]. Returns as [`ProgramTime::segment`].
    pub fn executions(&mut self, segments: &Segments, words: &[u64], rows: &mut Rows) -> bool {
        self.splitter.executions(segments, words, rows);
        self.splitter.is_full()
    }

    /// Ends the current touch: the next reference begins a new one, even on the same page.
    pub fn end_touch(&mut self) {
        self.splitter.end_touch();
    }

    /// Takes the batch so far, and adds the jobs that feed it to the kernels.
    pub fn dispatch<'a>(&'a mut self, jobs: &mut Vec<Job<'a>>) {
        self.batch = self.splitter.take(std::mem::take(&mut self.batch));
        let batch = &self.batch;
        for kernel in &mut self.two_sizes {
            jobs.push(Box::new(|rows| kernel.process(batch, rows)));
        }
        for kernel in &mut self.streams {
            jobs.push(Box::new(|rows| kernel.process(batch, rows)));
        }
    }

    /// Empties the TLBs of the running core. All batches must be dispatched.
    pub fn flush(&mut self) {
        let refs = self.splitter.refs();
        self.two_sizes.iter_mut().for_each(|kernel| kernel.flush(refs));
        self.streams.iter_mut().for_each(|kernel| kernel.flush(refs));
        self.end_touch();
    }

    /// Empties the TLBs of another core. All batches must be dispatched.
    pub fn flush_core(&mut self, core: usize) {
        let refs = self.splitter.refs();
        self.two_sizes.iter_mut().for_each(|kernel| kernel.flush_core(core, refs));
        self.end_touch();
    }

    /// Switches to core number `core`. All batches must be dispatched.
    pub fn run_on(&mut self, core: usize) {
        let refs = self.splitter.refs();
        self.two_sizes.iter_mut().for_each(|kernel| kernel.run_on(core, refs));
        self.end_touch();
    }

    /// The results of each stream. All batches must be dispatched.
    pub fn finish(mut self) -> Vec<StreamTimed> {
        let refs = self.splitter.refs();
        let mut timed: Vec<StreamTimed> = Vec::new();
        for TimedStream { working_sets, sampled, .. } in &mut self.streams {
            working_sets.iter_mut().for_each(|kernel| kernel.finish(refs));
            sampled.iter_mut().for_each(|kernel| kernel.finish(refs));
            timed.push(StreamTimed {
                working_sets: working_sets.as_ref().map_or_else(Vec::new, WorkingSets::results),
                sampled: sampled.as_ref().map(SampledPages::results),
                ..StreamTimed::default()
            });
        }
        for pair in &mut self.two_sizes {
            pair.finish(refs);
            let results = pair.results();
            timed.resize_with(results.len(), StreamTimed::default);
            for ((timed, result), on_cores) in timed.iter_mut().zip(results).zip(pair.on_cores()) {
                timed.two_sizes.push(result);
                timed.two_sizes_on_cores.push(on_cores);
            }
        }
        timed.iter_mut().for_each(|stream| stream.program_references = refs);
        timed
    }
}

impl TimedStream {
    fn new(stream: Stream, config: &CurvesConfig) -> Self {
        let CurvesConfig { sizes, windows_refs, .. } = config;
        let sampled = config
            .sample
            .map(|sample| SampledPages::new(sample, sizes, config.max_entries, windows_refs));
        let working_sets =
            sampled.is_none().then(|| WorkingSets::new(sizes.clone(), windows_refs.clone()));
        let longest_gap_refs = match (&sampled, &working_sets) {
            (Some(kernel), _) => kernel.longest_gap_refs(),
            (_, Some(kernel)) => kernel.longest_gap_refs(),
            _ => u64::MAX,
        };
        TimedStream { runs: Runs::new(stream, longest_gap_refs), working_sets, sampled }
    }
}

impl Kernel for TimedStream {
    fn process(&mut self, batch: &Touches, rows: &Rows) {
        let runs = self.runs.of_batch(batch);
        self.working_sets.iter_mut().for_each(|kernel| kernel.process(runs, rows));
        self.sampled.iter_mut().for_each(|kernel| kernel.process(runs, rows));
    }

    fn flush(&mut self, _: u64) {
        // Working sets do not depend on TLBs.
        self.runs.end_touch();
        self.sampled.iter_mut().for_each(SampledPages::flush);
    }
}
