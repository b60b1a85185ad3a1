//! Time slicing against plain lists of steps.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use octavo_oracle::{NaiveArrival, NaiveProcess, NaiveStep, round_robin};
use octavo_types::{AddressPlace, Consumer, Event, Item, ItemKind, Segment, VirtAddr};
use proptest::prelude::*;

use super::*;
use crate::formats::{OpenOptions, open, open_input};
use crate::native::{Manifest, NativeSink};
use crate::ring::{Decoder, Encoder, StreamConsumer};
use crate::sink::{Output, Sink};
use crate::source::{Input, InputOptions};

/// A step of a random process: instructions, a fork of some process, or a mark.
fn step(processes: usize) -> impl Strategy<Value = NaiveStep> {
    prop_oneof![
        6 => (1u64..6).prop_map(NaiveStep::Run),
        1 => (0..processes).prop_map(NaiveStep::Fork),
        1 => Just(NaiveStep::Other),
    ]
}

fn process(number: usize, processes: usize) -> impl Strategy<Value = NaiveProcess> {
    // Most are started by an earlier process; a hostile trace may name any process.
    let from = if number > 0 { (0..number).boxed() } else { Just(0).boxed() };
    let arrival = prop_oneof![
        1 => Just(NaiveArrival::AtOnce),
        3 => from.clone().prop_map(NaiveArrival::Forked),
        3 => from.prop_map(NaiveArrival::Executed),
        1 => (0..processes).prop_map(NaiveArrival::Forked),
        1 => (0..processes).prop_map(NaiveArrival::Executed),
    ];
    (arrival, prop::collection::vec(step(processes), 0..12))
        .prop_map(|(arrival, steps)| NaiveProcess { arrival, steps })
}

fn processes() -> impl Strategy<Value = Vec<NaiveProcess>> {
    (1usize..7).prop_flat_map(|count| {
        let mut all = Vec::new();
        all.extend((0..count).map(|number| process(number, count).boxed()));
        all
    })
}

fn pid(number: usize) -> u32 {
    100 + number as u32
}

/// A segment of `instructions` instructions. Segments of different processes differ.
fn segment(process: usize, instructions: u64) -> Segment {
    let fetch = |number: u64| {
        Item::new(
            ItemKind::Fetch,
            4,
            VirtAddr::new(((process as u64 + 1) << 20) + 64 * instructions + 4 * number),
        )
    };
    let load = Item { kind: ItemKind::Load, addr: VirtAddr::NULL, ..fetch(0) };
    let fetches = (0..instructions).map(fetch);
    // Executions are of different lengths, too.
    let loads = instructions as usize % 3;
    let items = fetches.chain(std::iter::repeat_n(load, loads)).collect();
    let second = AddressPlace { leads: instructions.is_multiple_of(2), offset: 0 };
    let places = [AddressPlace::OWN, second];
    Segment::with_places(items, Vec::new(), &places[..loads]).unwrap()
}

fn words(number: usize, process: &NaiveProcess) -> Vec<u64> {
    let mut encoder = Encoder::default();
    for step in &process.steps {
        match step {
            NaiveStep::Run(instructions) => {
                let segment = segment(number, *instructions);
                let addresses = vec![VirtAddr::new(0x5000); segment.data().len()];
                encoder.segment(&segment, &addresses);
            }
            NaiveStep::Fork(child) => encoder.event(&Event::Fork { child: pid(*child) }),
            NaiveStep::Other => encoder.event(&Event::Mark { value: 7 }),
        }
    }
    encoder.words().to_vec()
}

fn identity(number: usize, process: &NaiveProcess) -> StreamIdentity {
    let (began, parent) = match process.arrival {
        NaiveArrival::AtOnce => (Began::Start, None),
        NaiveArrival::Forked(parent) => (Began::Fork, Some(parent as u32)),
        NaiveArrival::Executed(before) => (Began::Exec, Some(before as u32)),
    };
    StreamIdentity {
        stream: number as u32,
        parent,
        pid: pid(number),
        began,
        program: format!("/bin/{number}"),
    }
}

