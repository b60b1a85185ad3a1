//! The cost of the live study of `octavo run` with its default settings: ten page sizes, and the TLBs of a machine.
//!
//!     study_speed [--references N] [--rounds N] [--machine NAME] FILE.oct …
//!
//! The first references of each trace (32M by default) are held in memory as words; every round decodes and
//! plays them, on one thread. Prints JSON: for each trace, nanoseconds of processor time per reference, the
//! sum over batches of the minimum over rounds (which suppresses interference), with and without the machine,
//! and of decoding and counting alone.

#[path = "../../octavo-trace/examples/words/mod.rs"]
mod words;

use octavo_config::DesignTables;
use octavo_curves::{MachineTlbs, Sizes, Study, StudyConfig};
use octavo_trace::Counts;
use octavo_types::PageSize;
use serde_json::json;
use words::Words;

/// A study without a machine, or with its TLBs and the bytes of its second-level cache.
fn study(machine: Option<(&MachineTlbs, u64)>) -> Study {
    Study::new(&StudyConfig {
        sizes: Sizes::new((12..=21).filter_map(PageSize::from_log2).collect()),
        fetch_levels: vec![64],
        data_levels: vec![64],
        machine: machine.map(|(tlbs, _)| tlbs.clone()),
        core_cache_bytes: machine.map(|(_, bytes)| bytes),
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
        let words = Words::read(file, references);
        let references = words.counts.references();
        let mut times = [const { Vec::new() }; 3];
        let mut misses = 0;
        for _ in 0..rounds {
            words.play(&mut Counts::default(), &mut times[0]);
            words.play(&mut study(None), &mut times[1]);
            let mut study = study(Some((&tlbs, config.cache.l2.bytes)));
            words.play(&mut study, &mut times[2]);
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
