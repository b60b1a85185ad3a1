//! One stream and its TLBs and caches. (Kernels that depend on time are in [`super::program_time`].)

use octavo_trace::{AddressSpace, Segments, Stream};
use octavo_types::{AddressRoom, Segment, VirtAddr};

use super::cores::Core;
use super::images::Memory;
use super::program_time::StreamTimed;
use super::result::{CoreCurves, StreamCurves, add_caches, add_sets, add_stack};
use super::{CurvesConfig, Threads};
use crate::caches::{CacheSets, LineBatch, LineSplitter};
use crate::classes::{Classes, PlaceCounts};
use crate::sets::Sets;
use crate::stack::Stack;
use crate::touches::{Job, Kernel, Rows, Splitter, Touches};

/// The analysis of one stream.
pub struct StreamAnalysis {
    splitter: Splitter,
    /// The splitter into cache lines, if caches are requested.
    lines: Option<LineSplitter>,
    /// The batches dispatched last.
    batch: Touches,
    line_batch: LineBatch,
    /// The TLBs of each core. There is one core if all threads share TLBs.
    tlbs: Vec<Tlbs>,
    /// The number of the running core.
    running: usize,
    /// References before the core began to run.
    since_refs: u64,
}

/// The TLBs and caches of one core.
struct Tlbs {
    stack: Option<Stack>,
    sets: Vec<Sets>,
    /// Its caches, by line size.
    caches: Vec<CacheSets>,
    classes: Option<Classes>,
    /// The references of the stream on this core.
    refs: u64,
}

impl Tlbs {
    fn new(config: &CurvesConfig) -> Self {
        let CurvesConfig { sizes, instructions, .. } = config;
        let sets = config.set_indexes.iter().flat_map(|index| {
            sizes.iter().map(|size| Sets::new(size, *index, config.max_sets_log2, *instructions))
        });
        Tlbs {
            stack: (config.max_entries > 0 && config.sample.is_none())
                .then(|| Stack::new(sizes.clone(), config.max_entries, *instructions)),
            sets: sets.collect(),
            caches: (config.line_sizes.iter())
                .map(|size| CacheSets::new(*size, *instructions))
                .collect(),
            classes: config.classes.map(Classes::new),
            refs: 0,
        }
    }

    fn flush(&mut self, refs: u64) {
        self.stack.iter_mut().for_each(|kernel| kernel.flush(refs));
        self.sets.iter_mut().for_each(|kernel| kernel.flush(refs));
        self.caches.iter_mut().for_each(CacheSets::flush);
        self.classes.iter_mut().for_each(Classes::flush);
    }
}

impl StreamAnalysis {
    /// The analysis of an empty stream.
    pub fn new(stream: Stream, config: &CurvesConfig) -> Self {
        StreamAnalysis {
            splitter: match config.classes {
                Some(_) => Splitter::new(stream).with_origins(),
                None => Splitter::new(stream),
            },
            lines: LineSplitter::new(stream, &config.line_sizes),
            batch: Touches::default(),
            line_batch: LineBatch::default(),
            tlbs: vec![Tlbs::new(config)],
            running: 0,
            since_refs: 0,
        }
    }

