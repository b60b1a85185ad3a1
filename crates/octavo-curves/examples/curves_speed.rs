//! The cost of each kernel of `Curves`, by instruction set:
//!
//!     curves_speed [--references N] [--rounds N] [--stream fetch|data|all]
//!                  [--instructions portable,avx2,…] [--kernels stack 1,sets,…] FILE.oct …
//!
//! The first references of each trace (32M by default) are held in memory as words. Then each round makes
//! a pass over them for each kernel and each instruction set in turn, on one thread. Prints JSON: for
//! each trace, medians in nanoseconds of processor time per reference, of the whole pass and net of a
//! pass that only splits the stream into touches, and their geometric means over all traces.
//!
//! "one TLB" is a single set-associative TLB fed with touches. "one TLB plain" is a straightforward
//! implementation of the same TLB, which looks up the page of every reference and uses no special
//! instructions. "one cache plain" is such an implementation of a cache of 32 KiB with 8 ways and lines
//! of 64 bytes. "caches 1" are all caches with such lines, "caches 4" all caches with lines of 16 to
//! 128 bytes.

mod loaded;
mod plain_sets;

use std::hint::black_box;

use loaded::Loaded;
use loaded::timing::{median, thread_ns};
use octavo_curves::{
    Curves, CurvesConfig, LineSize, MAX_ENTRIES, MAX_SETS_LOG2, SetIndex, SingleSets, Sizes,
    Stream, TwoSizesConfig,
};
use octavo_types::{Instructions, PageSize};
use plain_sets::PlainSets;
use serde_json::{Value, json};

/// The windows of the working sets: the default of `octavo curves`.
const WINDOWS_REFS: [u64; 7] =
    [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000];
/// Shorter windows, which cost more: most gaps of most programs are longer than these.
const SHORT_WINDOWS_REFS: [u64; 7] =
    [100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];
/// The window of the kernels with one window, and the window of the policy.
const ONE_WINDOW_REFS: u64 = 1_000_000;
const POLICY_WINDOW_REFS: u64 = 10_000_000;
/// The single TLB: 2^6 sets of 4 ways.
const ONE_TLB: (u8, usize) = (6, 4);
/// The single cache: 2^6 sets of 8 ways, 32 KiB in lines of 64 bytes.
const ONE_CACHE: (u8, usize) = (6, 8);
const LINE: u64 = 64;
/// Net times below this are noise, and are raised to this, so that ratios stay finite.
const LEAST_NS: f64 = 0.05;

/// The kernels that are timed; splitting is first.
const KERNELS: [&str; 14] = [
    "splitting",
    "one TLB plain",
    "one TLB",
    "stack 1",
    "stack 7",
    "stack 11",
    "sets",
    "working sets 1",
    "working sets 63",
    "working sets 63 short",
    "two sizes",
    "one cache plain",
    "caches 1",
    "caches 4",
];

struct Options {
    references: u64,
    rounds: usize,
    stream_name: &'static str,
    stream: Stream,
    instructions: Vec<Instructions>,
    kernels: Vec<&'static str>,
    files: Vec<String>,
}

/// Medians of a kernel with some instructions on one trace.
struct Timed {
    kernel: &'static str,
    instructions: Instructions,
    ns: f64,
    net_ns: f64,
}

fn main() {
    let options = options();
    let one_thread = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    let (mut programs, mut all) = (Vec::new(), Vec::new());
    for file in &options.files {
        let loaded = Loaded::read(file, options.references);
        let timed = one_thread.install(|| measure(&loaded, &options));
        programs.push(json!({
            "trace": file,
            "references": loaded.references(),
            "kernels": timed.iter().map(row).collect::<Vec<_>>(),
        }));
        eprintln!("{file}");
        all.push(timed);
    }
    let means: Vec<Timed> = (0..all[0].len())
        .map(|at| Timed {
            ns: geometric_mean(all.iter().map(|timed| timed[at].ns)),
            net_ns: geometric_mean(all.iter().map(|timed| timed[at].net_ns.max(LEAST_NS))),
            ..all[0][at]
        })
        .collect();
    let document = json!({
        "rounds": options.rounds,
        "stream": options.stream_name,
        "programs": programs,
        "geometric_means": means.iter().map(row).collect::<Vec<_>>(),
    });
    println!("{}", serde_json::to_string_pretty(&document).expect("numbers and names"));
}

fn options() -> Options {
    let mut options = Options {
        references: 32_000_000,
        rounds: 3,
        stream_name: "all",
        stream: Stream::All,
        instructions: Instructions::all(),
        kernels: KERNELS.to_vec(),
        files: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--references" => options.references = value().parse().expect("a number"),
            "--rounds" => options.rounds = value().parse().expect("a number"),
            "--stream" => (options.stream_name, options.stream) = loaded::stream(&value()),
            "--instructions" => {
                let parse = |name: &str| name.parse().unwrap_or_else(|error| panic!("{error}"));
                options.instructions = value().split(',').map(parse).collect();
            }
            "--kernels" => {
                // Selected by name or prefix. Splitting is always measured, since the others are net of it.
                let wanted = value();
                let is_wanted = |name: &str| {
                    let mut wanted = wanted.split(',');
                    wanted.any(|wanted| match KERNELS.contains(&wanted) {
                        true => name == wanted,
                        false => name.starts_with(wanted),
                    })
                };
                options.kernels.retain(|name| *name == KERNELS[0] || is_wanted(name));
            }
            _ => options.files.push(argument),
        }
    }
    assert!(options.rounds > 0 && !options.files.is_empty(), "rounds, and traces");
    options
}

