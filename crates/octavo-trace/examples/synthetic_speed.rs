//! How fast synthetic traces are made: `synthetic_speed [ROUNDS]`.
//!
//! Each trace is read batch by batch, as by an engine. As a lower bound, a plain loop fills batches
//! of the same size with the addresses of a strided walk. All take turns, and the best round of
//! each is shown.

use std::hint::black_box;
use std::time::Instant;

use octavo_trace::source::{BATCH_WORDS, Batch};
use octavo_trace::synthetic::{Spec, parse};

const REFERENCES: u64 = 20_000_000;

const MIX: &str = "
kind = 'mix'
[[part]]
kind = 'sequential'
weight = 3
[[part]]
kind = 'uniform'
";

fn traces() -> Vec<(&'static str, Spec)> {
    let uris = [
        ("sequential", "synth:sequential?bytes=1GiB"),
        ("sequential, stores 0.3", "synth:sequential?bytes=1GiB&stores=0.3"),
        ("sequential, 1 MiB of code", "synth:sequential?bytes=1GiB&code=1MiB"),
        ("strided", "synth:strided?bytes=1GiB"),
        ("columns", "synth:columns?bytes=1GiB"),
        ("uniform", "synth:uniform?bytes=1GiB"),
        ("gups", "synth:gups?bytes=1GiB"),
        ("pointer-chase", "synth:pointer-chase?bytes=1GiB"),
        ("pointer-chase, odd size", "synth:pointer-chase?bytes=700MiB"),
        ("zipf, together", "synth:zipf?bytes=1GiB&placement=together"),
        ("zipf", "synth:zipf?bytes=1GiB"),
    ];
    let mut traces: Vec<_> = uris.map(|(name, uri)| (name, parse(uri).expect("a URI"))).into();
    traces.push(("mix", Spec::from_toml(MIX).expect("a mix")));
    traces
}

/// Nanoseconds a reference.
fn read(spec: &Spec) -> f64 {
    let mut source = spec.source();
    let mut batch = Batch::default();
    let start = Instant::now();
    while source.progress().done < REFERENCES {
        source.next(&mut batch).expect("no failure");
        black_box(&batch.words);
    }
    start.elapsed().as_nanos() as f64 / source.progress().done as f64
}

fn plain() -> f64 {
    let mut words = Vec::with_capacity(BATCH_WORDS);
    let (mut done, mut offset) = (0u64, 0u64);
    let start = Instant::now();
    while done < REFERENCES {
        words.clear();
        while words.len() < BATCH_WORDS {
            words.push(0x7fff_0000_0000 + offset);
            offset = if offset + 4096 < 1 << 30 { offset + 4096 } else { 0 };
        }
        black_box(&words);
        done += BATCH_WORDS as u64;
    }
    start.elapsed().as_nanos() as f64 / done as f64
}

fn main() {
    let rounds = std::env::args().nth(1).map_or(3, |rounds| rounds.parse().expect("a number"));
    let traces = traces();
    let mut best = vec![f64::INFINITY; traces.len() + 1];
    for _ in 0..rounds {
        best[0] = best[0].min(plain());
        for ((_, spec), best) in traces.iter().zip(&mut best[1..]) {
            *best = best.min(read(spec));
        }
    }
    for (name, nanoseconds) in
        std::iter::once("a plain loop").chain(traces.iter().map(|t| t.0)).zip(best)
    {
        println!("{name:26} {nanoseconds:5.2} ns a reference, {:5.0} M/s", 1000.0 / nanoseconds);
    }
}
