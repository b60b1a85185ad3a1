//! TLB, cache and working-set curves of a process image, or of several that share a core, each
//! stream separately: see [`Curves`].

mod config;
mod cores;
mod images;
mod program_time;
mod result;
mod stream;

use octavo_trace::{
    Observer, Relocation, Segments, Start, StreamConsumer, StreamEnd, StreamIdentity,
    StreamProgress, TimeSlicedConsumer,
};
use octavo_types::{Consumer, Event, PageSize, Segment, SummedCounts, VirtAddr};
use rayon::prelude::*;

use crate::classes::MissClasses;
use crate::touches::{Job, MOST_REFS, MOST_WORDS, Rows};
use cores::Cores;
use images::Images;
use octavo_trace::Counts;
use program_time::{ProgramTime, StreamTimed};
use stream::StreamAnalysis;

pub use config::{AtContextSwitch, CurvesConfig, Threads};
pub use result::{CoreCurves, StreamCurves};

/// Curves in the making: a consumer of one process image, or of those that share a core.
pub struct Curves {
    config: CurvesConfig,
    rows: Rows,
    streams: Vec<StreamAnalysis>,
    timed: Option<ProgramTime>,
    images: Images,
    cores: Cores,
    /// The classified misses of images that have ended, by stream.
    classes: Vec<Vec<MissClasses>>,
    /// The results of each stream, once it has ended.
    results: Vec<StreamCurves>,
}

impl Curves {
    /// Curves of an empty stream. Until [`StreamConsumer::started`] gives a relocation, addresses
    /// stay as traced.
    pub fn new(config: &CurvesConfig) -> Self {
        Curves {
            rows: Rows::new(config.sizes.clone(), Relocation::default()),
            streams: config
                .streams
                .iter()
                .map(|stream| StreamAnalysis::new(*stream, config))
                .collect(),
            timed: ProgramTime::new(config),
            images: Images::new(),
            cores: Cores::new(config.flush_every_instructions),
            classes: vec![Vec::new(); config.streams.len()],
            results: Vec::new(),
            config: config.clone(),
        }
    }

    /// The counts of the running image.
    pub fn counts(&self) -> &Counts {
        &self.images.running.counts
    }

    /// The results of each stream, once all have ended.
    pub fn results(&self) -> &[StreamCurves] {
        &self.results
    }

    /// Dispatches the batches of all streams to the kernels together, so that as many kernels as possible run in
    /// parallel.
    fn dispatch(&mut self) {
        let mut jobs: Vec<Job> = Vec::new();
        self.timed.iter_mut().for_each(|timed| timed.dispatch(&mut jobs));
        self.streams.iter_mut().for_each(|stream| stream.dispatch(&mut jobs));
        jobs.into_par_iter().with_max_len(1).for_each(|job| job(&self.rows));
        let space = &mut self.images.running.memory.space;
        self.streams.iter_mut().for_each(|stream| stream.classify(&self.rows, space));
    }

    #[cold]
    fn flush(&mut self) {
        self.dispatch();
        self.streams.iter_mut().for_each(StreamAnalysis::flush);
        self.timed.iter_mut().for_each(ProgramTime::flush);
    }

    /// Applies an event of threads that each have a core of their own.
    fn thread_event(&mut self, event: &Event) {
        match event {
            Event::ThreadSwitch { thread } => {
                if let Some(core) = self.cores.run(*thread) {
                    self.dispatch();
                    let config = &self.config;
                    self.streams.iter_mut().for_each(|stream| stream.run_on(core, config));
                    self.timed.iter_mut().for_each(|timed| timed.run_on(core));
                }
            }
            // An earlier thread with this number has ended: the new one begins with empty TLBs.
            Event::ThreadStart { thread } => match self.cores.of_thread(*thread) {
                Some(core) if self.cores.is_running(core) => self.flush(),
                Some(core) => {
                    self.dispatch();
                    self.streams.iter_mut().for_each(|stream| stream.flush_core(core));
                    self.timed.iter_mut().for_each(|timed| timed.flush_core(core));
                }
                None => {}
            },
            _ => {}
        }
    }

    /// Computes the results. Only these are kept, since there may be hundreds of processes.
    fn finish(&mut self) {
        self.dispatch();
        let cores = std::mem::replace(&mut self.cores, Cores::new(None)).finish();
        let streams = std::mem::take(&mut self.streams).into_iter();
        let mut timed = self.timed.take().map_or_else(Vec::new, ProgramTime::finish);
        timed.resize_with(streams.len(), StreamTimed::default);
        let classes = std::mem::take(&mut self.classes);
        for ((stream, timed), classes) in streams.zip(timed).zip(classes) {
            let memory = &self.images.running.memory;
            let mut result = stream.finish(&self.config, &cores, memory, timed);
            result.classes.extend(classes);
            self.results.push(result);
        }
        self.rows = Rows::new(self.config.sizes.clone(), Relocation::default());
    }
}