/// Writes processes as one trace, in batches of few words.
fn write(path: &std::path::Path, processes: &[NaiveProcess]) {
    let output = Output::create(path).unwrap();
    let manifest = Manifest::recorded(serde_json::Value::Null);
    let mut sink: Box<dyn Sink> = Box::new(NativeSink::create(output, &manifest).unwrap());
    for (number, process) in processes.iter().enumerate() {
        sink.begin(&identity(number, process)).unwrap();
    }
    for (number, process) in processes.iter().enumerate() {
        sink.words(number as u32, &words(number, process)).unwrap();
        sink.end(number as u32, &StreamEnd::PLAIN).unwrap();
    }
    sink.finish().unwrap();
}

/// Collects a stream as steps.
#[derive(Default)]
struct Steps(Vec<NaiveStep>);

impl Consumer for Steps {
    fn segment(&mut self, segment: &Segment, _: &[VirtAddr]) {
        self.0.push(NaiveStep::Run(segment.instructions().into()));
    }

    fn event(&mut self, event: &Event) {
        self.0.push(match event {
            Event::Fork { child } => NaiveStep::Fork((child - 100) as usize),
            _ => NaiveStep::Other,
        });
    }
}

impl StreamConsumer for Steps {}

/// Reads slicing to the end: steps with their streams, in order.
fn read(source: &mut dyn Source) -> Vec<(u32, NaiveStep)> {
    let (mut decoders, mut ended) = (std::collections::BTreeMap::new(), Vec::new());
    let (mut batch, mut found) = (Batch::default(), Vec::new());
    while let Some(step) = source.next(&mut batch).unwrap() {
        match step {
            Step::Began(identity) => {
                assert!(decoders.insert(identity.stream, Decoder::default()).is_none());
            }
            Step::Batch(stream) => {
                assert!(!ended.contains(&stream));
                let mut steps = Steps::default();
                let decoder = decoders.get_mut(&stream).unwrap();
                decoder.decode(&batch.words, &mut steps).unwrap();
                found.extend(steps.0.into_iter().map(|step| (stream, step)));
            }
            Step::Ended(stream, _) => ended.push(stream),
        }
    }
    assert_eq!(ended.len(), decoders.len());
    found
}

fn in_order(processes: &[NaiveProcess], quantum: u64, first: u64) -> Vec<(u32, NaiveStep)> {
    let order = round_robin(processes, quantum, first);
    order.into_iter().map(|(at, step)| (at as u32, processes[at].steps[step])).collect()
}

/// A trace in a file, which is removed in the end.
struct Written(PathBuf);

impl Written {
    fn new(processes: &[NaiveProcess]) -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("octavo-slicing-{}-{number}.oct", std::process::id());
        let path = std::env::temp_dir().join(name);
        write(&path, processes);
        Written(path)
    }

    fn open(&self) -> Box<dyn Source> {
        open(self.0.to_str().unwrap(), &OpenOptions::default()).unwrap()
    }
}

impl Drop for Written {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).unwrap();
    }
}

proptest! {
    #![proptest_config(octavo_oracle::cases(256))]

    #[test]
    fn quanta_are_those_of_plain_lists(
        processes in processes(), quantum in 1u64..12, first in 1u64..40,
    ) {
        let trace = Written::new(&processes);
        let mut slicing = TimeSlicing::new(vec![trace.open()], quantum, first).unwrap();
        prop_assert_eq!(read(&mut slicing), in_order(&processes, quantum, first));
        let progress = slicing.progress();
        prop_assert_eq!(Some(progress.done), progress.total);
    }

    /// Two traces equal a single trace that holds the second one's processes after the first one's.
    #[test]
    fn several_traces_equal_one_trace_of_all_processes(
        first in processes(), second in processes(), quantum in 1u64..12, turn in 1u64..40,
    ) {
        let traces = [Written::new(&first), Written::new(&second)];
        let mut slicing = TimeSlicing::new(traces.iter().map(Written::open).collect(), quantum, turn).unwrap();
        let moved = second.into_iter().map(|NaiveProcess { arrival, steps }| NaiveProcess {
            arrival: match arrival {
                NaiveArrival::AtOnce => NaiveArrival::AtOnce,
                NaiveArrival::Forked(parent) => NaiveArrival::Forked(first.len() + parent),
                NaiveArrival::Executed(before) => NaiveArrival::Executed(first.len() + before),
            },
            steps: steps.into_iter().map(|step| match step {
                NaiveStep::Fork(child) => NaiveStep::Fork(first.len() + child),
                other => other,
            }).collect(),
        });
        let all: Vec<_> = first.iter().cloned().chain(moved).collect();
        let found = read(&mut slicing).into_iter().map(|(stream, step)| match step {
            // The second trace's forks have the numbers of that trace.
            NaiveStep::Fork(child) if stream as usize >= first.len() => {
                (stream, NaiveStep::Fork(first.len() + child))
            }
            _ => (stream, step),
        });
        prop_assert_eq!(found.collect::<Vec<_>>(), in_order(&all, quantum, turn));
    }
}

