//! Measures the time per reference of machines, beside a textbook simulator:
//!
//!     machine_speed [--references N] [--rounds N] [--designs base4k,thp,…] [--more spur,…]
//!                   [--machine NAME] [--out-of-order] FILE.oct …
//!
//! The first references of each trace (32M by default) are held in memory as words. Every round decodes and plays them
//! in turn on the textbook, on the front without a machine, on each design alone (those of `--more` included; designs
//! with `/` between them are simulated together on one thread), and on all designs of `--designs` together, on as many
//! threads as there are cores. `--out-of-order` simulates cores that execute the instructions.
//!
//! Prints nanoseconds per reference as JSON. One thread: processor time, the sum over batches of the minimum over
//! rounds (which suppresses interference). All together: the minimum of the wall-clock time. The misses of the textbook
//! and of `base4k` must be equal.

mod textbook;
#[path = "../../octavo-trace/examples/words/mod.rs"]
mod words;

use std::time::Instant;

use octavo_machine::designs::DesignSpec;
use octavo_machine::{Sim, SimConfig, Timing};
use octavo_trace::Counts;
use octavo_types::Instructions;
use serde_json::json;
use textbook::Textbook;
use words::Words;

struct Options {
    references: u64,
    rounds: usize,
    machine: String,
    /// Simulated alone, and all together.
    designs: Vec<String>,
    /// Simulated alone only.
    more: Vec<String>,
    /// Whether cores execute the instructions.
    out_of_order: bool,
    files: Vec<String>,
}

fn main() {
    let options = options();
    let resolved = octavo_machine::resolve::<&str>(&options.machine, &[]);
    let machine = resolved.unwrap_or_else(|error| panic!("{error}")).into_config();
    let config = |designs: &[String]| {
        let designs = designs.iter().map(|name| parse(name)).collect();
        let config = SimConfig::new(machine.clone(), designs, Instructions::best());
        let timing = if options.out_of_order { Timing::OutOfOrder } else { Timing::Additive };
        SimConfig { timing, ..config.expect("a preset's memory") }
    };
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let mut programs = Vec::new();
    for file in &options.files {
        let words = Words::read(file, options.references);
        let references = words.counts.references();
        let alone: Vec<&String> = options.designs.iter().chain(&options.more).collect();
        let mut times = vec![Vec::new(); alone.len() + 3];
        let mut together = Vec::new();
        for _ in 0..options.rounds {
            words.play(&mut Counts::default(), &mut times[0]);
            let mut textbook = Textbook::new(&machine);
            words.play(&mut textbook, &mut times[1]);
            let mut front = Sim::new(&config(&[])).expect("no machines");
            words.play(&mut front, &mut times[2]);
            for (design, times) in alone.iter().copied().zip(&mut times[3..]) {
                let set: Vec<String> = design.split('/').map(str::to_owned).collect();
                let mut sim = Sim::new(&config(&set)).expect("a machine");
                one_thread.install(|| words.play(&mut sim, times));
                sim.finish();
                if design == "base4k" {
                    compare(&textbook, &sim);
                }
            }
            let mut sim = Sim::new(&config(&options.designs)).expect("machines");
            let start = Instant::now();
            words.play(&mut sim, &mut Vec::new());
            sim.finish();
            together.push(start.elapsed().as_nanos() as u64);
        }
        let per_reference = |ns: u64| ns as f64 / references as f64;
        let mut sums = times.iter().map(|times| per_reference(times.iter().sum()));
        let mut next = || sums.next().expect("one per column");
        let (decoding, textbook, front) = (next(), next(), next());
        let designs: serde_json::Map<_, _> =
            alone.iter().map(|&name| (name.clone(), json!(next()))).collect();
        programs.push(json!({
            "trace": file,
            "references": references,
            "instructions": words.counts.instructions,
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
    assert!(
        options.rounds > 0 && !options.files.is_empty(),
        "at least one round and one trace are needed"
    );
    options
}

fn names(text: &str) -> Vec<String> {
    text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
