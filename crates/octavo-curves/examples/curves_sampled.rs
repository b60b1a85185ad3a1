//! How often the intervals of `Curves` from a sample of the pages hold the exact value, and the time of
//! a pass:
//!
//!     curves_sampled [--references N] [--seeds N] [--rates 8,64,…] [--stream fetch|data|all]
//!                    FILE.oct …
//!
//! The first references of each trace (32M by default) are held in memory as words. Then the exact engine
//! makes a pass over them, and for each rate N (one page of N) and each seed a sampling engine makes
//! one. Prints JSON: for each trace, rate and page size, and for some numbers of entries and each
//! window, the share of the seeds with an estimate, and for these the share whose interval held the
//! exact number, the average ratio of the interval's width to the exact number, and the root mean
//! square of the relative error; and the processor time of passes in nanoseconds per reference.

mod loaded;

use loaded::Loaded;
use octavo_curves::{Curves, CurvesConfig, Estimate, PageSample, Sizes, Stream, StreamCurves};
use octavo_types::PageSize;
use serde_json::{Value, json};

/// The windows of the working sets.
const WINDOWS_REFS: [u64; 3] = [100_000, 1_000_000, 10_000_000];
/// Numbers of entries; those too small for the sample are left out.
const ENTRIES: [u32; 9] = [16, 32, 64, 128, 256, 512, 1024, 1536, 4096];

struct Options {
    references: u64,
    seeds: u64,
    rates: Vec<u32>,
    stream: Stream,
    files: Vec<String>,
}

fn main() {
    let options = options();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let mut programs = Vec::new();
    for file in &options.files {
        let loaded = Loaded::read(file, options.references);
        programs.push(one_thread.install(|| measure(file, &loaded, &options)));
        eprintln!("{file}");
    }
    println!("{}", serde_json::to_string_pretty(&programs).expect("numbers and names"));
}

fn options() -> Options {
    let mut options = Options {
        references: 32_000_000,
        seeds: 20,
        rates: vec![8, 64],
        stream: Stream::All,
        files: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--references" => options.references = value().parse().expect("a number"),
            "--seeds" => options.seeds = value().parse().expect("a number"),
            "--rates" => {
                let read = |number: &str| number.parse().expect("a number");
                options.rates = value().split(',').map(read).collect();
            }
            "--stream" => options.stream = loaded::stream(&value()).1,
            _ => options.files.push(argument),
        }
    }
    assert!(options.seeds > 0 && !options.files.is_empty(), "seeds, and traces");
    options
}

fn measure(file: &str, loaded: &Loaded, options: &Options) -> Value {
    let sizes = (12..=22).map(|log2| PageSize::from_log2(log2).expect("at most 1 GiB"));
    let mut config = CurvesConfig::nothing(Sizes::new(sizes.collect()), vec![options.stream]);
    let splitting_ns = pass(loaded, &config).1;
    (config.max_entries, config.windows_refs) = (4096, WINDOWS_REFS.to_vec());
    let (exact, exact_ns) = pass(loaded, &config);
    let rates = options.rates.iter().map(|rate| {
        let (mut samples, mut ns) = (Vec::new(), Vec::new());
        for seed in 1..=options.seeds {
            config.sample = Some(PageSample { rate: 1.0 / f64::from(*rate), seed });
            let (sample, pass_ns) = pass(loaded, &config);
            samples.push(sample);
            ns.push(pass_ns);
        }
        ns.sort_by(f64::total_cmp);
        json!({"one_of": rate, "ns": ns[ns.len() / 2], "numbers": compare(&exact, &samples)})
    });
    json!({
        "trace": file,
        "references": loaded.references(),
        "splitting_ns": splitting_ns,
        "exact_ns": exact_ns,
        "rates": rates.collect::<Vec<_>>(),
    })
}

/// The curves of a pass, and its processor time per reference.
fn pass(loaded: &Loaded, config: &CurvesConfig) -> (StreamCurves, f64) {
    let start_ns = loaded::timing::thread_ns();
    let curves = loaded.run(Curves::new(config));
    let ns = (loaded::timing::thread_ns() - start_ns) as f64 / loaded.references() as f64;
    (curves.results()[0].clone(), ns)
}

fn compare(exact: &StreamCurves, samples: &[StreamCurves]) -> Vec<Value> {
    let mut rows = Vec::new();
    for (number, stack) in exact.stack.iter().enumerate() {
        let sampled =
            || samples.iter().map(|curves| &curves.sampled.as_ref().expect("a sample")[number]);
        let kept: u64 = sampled().map(|size| size.kept_pages).sum();
        let mut row = |key: &str, value: u64, truth: f64, estimates: Vec<Option<Estimate>>| {
            let mut row = judge(truth, &estimates);
            row["page_size"] = json!(stack.page_size.bytes());
            row["pages"] = json!(stack.pages);
            row["kept_pages"] = json!(kept / samples.len() as u64);
            row[key] = json!(value);
            row["exact"] = json!(truth);
            rows.push(row);
        };
        for entries in ENTRIES.iter().filter(|entries| u64::from(**entries) < stack.pages) {
            let at = *entries as usize - 1;
            let estimates = sampled().map(|size| size.misses[at]).collect();
            row("entries", u64::from(*entries), stack.misses[at] as f64, estimates);
        }
        for (at, window) in WINDOWS_REFS.iter().enumerate() {
            let truth = exact.working_sets[number * WINDOWS_REFS.len() + at].page_refs as f64;
            let estimates = sampled().map(|size| size.working_sets[at].1).collect();
            row("window_refs", *window, truth, estimates);
        }
    }
    rows
}

fn judge(truth: f64, all: &[Option<Estimate>]) -> Value {
    let estimates: Vec<Estimate> = all.iter().flatten().copied().collect();
    let average = |value: &dyn Fn(&Estimate) -> f64| {
        (!estimates.is_empty())
            .then(|| estimates.iter().map(value).sum::<f64>() / estimates.len() as f64)
    };
    // Exact numbers are integers; estimates have rounding errors of a division.
    let slack = 1e-9 * truth;
    let holds =
        |estimate: &Estimate| (estimate.low - slack..=estimate.high + slack).contains(&truth);
    let square = |estimate: &Estimate| ((estimate.value - truth) / truth).powi(2);
    json!({
        "estimated": estimates.len() as f64 / all.len() as f64,
        "held": average(&|estimate| f64::from(u8::from(holds(estimate)))),
        "width": average(&|estimate| (estimate.high - estimate.low) / truth),
        "error": average(&square).map(f64::sqrt),
    })
}
