//! What every TLB would do with a process image, each stream of it apart: see [`Curves`].

use octavo_trace::{
    AddressSpace, CodeMap, Observer, Relocation, Start, StreamEnd, StreamIdentity, StreamProgress,
    WordConsumer,
};
use octavo_types::{Consumer, Event, Instructions, Segment, VirtAddr};

use rayon::prelude::*;

use crate::classes::{Classes, ClassesConfig, MissClasses};
use crate::counts::{Counts, Stream};
use crate::page_sample::{PageSample, SampledPages, SampledSize};
use crate::sets::{MAX_SETS_LOG2, SetCurves, SetIndex, Sets};
use crate::sizes::Sizes;
use crate::stack::{Stack, StackCurve};
use crate::touches::{Kernel, Rows, Splitter, Touches};
use crate::two_sizes::{TwoSizes, TwoSizesConfig, TwoSizesResult};
use crate::working_sets::{WorkingSet, WorkingSets};

/// What to find out.
#[derive(Clone, Debug)]
pub struct CurvesConfig {
    /// The page sizes, all at once: those of every pair among them.
    pub sizes: Sizes,
    /// The streams, each with TLBs of its own.
    pub streams: Vec<Stream>,
    /// Whether addresses are moved to where Linux would have put them, or stay as traced.
    pub native_layout: bool,
    /// Fully associative TLBs of 1 to so many entries; none where it is 0.
    pub max_entries: u32,
    /// How set-associative TLBs are indexed; none are asked for where it is empty.
    pub set_indexes: Vec<SetIndex>,
    /// The most sets that those have, as a logarithm.
    pub max_sets_log2: u8,
    /// The windows of the working sets.
    pub windows_refs: Vec<u64>,
    /// Pairs of page sizes, both among `sizes`.
    pub two_sizes: Vec<TwoSizesConfig>,
    /// The TLB whose misses are classified and told by region and function, if any; both of its
    /// page sizes among `sizes`.
    pub classes: Option<ClassesConfig>,
    /// Fully associative TLBs and working sets from a sample of the pages, if that is to do; all
    /// else is exact.
    pub sample: Option<PageSample>,
    /// Which instructions the kernels use.
    pub instructions: Instructions,
}

impl CurvesConfig {
    /// Nothing is asked yet of `streams`, at any of `sizes`: for the rest to be filled in.
    pub fn nothing(sizes: Sizes, streams: Vec<Stream>) -> Self {
        CurvesConfig {
            sizes,
            streams,
            native_layout: false,
            max_entries: 0,
            set_indexes: Vec::new(),
            max_sets_log2: MAX_SETS_LOG2,
            windows_refs: Vec::new(),
            two_sizes: Vec::new(),
            classes: None,
            sample: None,
            instructions: Instructions::best(),
        }
    }
}

/// What one stream of a process image has had.
#[derive(Clone, Debug)]
pub struct StreamCurves {
    /// The stream.
    pub stream: Stream,
    /// Its references.
    pub references: u64,
    /// Fully associative TLBs, by page size.
    pub stack: Vec<StackCurve>,
    /// Set-associative ones, by index and page size.
    pub sets: Vec<SetCurves>,
    /// Working sets, by page size and window.
    pub working_sets: Vec<WorkingSet>,
    /// Pairs of page sizes.
    pub two_sizes: Vec<TwoSizesResult>,
    /// Why one TLB misses, and where.
    pub classes: Option<MissClasses>,
    /// By page size, what a sample of the pages tells, in place of `stack` and `working_sets`.
    pub sampled: Option<Vec<SampledSize>>,
}

/// Curves in the making: a consumer of one process image.
pub struct Curves {
    config: CurvesConfig,
    rows: Rows,
    streams: Vec<Analysed>,
    /// What the streams have had, once they have ended.
    results: Vec<StreamCurves>,
    counts: Counts,
    memory: Memory,
    emptied: Touches,
}

/// What is mapped, for who wants to know where misses are.
struct Memory {
    space: AddressSpace,
    code: CodeMap,
}

/// A stream with what is found out about it.
struct Analysed {
    splitter: Splitter,
    stack: Option<Stack>,
    sets: Vec<Sets>,
    working_sets: Option<WorkingSets>,
    two_sizes: Vec<TwoSizes>,
    classes: Option<Classes>,
    sampled: Option<SampledPages>,
}

impl Curves {
    /// Curves that have seen nothing. Until [`WordConsumer::started`] tells otherwise, addresses
    /// stay as traced.
    pub fn new(config: &CurvesConfig) -> Self {
        Curves {
            rows: Rows::new(config.sizes.clone(), Relocation::default()),
            streams: config.streams.iter().map(|stream| Analysed::new(*stream, config)).collect(),
            results: Vec::new(),
            counts: Counts::default(),
            memory: Memory {
                space: AddressSpace::new(Relocation::default(), None),
                code: CodeMap::new(),
            },
            emptied: Touches::default(),
            config: config.clone(),
        }
    }

    /// What has been counted.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// What each stream has had, once it has [`ended`](Observer::ended).
    pub fn results(&self) -> &[StreamCurves] {
        &self.results
    }
}