fn run(arrival: NaiveArrival, instructions: &[u64]) -> NaiveProcess {
    NaiveProcess { arrival, steps: instructions.iter().copied().map(NaiveStep::Run).collect() }
}

#[test]
fn a_trace_that_can_be_read_only_as_it_comes_has_one_process() {
    let alone = run(NaiveArrival::AtOnce, &[3, 4]);
    let child = run(NaiveArrival::Forked(0), &[5]);
    for (processes, is_read) in [(vec![alone.clone()], true), (vec![alone, child], false)] {
        let trace = Written::new(&processes);
        let bytes = std::fs::File::open(&trace.0).unwrap();
        let input = Input::from_reader("a pipe", Box::new(bytes), InputOptions::default()).unwrap();
        let source = open_input(input, &OpenOptions::default()).unwrap();
        let mut slicing = TimeSlicing::new(vec![source], 2, 2).unwrap();
        if is_read {
            assert_eq!(read(&mut slicing), in_order(&processes, 2, 2));
            continue;
        }
        let mut batch = Batch::default();
        let error = loop {
            match slicing.next(&mut batch) {
                Ok(step) => assert!(step.is_some(), "two processes were taken for one"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("a pipe") && error.contains("several processes"), "{error}");
    }
}

#[test]
fn a_fault_is_reported_after_all_whole_processes() {
    let processes = [run(NaiveArrival::AtOnce, &[3, 4]), run(NaiveArrival::Forked(0), &[5])];
    let trace = Written::new(&processes);
    let whole = std::fs::read(&trace.0).unwrap();
    // Within the index: all streams are there, but not the end.
    std::fs::write(&trace.0, &whole[..whole.len() - 30]).unwrap();
    let mut slicing = TimeSlicing::new(vec![trace.open()], 100, 100).unwrap();
    let (mut batch, mut batches) = (Batch::default(), 0);
    let error = loop {
        match slicing.next(&mut batch) {
            Ok(Some(step)) => batches += usize::from(matches!(step, Step::Batch(_))),
            Ok(None) => panic!("nothing was found wrong"),
            Err(error) => break error.to_string(),
        }
    };
    assert_eq!(batches, 2);
    assert!(error.contains("cut off"), "{error}");
}

#[test]
fn a_cut_trace_is_an_error_wherever_it_is_cut() {
    let processes = [run(NaiveArrival::AtOnce, &[3, 4]), run(NaiveArrival::Forked(0), &[5])];
    let trace = Written::new(&processes);
    let whole = std::fs::read(&trace.0).unwrap();
    let mut in_turns = 0;
    for length in 0..whole.len() {
        std::fs::write(&trace.0, &whole[..length]).unwrap();
        let input = Input::open(&trace.0, InputOptions::default()).unwrap();
        // Without a manifest it is not a trace.
        let Ok(source) = open_input(input, &OpenOptions::default()) else { continue };
        let mut batch = Batch::default();
        let error = match TimeSlicing::new(vec![source], 100, 100) {
            Err(error) => error,
            Ok(mut slicing) => loop {
                in_turns += 1;
                match slicing.next(&mut batch) {
                    Ok(step) => assert!(step.is_some(), "nothing was wrong with {length} bytes"),
                    Err(error) => break error,
                }
            },
        };
        assert!(error.to_string().contains("cut off"), "{length} bytes: {error}");
    }
    assert!(in_turns > whole.len() / 2);
}
