//! Shrinks a trace to windows of instructions, and measures the sampling error.
//!
//! The trace is cut into periods, and one window at a random place in each period is kept (stratified
//! random sampling). All records are kept, so that mappings and definitions are complete. Two
//! studies run at the same time: of the whole trace, and of the kept windows. So the error is
//! measured: the result has the misses of both, with an interval from resampling the windows.

use std::collections::BTreeMap;

use octavo_trace::source::{Batch, Facts, Place, Progress, Source, Step, TraceError};
use octavo_trace::{
    Decoder, Observer, SegmentRoom, Start, StreamEnd, StreamIdentity, WordConsumer,
    interval_of_rate, splitmix,
};
use octavo_types::{AddressRoom, Consumer, Event, PageSize, Segment};
use serde_json::{Value, json};

use crate::sizes::Sizes;
use crate::study::{Study, StudyConfig};

/// The number of entries of the TLBs whose error is reported.
const ENTRIES: u32 = 64;
/// Bound on windows whose counts are kept for the interval. When it is reached, every other one is dropped.
const MAX_WINDOWS: usize = 1 << 16;

/// The part of a trace to keep.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampleSpec {
    /// The share of the trace that is kept, above 0 and below 1.
    pub fraction: f64,
    /// The length of a window.
    pub window_instructions: u64,
    /// The seed of the positions of windows.
    pub seed: u64,
}

impl SampleSpec {
    fn period_instructions(&self) -> u64 {
        ((self.window_instructions as f64 / self.fraction) as u64).max(self.window_instructions)
    }

    /// The start of a period's window, relative to the start of the period.
    fn window_start(&self, period: u64) -> u64 {
        let room = self.period_instructions() - self.window_instructions + 1;
        splitmix(self.seed ^ splitmix(period)) % room
    }
}

/// A source that passes on only the windows of another one.
pub struct Sampled {
    inner: Box<dyn Source>,
    spec: SampleSpec,
    raw: Batch,
    streams: BTreeMap<u32, (Decoder, Sampler)>,
    room: SegmentRoom,
    ended: bool,
}

impl Sampled {
    /// Keeps the windows of `inner` that `spec` selects.
    pub fn new(inner: Box<dyn Source>, spec: SampleSpec) -> Self {
        Sampled {
            inner,
            spec,
            raw: Batch::default(),
            streams: BTreeMap::new(),
            room: SegmentRoom::default(),
            ended: false,
        }
    }

    /// Whether there were instructions, but none was kept.
    fn keeps_nothing(&self) -> bool {
        let samplers = || self.streams.values().map(|(_, sampler)| sampler);
        samplers().all(|sampler| sampler.instructions_kept == 0)
            && samplers().any(|sampler| sampler.instructions > 0)
    }

    fn statement(&self) -> Value {
        let streams: Vec<Value> =
            self.streams.iter().map(|(stream, (_, sampler))| sampler.statement(*stream)).collect();
        json!({
            "fraction": self.spec.fraction,
            "window_instructions": self.spec.window_instructions,
            "seed": self.spec.seed,
            "tlb_entries": ENTRIES,
            "streams": streams,
        })
    }
}

impl Source for Sampled {
    fn facts(&self) -> Facts {
        let mut facts = self.inner.facts();
        facts.exact = false;
        if self.ended {
            facts.sample = Some(self.statement());
        }
        facts
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        batch.clear();
        loop {
            let step = self.inner.next(&mut self.raw)?;
            match &step {
                Some(Step::Began(identity)) => {
                    let sampler = Sampler::new(self.spec, identity.clone());
                    self.streams.insert(identity.stream, (Decoder::sharing(&self.room), sampler));
                }
                Some(Step::Batch(stream)) => {
                    let (decoder, sampler) =
                        self.streams.get_mut(stream).expect("a source begins its streams");
                    std::mem::swap(&mut sampler.kept, &mut batch.words);
                    let decoded = decoder.decode(&self.raw.words, sampler);
                    std::mem::swap(&mut sampler.kept, &mut batch.words);
                    decoded.map_err(|error| self.inner.undecodable(&error))?;
                    if batch.words.is_empty() {
                        continue;
                    }
                }
                Some(Step::Ended(stream, end)) => {
                    if let Some((decoder, sampler)) = self.streams.get_mut(stream) {
                        *decoder = Decoder::default();
                        sampler.end(end);
                    }
                }
                None if self.keeps_nothing() => {
                    let what =
                        "has no instruction in any window of the sample: give a larger share";
                    return Err(TraceError::whole(self.inner.name(), what));
                }
                None => self.ended = true,
            }
            return Ok(step);
        }
    }

    fn progress(&self) -> Progress {
        self.inner.progress()
    }

    fn place(&self) -> Place {
        self.inner.place()
    }

    fn name(&self) -> &str {
        self.inner.name()
    }
}

/// The sampling of one stream.
struct Sampler {
    identity: StreamIdentity,
    spec: SampleSpec,
    /// The kept words of the current batch.
    kept: Vec<u64>,
    whole: Study,
    shrunk: Study,
    instructions: u64,
    /// The window of the current period.
    window: std::ops::Range<u64>,
    /// The counts at the beginning of the current window, if it has begun.
    begun: Option<Counts>,
    windows: Vec<Window>,
    windows_kept: u64,
    instructions_kept: u64,
}

/// Instructions, and misses of both studies.
#[derive(Clone, Default)]
struct Counts {
    instructions: u64,
    whole: Vec<u64>,
    shrunk: Vec<u64>,
}

/// The counts within one window.
type Window = Counts;