fn row(timed: &Timed) -> Value {
    let Timed { kernel, instructions, ns, net_ns } = timed;
    let round = |ns: f64| (ns * 1e4).round() / 1e4;
    json!({
        "kernel": kernel,
        "instructions": instructions.name(),
        "ns_per_reference": round(*ns),
        "net_ns_per_reference": round(*net_ns),
    })
}

fn measure(loaded: &Loaded, options: &Options) -> Vec<Timed> {
    let mut contenders: Vec<(&'static str, Instructions, Vec<f64>)> = Vec::new();
    for kernel in &options.kernels {
        for instructions in &options.instructions {
            contenders.push((kernel, *instructions, Vec::new()));
        }
    }
    for _ in 0..options.rounds {
        for (kernel, instructions, times) in &mut contenders {
            times.push(pass_ns(loaded, kernel, options.stream, *instructions));
        }
    }
    let mut medians = Vec::new();
    for (kernel, instructions, times) in contenders {
        let ns = median(times) / loaded.references() as f64;
        medians.push(Timed { kernel, instructions, ns, net_ns: ns });
    }
    // Splitting uses no special instructions, so that one median serves all instruction sets.
    let splits = medians.iter().filter(|timed| timed.kernel == KERNELS[0]);
    let split_ns = median(splits.map(|timed| timed.ns).collect());
    for timed in medians.iter_mut().filter(|timed| timed.kernel != KERNELS[0]) {
        timed.net_ns -= split_ns;
    }
    medians
}

fn pass_ns(loaded: &Loaded, kernel: &str, stream: Stream, instructions: Instructions) -> f64 {
    let start_ns = thread_ns();
    let (sets_log2, ways) = ONE_TLB;
    match kernel {
        "one TLB plain" => {
            let mut tlb = PlainSets::new(stream, PageSize::BASE.log2(), sets_log2, ways);
            loaded.play(&mut tlb);
            black_box(tlb.misses);
        }
        "one cache plain" => {
            let (sets_log2, ways) = ONE_CACHE;
            let mut cache = PlainSets::new(stream, LINE.ilog2() as u8, sets_log2, ways);
            loaded.play(&mut cache);
            black_box(cache.misses);
        }
        "one TLB" => {
            let index = SetIndex::Bits { from: 0 };
            let mut tlb =
                SingleSets::new(stream, PageSize::BASE, index, sets_log2, ways, instructions);
            loaded.play(&mut tlb);
            black_box(tlb.misses());
        }
        _ => {
            let config = config(kernel, stream, instructions);
            black_box(loaded.run(Curves::new(&config)));
        }
    }
    (thread_ns() - start_ns) as f64
}

fn config(kernel: &str, stream: Stream, instructions: Instructions) -> CurvesConfig {
    let from_base = |count: u8| -> Vec<PageSize> {
        let sizes = (12..12 + count).map(PageSize::from_log2);
        sizes.map(|size| size.expect("at most 1 GiB")).collect()
    };
    let mut config = CurvesConfig {
        instructions,
        ..CurvesConfig::nothing(Sizes::new(from_base(1)), vec![stream])
    };
    let all_entries = MAX_ENTRIES;
    match kernel {
        "splitting" => {}
        "stack 1" => config.max_entries = all_entries,
        "stack 7" => {
            (config.sizes, config.max_entries) = (Sizes::new(from_base(7)), all_entries);
        }
        "stack 11" => {
            (config.sizes, config.max_entries) = (Sizes::new(from_base(11)), all_entries);
        }
        "sets" => config.set_indexes = vec![SetIndex::Bits { from: 0 }],
        "working sets 1" => config.windows_refs = vec![ONE_WINDOW_REFS],
        "working sets 63" => {
            config.sizes = Sizes::new(from_base(9));
            config.windows_refs = WINDOWS_REFS.to_vec();
        }
        "working sets 63 short" => {
            config.sizes = Sizes::new(from_base(9));
            config.windows_refs = SHORT_WINDOWS_REFS.to_vec();
        }
        "caches 1" => config.line_sizes = LineSize::new(LINE).into_iter().collect(),
        "caches 4" => {
            config.line_sizes = [16, 32, 64, 128].into_iter().filter_map(LineSize::new).collect();
        }
        "two sizes" => {
            let (small, large) = (from_base(1)[0], from_base(4)[3]);
            config.sizes = Sizes::new(vec![small, large]);
            config.two_sizes = vec![TwoSizesConfig {
                small,
                large,
                window_refs: POLICY_WINDOW_REFS,
                threshold_blocks: 4,
                max_entries: all_entries,
                max_sets_log2: MAX_SETS_LOG2,
                windows_refs: Vec::new(),
            }];
        }
        _ => unreachable!("no such kernel: {kernel}"),
    }
    config
}

fn geometric_mean(values: impl ExactSizeIterator<Item = f64>) -> f64 {
    let count = values.len() as f64;
    (values.map(f64::ln).sum::<f64>() / count).exp()
}
