//! The references that a sample keeps, and its stated error compared with the real one.

use octavo_curves::{SampleSpec, Sampled, Sizes, Study, StudyConfig};
use octavo_trace::source::{Batch, Facts, Place, Progress, Source, Step, TraceError};
use octavo_trace::{Decoder, StreamConsumer, StreamEnd, StreamIdentity, WordWriter};
use octavo_types::{Consumer, Event, Item, ItemKind, PageSize, Segment, VirtAddr};

/// A loop of four instructions that loads from pages in scattered order. The number of pages grows as the loop runs.
struct Loop {
    batches: u64,
    at: u64,
    began: bool,
}

const PER_BATCH: u64 = 1000;

fn segment() -> Segment {
    let item = |kind, addr| Item::new(kind, 4, VirtAddr::new(addr));
    let fetch = |n: u64| item(ItemKind::Fetch, 0x40_0000 + 4 * n);
    let items = vec![fetch(0), item(ItemKind::Load, 0), fetch(1), fetch(2), fetch(3)];
    Segment::new(items, vec![]).unwrap()
}

impl Source for Loop {
    fn facts(&self) -> Facts {
        Facts {
            format: "loop",
            exact: true,
            samples: false,
            has_instructions: true,
            has_sizes: true,
            physical: false,
            notes: vec![],
            sample: None,
        }
    }

    fn next(&mut self, batch: &mut Batch) -> Result<Option<Step>, TraceError> {
        batch.clear();
        if !self.began {
            self.began = true;
            return Ok(Some(Step::Began(StreamIdentity::only())));
        }
        if self.at == self.batches {
            self.at += 1;
            return Ok(Some(Step::Ended(0, StreamEnd::PLAIN)));
        } else if self.at > self.batches {
            return Ok(None);
        }
        let mut out = WordWriter::default();
        if self.at == 0 {
            out.define(0, &segment());
        }
        out.event(&Event::Mark { value: 100 + self.at });
        for iteration in 0..PER_BATCH {
            let number = self.at * PER_BATCH + iteration;
            let page = number.wrapping_mul(0x9e37_79b9) % (50 + number / 1000);
            out.execute(0, &[0x10_0000_0000 + 4096 * page]);
        }
        std::mem::swap(&mut batch.words, out.words_mut());
        self.at += 1;
        Ok(Some(Step::Batch(0)))
    }

    fn progress(&self) -> Progress {
        Progress::default()
    }

    fn place(&self) -> Place {
        Place::Whole
    }
}

/// A study, and the number of marks in its stream.
struct Watched(Study, u64);

impl Consumer for Watched {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.0.segment(segment, addresses);
    }

    fn event(&mut self, event: &Event) {
        self.1 += u64::from(matches!(event, Event::Mark { .. }));
        self.0.event(event);
    }
}

impl StreamConsumer for Watched {}

fn studied(source: &mut dyn Source) -> Watched {
    let config = StudyConfig {
        sizes: Sizes::new((12..=21).filter_map(PageSize::from_log2).collect()),
        fetch_levels: vec![64],
        data_levels: vec![64],
        machine: None,
        core_cache_bytes: None,
        native_layout: true,
        allocation_wrappers: Vec::new(),
    };
    let mut watched = Watched(Study::new(&config), 0);
    let (mut decoder, mut batch) = (Decoder::default(), Batch::default());
    while source.next(&mut batch).unwrap().is_some() {
        decoder.decode(&batch.words, &mut watched).unwrap();
    }
    watched
}

#[test]
fn the_stated_error_equals_that_of_studies() {
    let whole = studied(&mut Loop { batches: 200, at: 0, began: false });
    let inner = Box::new(Loop { batches: 200, at: 0, began: false });
    let spec = SampleSpec { fraction: 0.25, window_instructions: 4000, seed: 1 };
    let mut source = Sampled::new(inner, spec);
    let sample = studied(&mut source);
    assert_eq!(sample.1, 200, "all events pass");

    let statement = source.facts().sample.unwrap();
    let stream = &statement["streams"][0];
    let (all, kept) = (whole.0.counts().instructions, sample.0.counts().instructions);
    assert_eq!(stream["instructions"].as_u64(), Some(all));
    assert_eq!(stream["kept_instructions"].as_u64(), Some(kept));
    assert_eq!((all, kept), (800_000, 200_000));
    assert_eq!(stream["windows"].as_u64(), Some(50));

    let mpki = |study: &Study, index: usize| {
        1000.0 * study.first_level_misses()[index] as f64 / study.counts().instructions as f64
    };
    for (index, error) in stream["errors"].as_array().unwrap().iter().enumerate() {
        assert_eq!(error["whole_mpki"].as_f64(), Some(mpki(&whole.0, index)), "{error}");
        assert_eq!(error["sample_mpki"].as_f64(), Some(mpki(&sample.0, index)), "{error}");
        let bound = |name: &str| error[name].as_f64().unwrap();
        assert!(bound("low_mpki") <= bound("sample_mpki"), "{error}");
        assert!(bound("sample_mpki") <= bound("high_mpki"), "{error}");
    }
    // Data in 4 KiB pages, whose misses grow with time.
    let data = &stream["errors"][10];
    assert!(data["whole_mpki"].as_f64().unwrap() > 50.0, "{data}");
    let inside = data["low_mpki"].as_f64() < data["whole_mpki"].as_f64()
        && data["whole_mpki"].as_f64() < data["high_mpki"].as_f64();
    assert!(inside, "{data}");
}

#[test]
fn a_sample_depends_only_on_its_seed() {
    let kept = |seed| {
        let inner = Box::new(Loop { batches: 50, at: 0, began: false });
        let spec = SampleSpec { fraction: 0.1, window_instructions: 1000, seed };
        let mut source = Sampled::new(inner, spec);
        let (mut words, mut batch) = (Vec::new(), Batch::default());
        while source.next(&mut batch).unwrap().is_some() {
            words.extend_from_slice(&batch.words);
        }
        words
    };
    assert_eq!(kept(7), kept(7));
    assert_ne!(kept(7), kept(8));
}

#[test]
fn a_sample_that_keeps_nothing_is_rejected() {
    let inner = Box::new(Loop { batches: 5, at: 0, began: false });
    let spec = SampleSpec { fraction: 1e-9, window_instructions: 1000, seed: 1 };
    let (mut source, mut batch) = (Sampled::new(inner, spec), Batch::default());
    let error = loop {
        match source.next(&mut batch) {
            Ok(step) => assert!(step.is_some(), "taken for a sample"),
            Err(error) => break error,
        }
    };
    assert!(error.to_string().contains("no instruction in any window"), "{error}");
}