impl Consumer for Curves {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        if self.cores.is_flush_due() {
            self.flush();
        }
        self.cores.execute(segment.instructions().into());
        self.images.running.counts.execution(segment, addresses);
        let mut is_full = false;
        for stream in &mut self.streams {
            is_full |= stream.segment(segment, addresses, &mut self.rows);
        }
        if let Some(timed) = &mut self.timed {
            is_full |= timed.segment(segment, addresses, &mut self.rows);
        }
        if is_full {
            self.dispatch();
        }
    }

    fn event(&mut self, event: &Event) {
        self.images.running.counts.event(event);
        if self.config.threads == Threads::Private {
            self.thread_event(event);
        }
        if self.config.classes.is_some() && event.changes_mappings() {
            // References before the event belong to the old regions.
            self.dispatch();
            self.images.running.memory.apply(event);
        }
    }
}

impl StreamConsumer for Curves {
    fn executions(&mut self, segments: &Segments, words: &[u64]) -> usize {
        if self.cores.is_flush_due() {
            self.flush();
        }
        let counts = &mut self.images.running.counts;
        let before = (counts.instructions, counts.references());
        let most_instructions = self.cores.instructions_to_flush();
        // The instructions and references of the executions added to `counts` so far, which are few. All others are
        // in `sums`.
        let mut counted = (0, 0);
        let (mut sums, mut taken_words) = (SummedCounts::default(), 0);
        for (number, groups) in segments.executions(&words[..words.len().min(MOST_WORDS)]) {
            let [instructions, loads, stores, _] = sums.each().map(u64::from);
            if counted.0 + instructions >= most_instructions
                || counted.1 + instructions + loads + stores >= MOST_REFS
            {
                break;
            }
            if let Some(counts) = segments.counts(number) {
                sums.add(counts);
            } else {
                counts.execution_of_groups(segments.segment(number), groups);
                counted = (counts.instructions - before.0, counts.references() - before.1);
            }
            taken_words += 1 + groups.len();
        }
        if taken_words == 0 {
            return 0;
        }
        counts.add(sums.each());
        self.cores.execute(counts.instructions - before.0);
        let words = &words[..taken_words];
        let mut is_full = false;
        for stream in &mut self.streams {
            is_full |= stream.executions(segments, words, &mut self.rows);
        }
        if let Some(timed) = &mut self.timed {
            is_full |= timed.executions(segments, words, &mut self.rows);
        }
        if is_full {
            self.dispatch();
        }
        taken_words
    }

    fn started(&mut self, start: &Start) {
        let relocation = match self.config.native_layout {
            true => start.relocation.clone(),
            false => Relocation::default(),
        };
        self.rows.relocate(relocation.clone());
        self.images.running.memory.started(start, relocation);
    }
}

impl Observer for Curves {
    fn ended(&mut self, _: &StreamIdentity, _: &StreamEnd) {
        self.finish();
    }

    fn progress(&self) -> StreamProgress {
        StreamProgress {
            resident_bytes: (self.rows.len() as u64) << PageSize::BASE.log2(),
            ..self.images.progress()
        }
    }
}

impl TimeSlicedConsumer for Curves {
    type Process = Counts;

    fn switch_to(&mut self, stream: u32) {
        if self.images.is_running(stream) {
            return;
        }
        if self.config.at_context_switch == AtContextSwitch::Flush && self.images.has_begun() {
            self.flush();
        }
        let classifies = self.config.classes.is_some();
        if classifies {
            self.dispatch();
            let taken = self.streams.iter_mut().filter_map(StreamAnalysis::take_classes);
            self.images.running.classes = taken.collect();
        }
        self.images.switch_to(stream, &mut self.rows);
        for (stream, classes) in self.streams.iter_mut().zip(self.images.running.classes.drain(..))
        {
            stream.put_classes(classes);
        }
        self.streams.iter_mut().for_each(StreamAnalysis::end_touch);
        self.timed.iter_mut().for_each(ProgramTime::end_touch);
    }

    fn process_ended(&mut self, identity: &StreamIdentity, _: &StreamEnd) -> Counts {
        self.switch_to(identity.stream);
        self.dispatch();
        let image = self.images.leave(&mut self.rows);
        for (stream, classes) in self.streams.iter_mut().zip(&mut self.classes) {
            let places = stream.take_classes();
            classes.extend(places.and_then(|places| image.memory.classes(&self.config, &places)));
        }
        image.counts
    }

    fn all_ended(&mut self) {
        self.finish();
    }
}
