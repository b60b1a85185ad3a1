//! A native trace with correct checksums and wrong words: the error of every reader names the trace
//! and the place.

use std::io::Cursor;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use octavo_trace::check::{Checker, FindingKind};
use octavo_trace::sink::{Output, Sink, Written};
use octavo_trace::source::{Input, InputOptions, ReadAhead, Source, TraceError};
use octavo_trace::{
    Began, ConvertOptions, Encoder, ExitReason, JobState, Limits, ListingOptions, Manifest,
    NativeFile, NativeSink, NativeSource, Observer, Replay, StreamConsumer, StreamEnd,
    StreamIdentity, StreamProgress, convert, list, survey,
};
use octavo_types::{Consumer, Event, Item, ItemKind, Segment, VirtAddr};

use crate::memory::Memory;

/// A trace whose chunk of definitions was taken out: a segment executes that was never defined.
fn trace() -> Vec<u8> {
    let memory = Memory::default();
    let output = Output::to_writer("memory", Box::new(memory.clone()));
    let manifest = Manifest::recorded(serde_json::Value::Null);
    let file = NativeFile::create(output, &manifest).unwrap();
    let identity = StreamIdentity {
        stream: 0,
        parent: None,
        pid: 1,
        began: Began::Start,
        program: String::new(),
    };
    let length = || memory.bytes().len();
    let mut stream = file.stream(&identity);
    stream.flush().unwrap();
    let begin = length();
    let mut encoder = Encoder::default();
    let (kind, addr) = (ItemKind::Fetch, VirtAddr::new(0x1000));
    let item = Item::new(kind, 1, addr);
    encoder.segment(&Segment::new(vec![item], vec![]).unwrap(), &[]);
    let (definition, execution) = encoder.words().split_at(encoder.words().len() - 1);
    stream.put(definition).unwrap();
    stream.flush().unwrap();
    let end = length();
    stream.put(execution).unwrap();
    stream.end(&StreamEnd::PLAIN).unwrap();
    file.finish().unwrap();
    let mut bytes = memory.bytes();
    bytes.drain(begin..end);
    bytes
}

fn source() -> Box<dyn Source> {
    let reader = Box::new(Cursor::new(trace()));
    let input = Input::from_reader("t.oct", reader, InputOptions::default()).unwrap();
    Box::new(ReadAhead::new(Box::new(NativeSource::open(input).unwrap()), false))
}

fn check_sentence(sentence: &str) {
    assert!(sentence.starts_with("`t.oct`, chunk "), "{sentence}");
    assert!(sentence.ends_with("executes but was never defined"), "{sentence}");
}

/// Accepts everything, and counts the words.
struct Nowhere(&'static AtomicUsize);

impl Sink for Nowhere {
    fn words(&mut self, _: u32, words: &[u64]) -> Result<(), TraceError> {
        self.0.fetch_add(words.len(), Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written, TraceError> {
        Ok(Written::default())
    }
}

#[test]
fn a_conversion_blames_the_trace_and_writes_nothing_of_it() {
    let state = JobState::default();
    let output = Output::to_writer("out.oct", Box::new(std::io::sink()));
    let manifest = Manifest::recorded(serde_json::Value::Null);
    let sink = Box::new(NativeSink::create(output, &manifest).unwrap());
    let error = convert(&mut *source(), sink, ConvertOptions::default(), &state).unwrap_err();
    check_sentence(&error.to_string());
}

#[test]
fn a_conversion_keeps_what_came_before() {
    static WORDS: AtomicUsize = AtomicUsize::new(0);
    let options = ConvertOptions { keep_partial: true, ..ConvertOptions::default() };
    let sink = Box::new(Nowhere(&WORDS));
    let converted = convert(&mut *source(), sink, options, &JobState::default()).unwrap();
    check_sentence(&converted.fault.unwrap().to_string());
    assert_eq!(WORDS.load(Ordering::Relaxed), 0);
}

#[test]
fn a_survey_and_a_listing_say_so() {
    let survey = survey(&mut *source(), &JobState::default());
    check_sentence(&survey.fault.unwrap().to_string());
    let options =
        ListingOptions { entries: 9, from_instruction: 0, stream: None, events_only: false };
    check_sentence(&list(&mut *source(), options).1.unwrap().to_string());
}

#[test]
fn the_checker_finds_it() {
    let report = Checker::new().check(&mut *source(), |_| true);
    assert!(report.counts.contains_key(&FindingKind::Undecodable), "{report:?}");
}

/// Ignores everything.
struct Blind;

impl StreamConsumer for Blind {}

impl Consumer for Blind {
    fn segment(&mut self, _: &Segment, _: &[VirtAddr]) {}

    fn event(&mut self, _: &Event) {}
}

impl Observer for Blind {
    fn progress(&self) -> StreamProgress {
        StreamProgress::default()
    }
}

#[test]
fn an_undecodable_stream_ends_a_study_with_an_error() {
    let replay = Replay::start(source(), Limits::new(0, None, false), |_: &_| Blind);
    while replay.wait(Duration::from_secs(1)).0.running {}
    let exit = replay.finish().unwrap().run.exit;
    assert_eq!(exit.reason, ExitReason::TraceBroken);
    check_sentence(&exit.diagnostics);
}