impl Analysed {
    fn new(stream: Stream, config: &CurvesConfig) -> Self {
        let CurvesConfig { sizes, instructions, .. } = config;
        let sets = config.set_indexes.iter().flat_map(|index| {
            sizes.iter().map(|size| Sets::new(size, *index, config.max_sets_log2, *instructions))
        });
        let two_sizes = config.two_sizes.iter();
        Analysed {
            splitter: match config.classes {
                Some(_) => Splitter::new(stream).with_origins(),
                None => Splitter::new(stream),
            },
            stack: (config.max_entries > 0 && config.sample.is_none())
                .then(|| Stack::new(sizes.clone(), config.max_entries, *instructions)),
            sets: sets.collect(),
            working_sets: (!config.windows_refs.is_empty() && config.sample.is_none())
                .then(|| WorkingSets::new(sizes.clone(), config.windows_refs.clone())),
            two_sizes: two_sizes.map(|pair| TwoSizes::new(pair.clone(), *instructions)).collect(),
            classes: config.classes.map(Classes::new),
            sampled: config.sample.map(|sample| {
                SampledPages::new(sample, sizes, config.max_entries, &config.windows_refs)
            }),
        }
    }

    /// Hands on what the stream has had so far.
    fn hand_on(&mut self, emptied: &mut Touches, rows: &Rows, space: &mut AddressSpace) {
        let batch = self.splitter.take(std::mem::take(emptied));
        let mut kernels: Vec<&mut dyn Kernel> = Vec::new();
        kernels.extend(self.sampled.iter_mut().map(|kernel| kernel as &mut dyn Kernel));
        kernels.extend(self.stack.iter_mut().map(|kernel| kernel as &mut dyn Kernel));
        kernels.extend(self.working_sets.iter_mut().map(|kernel| kernel as &mut dyn Kernel));
        kernels.extend(self.two_sizes.iter_mut().map(|kernel| kernel as &mut dyn Kernel));
        kernels.extend(self.sets.iter_mut().map(|kernel| kernel as &mut dyn Kernel));
        kernels.into_par_iter().for_each(|kernel| kernel.take(&batch, rows));
        if let Some(classes) = &mut self.classes {
            classes.take(&batch, rows, |page| space.region_of(page));
        }
        *emptied = batch;
    }

    /// What came of it.
    fn finish(mut self, memory: &Memory) -> StreamCurves {
        let refs = self.splitter.refs();
        self.working_sets.iter_mut().for_each(|kernel| kernel.finish(refs));
        self.two_sizes.iter_mut().for_each(|kernel| kernel.finish(refs));
        self.sampled.iter_mut().for_each(|kernel| kernel.finish(refs));
        let classes = self.classes.as_ref();
        StreamCurves {
            stream: self.splitter.stream(),
            references: refs,
            stack: self.stack.as_ref().map_or_else(Vec::new, Stack::curves),
            sets: self.sets.iter().map(Sets::curves).collect(),
            working_sets: self.working_sets.as_ref().map_or_else(Vec::new, WorkingSets::results),
            two_sizes: self.two_sizes.iter().map(TwoSizes::result).collect(),
            classes: classes.map(|of| MissClasses::new(of, &memory.space, &memory.code)),
            sampled: self.sampled.as_ref().map(SampledPages::results),
        }
    }
}

impl Consumer for Curves {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.counts.executed(segment);
        if segment.has_guarded() {
            let items = segment.data().iter().zip(addresses);
            for (item, _) in items.filter(|(item, a)| item.guarded && **a == VirtAddr::NULL) {
                self.counts.skipped(item);
            }
        }
        for stream in &mut self.streams {
            stream.splitter.segment(segment, addresses, &mut self.rows);
            if stream.splitter.is_full() {
                stream.hand_on(&mut self.emptied, &self.rows, &mut self.memory.space);
            }
        }
    }

    fn event(&mut self, event: &Event) {
        self.counts.event(event);
        if self.config.classes.is_some() && event.changes_mappings() {
            // What came before was in the regions of before.
            for stream in &mut self.streams {
                stream.hand_on(&mut self.emptied, &self.rows, &mut self.memory.space);
            }
            self.memory.space.apply(event);
            self.memory.code.apply(event);
        }
    }
}

impl WordConsumer for Curves {
    fn started(&mut self, start: &Start) {
        let relocation = match self.config.native_layout {
            true => start.relocation.clone(),
            false => Relocation::default(),
        };
        self.rows = Rows::new(self.config.sizes.clone(), relocation.clone());
        self.memory.space = AddressSpace::new(relocation, start.stack);
    }
}

impl Observer for Curves {
    fn ended(&mut self, _: &StreamIdentity, _: &StreamEnd) {
        // There may be hundreds of processes: only their results are kept.
        for mut stream in std::mem::take(&mut self.streams) {
            stream.hand_on(&mut self.emptied, &self.rows, &mut self.memory.space);
            self.results.push(stream.finish(&self.memory));
        }
        self.rows = Rows::new(self.config.sizes.clone(), Relocation::default());
    }

    fn progress(&self) -> StreamProgress {
        StreamProgress {
            references: self.counts.references(),
            instructions: self.counts.instructions,
            resident_bytes: (self.rows.len() as u64) << octavo_types::PageSize::BASE.log2(),
        }
    }
}
