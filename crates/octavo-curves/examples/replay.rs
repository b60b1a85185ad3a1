//! How fast the study is on words captured from the ring: `replay FILE [ROUNDS]`.
//!
//! The file holds chunks as the tracer wrote them, each after its length in words.

use std::time::Instant;

use octavo_curves::{Sizes, Study, StudyConfig};
use octavo_trace::{Decoder, Observer};
use octavo_types::PageSize;

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("usage: replay FILE [ROUNDS]");
    let rounds: usize = args.next().map_or(3, |rounds| rounds.parse().expect("a number"));
    let bytes = std::fs::read(path).expect("the file can be read");
    let words: Vec<u64> =
        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let sizes = (12..=21).filter_map(PageSize::from_log2).collect();
    let config = StudyConfig {
        sizes: Sizes::new(sizes),
        fetch_levels: vec![64],
        data_levels: vec![64],
        native_layout: true,
    };
    for _ in 0..rounds {
        let mut study = Study::new(&config);
        let mut decoder = Decoder::default();
        let begun = Instant::now();
        let mut rest = &words[..];
        while let [count, tail @ ..] = rest {
            let (chunk, after) = tail.split_at(*count as usize);
            decoder.decode(chunk, &mut study, |study, start| study.started(start)).unwrap();
            rest = after;
        }
        let seconds = begun.elapsed().as_secs_f64();
        let references = study.counts().references();
        println!(
            "{:.1} M references, {:.2} ns each, {:.2} ns a data reference",
            references as f64 / 1e6,
            seconds * 1e9 / references as f64,
            seconds * 1e9 / (study.counts().loads + study.counts().stores) as f64,
        );
    }
}
