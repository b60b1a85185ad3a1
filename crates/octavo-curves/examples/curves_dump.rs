//! All fully and set-associative TLBs on a trace, for comparison with other simulators:
//!
//!     curves_dump [--references N] [--sizes 4KiB,64KiB,…] [--stream fetch|data|all] [--no-sets] TRACE
//!
//! Addresses stay as traced. Prints JSON: for each stream, or the given one, its references, and at each page size
//! `stack`, the misses with 1, 2, … entries, and `sets`, the misses with 2^s sets of w ways at
//! `[s][w - 1]`.

mod loaded;

use loaded::{Loaded, STREAMS};
use octavo_curves::{Curves, CurvesConfig, MAX_ENTRIES, SetIndex, Sizes};
use octavo_types::PageSize;
use serde_json::{Map, Value, json};

fn main() {
    let (mut references, mut sizes, mut file) = (u64::MAX, vec![PageSize::BASE], None);
    let (mut streams, mut with_sets) = (STREAMS.to_vec(), true);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--references" => references = value().parse().expect("a number"),
            "--sizes" => {
                let parse = |size: &str| size.parse().unwrap_or_else(|error| panic!("{error}"));
                sizes = value().split(',').map(parse).collect();
            }
            "--stream" => streams = vec![loaded::stream(&value())],
            "--no-sets" => with_sets = false,
            _ => file = Some(argument),
        }
    }
    let loaded = Loaded::read(&file.expect("a trace"), references);
    let wanted = streams.iter().map(|(_, stream)| *stream).collect();
    let mut config = CurvesConfig::nothing(Sizes::new(sizes), wanted);
    config.max_entries = MAX_ENTRIES;
    if with_sets {
        config.set_indexes = vec![SetIndex::Bits { from: 0 }];
    }
    let curves = loaded.run(Curves::new(&config));

    let mut document = Map::new();
    for ((name, _), result) in streams.iter().zip(curves.results()) {
        let mut sizes = Map::new();
        for (at, stack) in result.stack.iter().enumerate() {
            let sets = result.sets.get(at).map(|sets| &sets.misses);
            let both = json!({"stack": stack.misses, "sets": sets});
            sizes.insert(stack.page_size.bytes().to_string(), both);
        }
        let stream = json!({"references": result.references, "sizes": sizes});
        document.insert((*name).into(), stream);
    }
    println!("{}", Value::Object(document));
}