impl Sampler {
    fn new(spec: SampleSpec, identity: StreamIdentity) -> Self {
        let config = StudyConfig {
            sizes: Sizes::new(page_sizes()),
            fetch_levels: vec![ENTRIES],
            data_levels: vec![ENTRIES],
            machine: None,
            core_cache_bytes: None,
            native_layout: true,
            allocation_wrappers: Vec::new(),
        };
        let start = spec.window_start(0);
        Sampler {
            identity,
            spec,
            kept: Vec::new(),
            whole: Study::new(&config),
            shrunk: Study::new(&config),
            instructions: 0,
            window: start..start + spec.window_instructions,
            begun: None,
            windows: Vec::new(),
            windows_kept: 0,
            instructions_kept: 0,
        }
    }

    fn counts(&self) -> Counts {
        Counts {
            instructions: self.instructions,
            whole: self.whole.first_level_misses(),
            shrunk: self.shrunk.first_level_misses(),
        }
    }

    /// Whether the next segment is kept.
    #[inline]
    fn keeps(&mut self) -> bool {
        if self.instructions < self.window.start {
            return false;
        }
        if self.instructions < self.window.end {
            if self.begun.is_none() {
                self.begun = Some(self.counts());
            }
            return true;
        }
        self.next_window();
        self.window.contains(&self.instructions) && self.keeps()
    }

    /// Ends the current window, and selects the next one.
    #[cold]
    fn next_window(&mut self) {
        self.close();
        let period_instructions = self.spec.period_instructions();
        let period = self.instructions / period_instructions;
        let current = period * period_instructions + self.spec.window_start(period);
        // The window of this period may have ended already.
        let period = if current + self.spec.window_instructions > self.instructions {
            period
        } else {
            period + 1
        };
        let start = period * period_instructions + self.spec.window_start(period);
        self.window = start..start + self.spec.window_instructions;
    }

    /// Records the counts of the current window, if it has begun.
    fn close(&mut self) {
        let Some(begun) = self.begun.take() else { return };
        let now = self.counts();
        let difference = |now: &[u64], then: &[u64]| {
            now.iter().enumerate().map(|(i, n)| n - then.get(i).unwrap_or(&0)).collect()
        };
        self.windows_kept += 1;
        self.windows.push(Window {
            instructions: now.instructions - begun.instructions,
            whole: difference(&now.whole, &begun.whole),
            shrunk: difference(&now.shrunk, &begun.shrunk),
        });
        if self.windows.len() == MAX_WINDOWS {
            let mut index = 0;
            self.windows.retain(|_| {
                index += 1;
                index % 2 == 1
            });
        }
    }

    /// Ends the stream. Only [`Sampler::statement`] is called from now on.
    fn end(&mut self, end: &StreamEnd) {
        self.close();
        self.whole.ended(&self.identity, end);
        self.shrunk.ended(&self.identity, end);
    }

    /// The results of a study of the shrunk trace, with the results for the whole trace.
    fn statement(&self, stream: u32) -> Value {
        let whole = self.whole.first_level_misses();
        let sizes = page_sizes().len();
        let mut errors = Vec::new();
        for (index, whole) in whole.iter().enumerate() {
            let per_kilo = |misses: u64, instructions: u64| {
                (instructions > 0).then(|| 1000.0 * misses as f64 / instructions as f64)
            };
            let sum = |misses: fn(&Window) -> &Vec<u64>| -> u64 {
                self.windows.iter().map(|window| misses(window)[index]).sum()
            };
            let instructions = self.windows.iter().map(|window| window.instructions).sum();
            let interval = self.interval(index);
            errors.push(json!({
                "stream": if index < sizes { "fetch" } else { "data" },
                "page_size": page_sizes()[index % sizes].bytes(),
                "whole_mpki": per_kilo(*whole, self.instructions),
                "sample_mpki": per_kilo(sum(|window| &window.shrunk), instructions),
                "sample_mpki_warm": per_kilo(sum(|window| &window.whole), instructions),
                "low_mpki": interval.map(|(low, _)| low),
                "high_mpki": interval.map(|(_, high)| high),
            }));
        }
        json!({
            "stream": stream,
            "instructions": self.instructions,
            "kept_instructions": self.instructions_kept,
            "windows": self.windows_kept,
            "errors": errors,
        })
    }

    /// The 95% interval of the misses per thousand instructions in the windows, for one stream and page size;
    /// `None` with fewer than two windows.
    fn interval(&self, index: usize) -> Option<(f64, f64)> {
        let misses = |window: &Window| (window.shrunk[index], window.instructions);
        let windows: Vec<_> = self.windows.iter().map(misses).collect();
        interval_of_rate(&windows, self.spec.seed)
    }
}

/// 4 KiB to 2 MiB.
fn page_sizes() -> Vec<PageSize> {
    (12..=21).filter_map(PageSize::from_log2).collect()
}

impl WordConsumer for Sampler {
    #[inline]
    fn execution(&mut self, segment: &Segment, words: &[u64]) {
        self.folded_execution(segment, words, words);
    }

    #[inline]
    fn folded_execution(&mut self, segment: &Segment, words: &[u64], written: &[u64]) {
        let mut room = AddressRoom::new();
        let addresses = segment.addresses(&words[1..], &mut room);
        let keeps = self.keeps();
        self.whole.segment(segment, addresses);
        if keeps {
            self.shrunk.segment(segment, addresses);
            self.kept.extend_from_slice(written);
            self.instructions_kept += u64::from(segment.instructions());
        }
        self.instructions += u64::from(segment.instructions());
    }

    fn record(&mut self, words: &[u64], event: Option<&Event>) {
        self.kept.extend_from_slice(words);
        if let Some(event) = event {
            self.whole.event(event);
            self.shrunk.event(event);
        }
    }

    fn started(&mut self, start: &Start) {
        self.whole.started(start);
        self.shrunk.started(start);
    }
}
