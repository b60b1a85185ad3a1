//! The cost of the live study, as `octavo run` does it by default: ten page sizes, and the TLBs of a machine.
//!
//!     study_speed [--references N] [--rounds N] [--machine NAME] FILE.oct …
//!
//! The first references of each trace (32M by default) are held in memory as words; every round decodes and
//! plays them, on one thread. Prints JSON: for each trace, nanoseconds of processor time per reference, the
//! sum over batches of the minimum over rounds (which suppresses interference), with and without the machine,
//! and of decoding and counting alone.

mod loaded;

use loaded::thread_ns;
use octavo_config::DesignTables;
use octavo_curves::{MachineTlbs, Sizes, Study, StudyConfig};
use octavo_trace::formats::{OpenOptions, open};
use octavo_trace::source::{Batch, Step};
use octavo_trace::{Counts, Decoder, WordConsumer};
use octavo_types::PageSize;
use serde_json::json;

fn read(trace: &str, wanted: u64) -> (Vec<Vec<u64>>, u64) {
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
    (batches, counted.references())
}

fn play(batches: &[Vec<u64>], consumer: &mut impl WordConsumer, least_ns: &mut Vec<u64>) {
    let mut decoder = Decoder::default();
    least_ns.resize(batches.len(), u64::MAX);
    let mut from = thread_ns();
    for (words, least) in batches.iter().zip(least_ns) {
        decoder.decode(words, consumer).expect("sound words");
        let to = thread_ns();
        *least = (to - from).min(*least);
        from = to;
    }
}

fn study(machine: Option<&MachineTlbs>) -> Study {
    Study::new(&StudyConfig {
        sizes: Sizes::new((12..=21).filter_map(PageSize::from_log2).collect()),
        fetch_levels: vec![64],
        data_levels: vec![64],
        machine: machine.cloned(),
        native_layout: true,
        allocation_wrappers: Vec::new(),
    })
}

fn main() {
    let (mut references, mut rounds, mut machine) = (32_000_000, 5, "zen5".to_owned());
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--references" => references = value().parse().expect("a number"),
            "--rounds" => rounds = value().parse().expect("a number"),
            "--machine" => machine = value(),
            _ => files.push(argument),
        }
    }
    let resolved = DesignTables::default().resolve::<&str>(&machine, &[]);
    let config = resolved.unwrap_or_else(|error| panic!("{error}")).into_config();
    let tlbs = MachineTlbs::of(&config.tlb).unwrap_or_else(|error| panic!("{error}"));
    let mut programs = Vec::new();
    for file in &files {
        let (batches, references) = read(file, references);
        let mut times = [const { Vec::new() }; 3];
        let mut misses = 0;
        for _ in 0..rounds {
            play(&batches, &mut Counts::default(), &mut times[0]);
            play(&batches, &mut study(None), &mut times[1]);
            let mut study = study(Some(&tlbs));
            play(&batches, &mut study, &mut times[2]);
            misses = study.first_level_misses().iter().sum();
        }
        let [decoding, ideal, whole] =
            times.map(|times| times.iter().sum::<u64>() as f64 / references as f64);
        programs.push(json!({
            "trace": file,
            "references": references,
            "misses_of_all_sizes": misses,
            "decoding": decoding,
            "study": ideal,
            "study_with_machine": whole,
        }));
    }
    println!("{}", serde_json::to_string_pretty(&programs).expect("numbers and names"));
}
