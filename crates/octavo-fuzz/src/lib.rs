//! Shared code of the fuzz targets: passes bytes through a reader and asserts the properties that
//! hold for any input. A target fails by a panic, a timeout, or too much memory.

mod checksums;
mod engines;
mod memory;

use std::io::{Cursor, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use octavo_machine::resolve_text;
use octavo_os::frames::snapshot::Snapshot;
use octavo_trace::check::Checker;
use octavo_trace::formats::{OpenOptions, open_input};
use octavo_trace::sink::{NativeLayout, Sink, Written};
use octavo_trace::source::{Batch, Input, InputOptions, Source, Step, TraceError};
use octavo_trace::synthetic::{self, Spec};
use octavo_trace::{Decoder, Encoder, StreamConsumer};
use octavo_types::{Consumer, Event, Segment, VirtAddr};

use checksums::{with_checksums, with_last_checksum};

/// How far an input may expand: enough for several buffers of any reader.
const MAX_EXPANDED_BYTES: u64 = 1 << 16;
/// Upper bound on the memory that a reader may hold for one input, its batches included.
const MAX_HELD_BYTES: usize = 160 << 20;
/// Upper bound on the memory of the snapshot reader. A few bytes can declare a memory of 4 TiB; its
/// free blocks take two bits a frame.
const MAX_SNAPSHOT_BYTES: usize = 320 << 20;
/// Upper bound on the memory of an engine for a stream of some thousand bytes: machines of five
/// designs with their memories, or the curves of every kernel.
const MAX_ENGINE_BYTES: usize = 256 << 20;
/// Batches of a synthetic trace that are read: the trace may be practically endless.
const SYNTHETIC_BATCHES: usize = 2;

/// A target's name and the function that it calls.
pub type Target = (&'static str, fn(&[u8]));

/// The targets, by name.
pub const TARGETS: &[Target] = &[
    ("champsim", |bytes| read_format("champsim", bytes)),
    ("champsim_cloudsuite", |bytes| read_format("champsim-cloudsuite", bytes)),
    ("csv", |bytes| read_format("csv", bytes)),
    ("din", |bytes| read_format("din", bytes)),
    ("drmemtrace", |bytes| read_format("drmemtrace", bytes)),
    ("engine_curves", |bytes| engine(engines::curves, bytes)),
    ("engine_run", |bytes| engine(|bytes| drop(engines::study(bytes)), bytes)),
    ("engine_sim", |bytes| engine(engines::sim, bytes)),
    ("gem5", |bytes| read_format("gem5", bytes)),
    ("input", input),
    ("lackey", |bytes| read_format("lackey", bytes)),
    ("machine_config", machine_config),
    ("native", |bytes| {
        read_format("native", bytes);
        // With every checksum corrected, so that the code behind the checks is reached.
        read_format("native", &with_checksums(bytes));
    }),
    ("perf", |bytes| read_format("perf", bytes)),
    ("pinatrace", |bytes| read_format("pinatrace", bytes)),
    ("ring", ring),
    ("snapshot", |bytes| {
        snapshot(bytes);
        snapshot(&with_last_checksum(bytes));
    }),
    ("synthetic", synthetic),
    ("xdin", |bytes| read_format("xdin", bytes)),
];

/// Gives bytes to the target of this name.
pub fn run(target: &str, bytes: &[u8]) {
    let (_, run) = TARGETS.iter().find(|(name, _)| *name == target).expect("a target's name");
    run(bytes);
}

/// Reads `bytes` as a trace of a format, to its end.
fn read_format(name: &str, bytes: &[u8]) {
    memory::bounded(MAX_HELD_BYTES, || {
        // Whether places are asked for must make no difference.
        let wants_places = bytes.first().is_some_and(|byte| byte & 1 != 0);
        let Some(input) = open_bytes(bytes) else { return };
        let options = OpenOptions { format: Some(name.to_owned()), input: options() };
        if let Ok(mut source) = open_input(input, &options) {
            drain(&mut *source, wants_places, usize::MAX, name == "native");
        }
    });
}

/// Reads `bytes` as a snapshot of memory, and sums it up.
fn snapshot(bytes: &[u8]) {
    memory::bounded(MAX_SNAPSHOT_BYTES, || {
        if let Ok(snapshot) = Snapshot::from_bytes(bytes) {
            let summary = snapshot.summary();
            assert!(summary.free_bytes <= summary.simulated_bytes);
            assert_eq!(Snapshot::from_bytes(&snapshot.to_bytes()).ok(), Some(snapshot));
        }
    });
}

/// Reads `bytes` as a machine, and after a line `--set` as settings of it, one a line. A machine reads
/// back as itself.
fn machine_config(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (file, settings) = text.split_once("\n\n--set\n").unwrap_or((text, ""));
    let settings: Vec<&str> = settings.lines().collect();
    memory::bounded(MAX_HELD_BYTES, || match resolve_text("fuzzed.toml", file, &settings) {
        Ok(resolved) => {
            for text in [resolved.toml(), &resolved.config().to_toml()] {
                let again = resolve_text::<&str>("again.toml", text, &[]).expect("our own text");
                assert_eq!(again.json(), resolved.json());
            }
        }
        Err(error) => {
            let sentence = error.to_string();
            assert!(!sentence.contains('\n') && sentence.len() < 2000, "{sentence}");
        }
    });
}

/// Feeds an engine the stream that `bytes` describe.
fn engine(engine: fn(&[u8]), bytes: &[u8]) {
    memory::bounded(MAX_ENGINE_BYTES, || engine(bytes));
}

/// Expands `bytes`.
fn input(bytes: &[u8]) {
    memory::bounded(MAX_HELD_BYTES, || {
        let Some(mut input) = open_bytes(bytes) else { return };
        let head = input.head().to_vec();
        let mut all = Vec::new();
        // Bytes before an error are delivered too.
        let read = (&mut input).take(4 * MAX_EXPANDED_BYTES).read_to_end(&mut all);
        assert!(all.starts_with(&head), "the head is how it begins");
        let most = MAX_EXPANDED_BYTES.max(bytes.len() as u64);
        assert!(all.len() as u64 <= most, "{} bytes, {read:?}", all.len());
        assert!(read.is_err() || input.read(&mut [0; 8]).is_ok_and(|more| more == 0));
    });
}

/// Reads `bytes` as a description of a synthetic trace, by URI and in TOML. A description reads
/// back as itself, and its trace is sound.
fn synthetic(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    memory::bounded(MAX_HELD_BYTES, || {
        for spec in [synthetic::parse(text), Spec::from_toml(text)].into_iter().flatten() {
            let resolved = spec.resolved();
            let again = synthetic::parse(&resolved).or_else(|_| Spec::from_toml(&resolved));
            assert_eq!(again.as_ref(), Ok(&spec), "{resolved}");
            drain(&mut *spec.source(), true, SYNTHETIC_BATCHES, false);
            let mut steps = 0;
            let report = Checker::new().check(&mut *spec.source(), |_| {
                steps += 1;
                steps < SYNTHETIC_BATCHES
            });
            assert!(report.counts.is_empty(), "{report:#?}");
        }
    });
}

/// Decodes `bytes` as ring words. Decoded words are encoded again, and then decode as a whole; they are also
/// moved to the native layout.
fn ring(bytes: &[u8]) {
    memory::bounded(MAX_HELD_BYTES, || {
        let words = bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap()));
        let words: Vec<u64> = words.collect();
        let mut first = Reencoded::default();
        let _ = Decoder::default().decode(&words, &mut first);
        let mut again = Reencoded::default();
        Decoder::default().decode(first.encoder.words(), &mut again).expect("our own words");
        assert_eq!((first.executions, first.events), (again.executions, again.events));
        assert_eq!(first.encoder.words(), again.encoder.words());
        let moved = Moved::default();
        let mut sink = NativeLayout::new(Box::new(moved.clone()), "fuzzed");
        if sink.words(0, &words).is_ok() {
            assert_eq!(moved.0.load(Ordering::Relaxed), words.len(), "only addresses change");
        }
    });
}

