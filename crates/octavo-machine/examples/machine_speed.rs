//! Measures the cost of machines, beside a textbook simulator:
//!
//!     machine_speed [--references N] [--rounds N] [--designs base4k,thp,…] [--more spur,…]
//!                   [--machine NAME] [--out-of-order] FILE.oct …
//!
//! The first references of each trace (32M by default) are held in memory as words. Every round decodes and
//! plays them in turn on the textbook, the front without a machine, each design alone (including those of
//! `--more`), with `--out-of-order` on cores that execute the instructions, and all designs of `--designs` together on as many threads as there are cores. Prints JSON in
//! nanoseconds per reference: for one thread, the processor time as the sum over batches of the minimum over
//! rounds (which suppresses interference); for all together, the minimum wall-clock time. The misses of the
//! textbook and of `base4k` must be equal.

mod textbook;

use std::time::Instant;

use octavo_machine::designs::DesignSpec;
use octavo_machine::{Sim, SimConfig, Timing};
use octavo_trace::formats::{OpenOptions, open};
use octavo_trace::source::{Batch, Step};
use octavo_trace::{Counts, Decoder, WordConsumer};
use octavo_types::Instructions;
use serde_json::json;
use textbook::Textbook;

struct Options {
    references: u64,
    rounds: usize,
    machine: String,
    /// Alone, and together.
    designs: Vec<String>,
    /// Alone.
    more: Vec<String>,
    /// Whether cores execute the instructions.
    out_of_order: bool,
    files: Vec<String>,
}

/// The beginning of the first process image of a trace, as words.
struct Loaded {
    batches: Vec<Vec<u64>>,
    references: u64,
    instructions: u64,
}

impl Loaded {
    fn read(trace: &str, wanted: u64) -> Self {
        let mut source = open(trace, &OpenOptions::default()).expect("a trace");
        let (mut batch, mut decoder) = (Batch::default(), Decoder::default());
        let (mut counted, mut batches) = (Counts::default(), Vec::new());
        while counted.references() < wanted {
            match source.next(&mut batch).expect("a whole trace") {
                Some(Step::Batch(0)) => {
                    decoder.decode(&batch.words, &mut counted).expect("sound words");
                    batches.push(batch.words.clone());
                }
                Some(_) => {}
                None => break,
            }
        }
        Loaded { batches, references: counted.references(), instructions: counted.instructions }
    }

    /// Plays all; `least_ns` has the least time that each batch took so far.
    fn play(&self, consumer: &mut impl WordConsumer, least_ns: &mut Vec<u64>) {
        let mut decoder = Decoder::default();
        least_ns.resize(self.batches.len(), u64::MAX);
        let mut from = thread_ns();
        for (words, least) in self.batches.iter().zip(least_ns) {
            decoder.decode(words, consumer).expect("sound words");
            let to = thread_ns();
            *least = (to - from).min(*least);
            from = to;
        }
    }
}

fn main() {
    let options = options();
    let resolved = octavo_machine::resolve::<&str>(&options.machine, &[]);
    let machine = resolved.unwrap_or_else(|error| panic!("{error}")).into_config();
    let config = |designs: &[String]| SimConfig {
        machine: machine.clone(),
        start: machine.memory.start().expect("a preset's").into(),
        host_start: None,
        designs: designs.iter().map(|name| parse(name)).collect(),
        native_layout: false,
        warm_up_instructions: 0,
        is_fast_forwarded: false,
        interval_instructions: None,
        is_checked: false,
        timing: if options.out_of_order { Timing::OutOfOrder } else { Timing::Additive },
        instructions: Instructions::best(),
    };
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let mut programs = Vec::new();
    for file in &options.files {
        let loaded = Loaded::read(file, options.references);
        let alone: Vec<&String> = options.designs.iter().chain(&options.more).collect();
        let mut times = vec![Vec::new(); alone.len() + 3];
        let mut together = Vec::new();
        for _ in 0..options.rounds {
            loaded.play(&mut Counts::default(), &mut times[0]);
            let mut textbook = Textbook::new(&machine);
            loaded.play(&mut textbook, &mut times[1]);
            let mut front = Sim::new(&config(&[])).expect("no machines");
            loaded.play(&mut front, &mut times[2]);
            for (design, times) in alone.iter().copied().zip(&mut times[3..]) {
                let mut sim = Sim::new(&config(std::slice::from_ref(design))).expect("a machine");
                one_thread.install(|| loaded.play(&mut sim, times));
                sim.finish();
                if design == "base4k" {
                    compare(&textbook, &sim);
                }
            }
            let mut sim = Sim::new(&config(&options.designs)).expect("machines");
            let from = Instant::now();
            loaded.play(&mut sim, &mut Vec::new());
            sim.finish();
            together.push(from.elapsed().as_nanos() as u64);
        }
        let per_reference = |ns: u64| ns as f64 / loaded.references as f64;
        let mut sums = times.iter().map(|times| per_reference(times.iter().sum()));
        let mut next = || sums.next().expect("as many");
        let (decoding, textbook, front) = (next(), next(), next());
        let designs: serde_json::Map<_, _> =
            alone.iter().map(|&name| (name.clone(), json!(next()))).collect();
        programs.push(json!({
            "trace": file,
            "references": loaded.references,
            "instructions": loaded.instructions,
            "decoding": decoding,
            "textbook": textbook,
            "front": front,
            "designs": designs,
            "together": per_reference(together.into_iter().min().expect("a round")),
        }));
        eprintln!("{}", programs[programs.len() - 1]);
    }
    println!("{}", serde_json::to_string_pretty(&programs).expect("numbers and names"));
}

fn parse(name: &str) -> DesignSpec {
    DesignSpec::parse(name).unwrap_or_else(|error| panic!("{error}"))
}

fn compare(textbook: &Textbook, sim: &Sim) {
    let counters = sim.machines()[0].counters();
    let walker = [("walks", textbook.walks), ("references", textbook.reads)];
    for (counter, expected) in walker {
        assert_eq!(counters.get("walker", counter), Some(expected), "walker {counter}");
    }
    for (component, expected) in textbook.misses() {
        assert_eq!(counters.get(component, "misses"), Some(expected), "{component} misses");
    }
}

fn options() -> Options {
    let mut options = Options {
        references: 32_000_000,
        rounds: 3,
        machine: "skylake".to_owned(),
        designs: vec!["base4k".to_owned(), "thp".to_owned()],
        more: Vec::new(),
        out_of_order: false,
        files: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--references" => options.references = value().parse().expect("a number"),
            "--rounds" => options.rounds = value().parse().expect("a number"),
            "--machine" => options.machine = value(),
            "--designs" => options.designs = names(&value()),
            "--out-of-order" => options.out_of_order = true,
            "--more" => options.more = names(&value()),
            _ => options.files.push(argument),
        }
    }
    assert!(options.rounds > 0 && !options.files.is_empty(), "rounds, and traces");
    options
}

fn names(text: &str) -> Vec<String> {
    text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}

/// Processor time of this thread: other people's work on the machine counts little.
fn thread_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a timespec to write to.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0, "every Linux has this clock");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
