//! One stream and its TLBs and caches. (Kernels that depend on time are in [`super::program_time`].)

use octavo_trace::AddressSpace;
use octavo_types::{Segment, VirtAddr};
use rayon::prelude::*;

use super::cores::Core;
use super::images::Memory;
use super::program_time::StreamTimed;
use super::result::{CoreCurves, StreamCurves, add_caches, add_sets, add_stack};
use super::{CurvesConfig, Threads};
use crate::caches::{CacheSets, LineBatch, LineSplitter};
use crate::classes::{Classes, PlaceCounts};
use crate::sets::Sets;
use crate::stack::Stack;
use crate::touches::{Kernel, Rows, Splitter, Touches};
use octavo_trace::Stream;

/// A stream.
pub struct Analysed {
    splitter: Splitter,
    /// Makes lines, if caches are asked for; and a batch of them that is done with.
    lines: Option<LineSplitter>,
    emptied_lines: LineBatch,
    /// By core: the first one where all threads share its TLBs.
    tlbs: Vec<Tlbs>,
    /// The core that runs, and the references before it did.
    running: usize,
    since_refs: u64,
}

/// The TLBs of one core.
struct Tlbs {
    stack: Option<Stack>,
    sets: Vec<Sets>,
    /// And its caches, by the size of their lines.
    caches: Vec<CacheSets>,
    classes: Option<Classes>,
    /// The references that looked them up.
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
            caches: config.line_sizes.iter().map(|of| CacheSets::new(*of, *instructions)).collect(),
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

impl Analysed {
    /// A stream that has had nothing.
    pub fn new(stream: Stream, config: &CurvesConfig) -> Self {
        Analysed {
            splitter: match config.classes {
                Some(_) => Splitter::new(stream).with_origins(),
                None => Splitter::new(stream),
            },
            lines: LineSplitter::new(stream, &config.line_sizes),
            emptied_lines: LineBatch::default(),
            tlbs: vec![Tlbs::new(config)],
            running: 0,
            since_refs: 0,
        }
    }

    /// Takes an execution of a segment in, and says whether it is time to
    /// [hand on](Analysed::hand_on).
    #[inline(always)]
    pub fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr], rows: &mut Rows) -> bool {
        self.splitter.segment(segment, addresses, rows);
        let has_lines = self.lines.as_mut().is_some_and(|lines| {
            lines.segment(segment, addresses, rows);
            lines.is_full()
        });
        has_lines || self.splitter.is_full()
    }

    /// Ends the touch under way: the next reference is looked up, also on the same page or line.
    pub fn end_touch(&mut self) {
        self.splitter.end_touch();
        self.lines.iter_mut().for_each(LineSplitter::end_touch);
    }

    /// Hands on what the stream has had so far.
    pub fn hand_on(&mut self, emptied: &mut Touches, rows: &Rows, space: &mut AddressSpace) {
        let batch = self.splitter.take(std::mem::take(emptied));
        let tlbs = &mut self.tlbs[self.running];
        let mut kernels: Vec<&mut dyn Kernel> = Vec::new();
        kernels.extend(tlbs.stack.iter_mut().map(|kernel| kernel as &mut dyn Kernel));
        kernels.extend(tlbs.sets.iter_mut().map(|kernel| kernel as &mut dyn Kernel));
        kernels.into_par_iter().for_each(|kernel| kernel.take(&batch, rows));
        if let Some(lines) = &mut self.lines {
            let batch = lines.take(std::mem::take(&mut self.emptied_lines));
            tlbs.caches
                .par_iter_mut()
                .enumerate()
                .for_each(|(place, caches)| caches.take(&batch, lines.smallest(), place, rows));
            self.emptied_lines = batch;
        }
        if let Some(classes) = &mut tlbs.classes {
            classes.take(&batch, rows, |page| space.region_of(page));
        }
        *emptied = batch;
    }

    /// Empties the TLBs of the core that runs, when all is handed on.
    pub fn flush(&mut self) {
        let refs = self.splitter.refs();
        self.tlbs[self.running].flush(refs);
        self.end_touch();
    }

    /// Empties the TLBs of another core, when all is handed on.
    pub fn flush_core(&mut self, core: usize) {
        let refs = self.splitter.refs();
        self.tlbs[core].flush(refs);
        self.end_touch();
    }

    /// From here on core number `core` runs, when all is handed on.
    pub fn run_on(&mut self, core: usize, config: &CurvesConfig) {
        let refs = self.splitter.refs();
        self.tlbs[self.running].refs += refs - self.since_refs;
        (self.running, self.since_refs) = (core, refs);
        if core == self.tlbs.len() {
            self.tlbs.push(Tlbs::new(config));
        }
        self.end_touch();
    }

    /// Takes out what was counted of one process image's misses; all is handed on.
    pub fn take_classes(&mut self) -> Option<PlaceCounts> {
        self.tlbs[self.running].classes.as_mut().map(Classes::take_counts)
    }

    /// Puts back what [`Analysed::take_classes`] took out.
    pub fn put_classes(&mut self, counts: PlaceCounts) {
        if let Some(classes) = &mut self.tlbs[self.running].classes {
            classes.put_counts(counts);
        }
    }

    /// The results, once all batches are handed on.
    pub fn finish(
        mut self,
        config: &CurvesConfig,
        cores: &[Core],
        memory: &Memory,
        timed: StreamTimed,
    ) -> StreamCurves {
        let refs = self.splitter.refs();
        self.tlbs[self.running].refs += refs - self.since_refs;
        let mut found = StreamCurves {
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
            add_stack(&mut found.stack, &stack);
            let caches: Vec<_> = tlbs.caches.iter().map(CacheSets::curves).collect();
            add_sets(&mut found.sets, &sets);
            add_caches(&mut found.caches, &caches);
            let places = tlbs.classes.as_mut().map(Classes::take_counts);
            let classes = places.and_then(|places| memory.classes(config, &places));
            found.classes.extend(classes.clone());
            if config.threads == Threads::Private {
                found.cores.push(CoreCurves {
                    thread: core.thread,
                    instructions: core.instructions,
                    references: tlbs.refs,
                    stack,
                    sets,
                    caches,
                    two_sizes: on_cores.iter().map(|of| of[number].clone()).collect(),
                    classes,
                });
            }
        }
        found
    }
}