fn options() -> InputOptions {
    InputOptions {
        max_expanded_bytes: MAX_EXPANDED_BYTES,
        max_decoder_bytes: 8 << 20,
        ..InputOptions::default()
    }
}

fn open_bytes(bytes: &[u8]) -> Option<Input> {
    let reader = Box::new(Cursor::new(bytes.to_vec()));
    Input::from_reader("fuzzed", reader, options()).ok()
}

/// Takes all steps of a source, but at most `most`. A reader may fail, but the words that it gives
/// must decode, belong to a stream that has begun, and have places for all executions or for none.
/// A native trace holds words already: the words of a malicious one `may_be_refused`, as may those
/// of a traced process.
fn drain(source: &mut dyn Source, wants_places: bool, most: usize, may_be_refused: bool) {
    let mut streams = std::collections::BTreeMap::new();
    let mut batch = Batch { wants_places, ..Batch::default() };
    for _ in 0..most {
        match source.next(&mut batch) {
            Ok(Some(Step::Began(identity))) => {
                let before =
                    streams.insert(identity.stream, (Decoder::default(), Counted::default()));
                assert!(before.is_none(), "stream {} begins twice", identity.stream);
            }
            Ok(Some(Step::Batch(stream))) => {
                let (decoder, counted) = streams.get_mut(&stream).expect("the stream has begun");
                let before = counted.executions;
                if let Err(error) = decoder.decode(&batch.words, counted) {
                    assert!(may_be_refused, "a reader's words do not decode: {error}");
                    break;
                }
                let places = batch.places.len();
                let executions = counted.executions - before;
                assert!(places == 0 || places == executions, "{places}, {executions}");
            }
            Ok(Some(Step::Ended(stream, _))) => {
                streams.get(&stream).expect("the stream has begun");
            }
            Ok(None) => break,
            Err(error) => {
                let sentence = error.to_string();
                assert!(!sentence.contains('\n') && sentence.len() < 2000, "{sentence}");
                break;
            }
        }
    }
    source.facts();
    source.progress();
}

/// Counts the executions that are decoded.
#[derive(Default)]
struct Counted {
    executions: usize,
}

impl StreamConsumer for Counted {}

impl Consumer for Counted {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        assert_eq!(segment.data().len(), addresses.len());
        self.executions += 1;
    }

    fn event(&mut self, _: &Event) {}
}

/// Counts the words that a conversion writes, and checks that they decode.
#[derive(Clone, Default)]
struct Moved(Arc<AtomicUsize>);

impl Sink for Moved {
    fn words(&mut self, _: u32, words: &[u64]) -> Result<(), TraceError> {
        let decoded = Decoder::default().decode(words, &mut Counted::default());
        decoded.expect("words that decoded do so in another layout");
        self.0.fetch_add(words.len(), Ordering::Relaxed);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Written, TraceError> {
        Ok(Written::default())
    }
}

/// Encodes the executions and events that are decoded.
#[derive(Default)]
struct Reencoded {
    encoder: Encoder,
    executions: usize,
    events: usize,
}

impl StreamConsumer for Reencoded {}

impl Consumer for Reencoded {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.executions += 1;
        self.encoder.segment(segment, addresses);
    }

    fn event(&mut self, event: &Event) {
        self.events += 1;
        self.encoder.event(event);
    }
}