    /// Adds an execution of a segment to the batches, and returns whether they must be
    /// [dispatched](StreamAnalysis::dispatch).
    pub fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr], rows: &mut Rows) -> bool {
        self.splitter.segment(segment, addresses, rows);
        self.lines.iter_mut().for_each(|lines| lines.segment(segment, addresses, rows));
        self.is_full()
    }

    /// Adds executions: see [`Splitter::executions`]. Returns as [`StreamAnalysis::segment`].
    pub fn executions(&mut self, segments: &Segments, words: &[u64], rows: &mut Rows) -> bool {
        self.splitter.executions(segments, words, rows);
        if let Some(lines) = &mut self.lines {
            let mut room = AddressRoom::new();
            for (number, groups) in segments.executions(words) {
                let segment = segments.segment(number);
                lines.segment(segment, segment.addresses(groups, &mut room), rows);
            }
        }
        self.is_full()
    }

    fn is_full(&self) -> bool {
        self.splitter.is_full() || self.lines.as_ref().is_some_and(LineSplitter::is_full)
    }

    /// Ends the current touch: the next reference is looked up, even on the same page or line.
    pub fn end_touch(&mut self) {
        self.splitter.end_touch();
        self.lines.iter_mut().for_each(LineSplitter::end_touch);
    }

    /// Takes the batches so far, and adds the jobs that feed them to the kernels.
    pub fn dispatch<'a>(&'a mut self, jobs: &mut Vec<Job<'a>>) {
        self.batch = self.splitter.take(std::mem::take(&mut self.batch));
        let (batch, tlbs) = (&self.batch, &mut self.tlbs[self.running]);
        if let Some(kernel) = &mut tlbs.stack {
            jobs.push(Box::new(|rows| kernel.process(batch, rows)));
        }
        for kernel in &mut tlbs.sets {
            jobs.push(Box::new(|rows| kernel.process(batch, rows)));
        }
        if let Some(lines) = &mut self.lines {
            self.line_batch = lines.take(std::mem::take(&mut self.line_batch));
            let (batch, smallest) = (&self.line_batch, lines.smallest());
            for (place, caches) in tlbs.caches.iter_mut().enumerate() {
                jobs.push(Box::new(move |rows| caches.process(batch, smallest, place, rows)));
            }
        }
    }

    /// Classifies the misses of the batch dispatched last.
    pub fn classify(&mut self, rows: &Rows, space: &mut AddressSpace) {
        if let Some(classes) = &mut self.tlbs[self.running].classes {
            classes.process(&self.batch, rows, |page| space.region_of(page));
        }
    }

    /// Empties the TLBs of the running core. All batches must be dispatched.
    pub fn flush(&mut self) {
        let refs = self.splitter.refs();
        self.tlbs[self.running].flush(refs);
        self.end_touch();
    }

    /// Empties the TLBs of another core. All batches must be dispatched.
    pub fn flush_core(&mut self, core: usize) {
        let refs = self.splitter.refs();
        self.tlbs[core].flush(refs);
        self.end_touch();
    }

    /// Switches to core number `core`. All batches must be dispatched.
    pub fn run_on(&mut self, core: usize, config: &CurvesConfig) {
        let refs = self.splitter.refs();
        self.tlbs[self.running].refs += refs - self.since_refs;
        (self.running, self.since_refs) = (core, refs);
        if core == self.tlbs.len() {
            self.tlbs.push(Tlbs::new(config));
        }
        self.end_touch();
    }

    /// Removes the classified misses of the running process image. All batches must be dispatched.
    pub fn take_classes(&mut self) -> Option<PlaceCounts> {
        self.tlbs[self.running].classes.as_mut().map(Classes::take_counts)
    }

    /// Restores the misses that [`StreamAnalysis::take_classes`] has removed.
    pub fn put_classes(&mut self, counts: PlaceCounts) {
        if let Some(classes) = &mut self.tlbs[self.running].classes {
            classes.put_counts(counts);
        }
    }

    /// The results. All batches must be dispatched.
    pub fn finish(
        mut self,
        config: &CurvesConfig,
        cores: &[Core],
        memory: &Memory,
        timed: StreamTimed,
    ) -> StreamCurves {
        let refs = self.splitter.refs();
        self.tlbs[self.running].refs += refs - self.since_refs;
        let mut result = StreamCurves {
            stream: self.splitter.stream(),
            references: refs,
            program_references: timed.program_references,
            stack: Vec::new(),
            sets: Vec::new(),
            caches: Vec::new(),
            working_sets: timed.working_sets,
            two_sizes: timed.two_sizes,
            classes: Vec::new(),
            sampled: timed.sampled,
            cores: Vec::new(),
        };
        let on_cores = timed.two_sizes_on_cores;
        for (number, (mut tlbs, core)) in self.tlbs.into_iter().zip(cores).enumerate() {
            let stack = tlbs.stack.as_ref().map_or_else(Vec::new, Stack::curves);
            let sets: Vec<_> = tlbs.sets.iter().map(Sets::curves).collect();
            add_stack(&mut result.stack, &stack);
            let caches: Vec<_> = tlbs.caches.iter().map(CacheSets::curves).collect();
            add_sets(&mut result.sets, &sets);
            add_caches(&mut result.caches, &caches);
            let places = tlbs.classes.as_mut().map(Classes::take_counts);
            let classes = places.and_then(|places| memory.classes(config, &places));
            result.classes.extend(classes.clone());
            if config.threads == Threads::Private {
                result.cores.push(CoreCurves {
                    thread: core.thread,
                    instructions: core.instructions,
                    references: tlbs.refs,
                    stack,
                    sets,
                    caches,
                    two_sizes: on_cores.iter().map(|cores| cores[number].clone()).collect(),
                    classes,
                });
            }
        }
        result
    }
}
