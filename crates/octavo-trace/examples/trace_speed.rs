//! Size and speed of native traces, beside a zstd file of the bare addresses of all references:
//!
//!     trace_speed [--rounds N] FILE.oct …
//!
//! Each round reads, in turn, the trace to batches and zstd's file of the same references as 8-byte
//! addresses (level 3) to memory, both from warm files, and writes the trace's words to chunks
//! again, on one thread. Prints a line of JSON a trace, with medians, and a hash of the chunks.

mod timing;

use std::collections::BTreeMap;
use std::fs::File;
use std::hint::black_box;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Instant;

use octavo_trace::formats::{OpenOptions, open};
use octavo_trace::native::CHUNK_WORDS;
use octavo_trace::native::codec::ChunkEncoder;
use octavo_trace::source::{Batch, Source, Step};
use octavo_trace::{Decoder, StreamConsumer};
use octavo_types::{Consumer, Event, ItemKind, Segment, VirtAddr};
use timing::median;
use twox_hash::XxHash3_64;

fn main() {
    let (mut rounds, mut files) = (5, Vec::new());
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        if argument == "--rounds" {
            rounds = arguments.next().and_then(|n| n.parse().ok()).expect("a number of rounds");
        } else {
            files.push(argument);
        }
    }
    for file in files {
        let peer = format!("{file}.addresses.zst");
        let references = write_addresses(&file, Path::new(&peer)) as f64;
        let (mut ours, mut zstds, mut writes) = (Vec::new(), Vec::new(), Vec::new());
        let chunks = chunks(&file);
        let mut hash = 0;
        for _ in 0..rounds {
            writes.push(seconds(|| hash = encode(&chunks)));
            ours.push(seconds(|| read_trace(&file)));
            zstds.push(seconds(|| read_zstd(&peer)));
        }
        let bytes = |path: &str| std::fs::metadata(path).expect("it is there").len() as f64;
        let line = serde_json::json!({
            "trace": file,
            "references": references,
            "bytes": bytes(&file),
            "bytes_per_reference": bytes(&file) / references,
            "references_per_second": references / median(ours),
            "references_encoded_per_second": references / median(writes),
            "chunks_xxh3": format!("{hash:016x}"),
            "zstd_bytes_per_reference": bytes(&peer) / references,
            "zstd_references_per_second": references / median(zstds),
        });
        println!("{line}");
        std::fs::remove_file(peer).expect("it was just made");
    }
}

fn source(file: &str) -> Box<dyn Source> {
    open(file, &OpenOptions::default()).expect("a trace")
}

fn read_trace(file: &str) {
    let (mut source, mut batch) = (source(file), Batch::default());
    while source.next(&mut batch).expect("a whole trace").is_some() {
        black_box(&batch.words);
    }
}

/// The words of each stream of a trace, in parts of the size of a chunk.
fn chunks(file: &str) -> BTreeMap<u32, Vec<Vec<u64>>> {
    let (mut source, mut batch) = (source(file), Batch::default());
    let mut streams: BTreeMap<u32, Vec<Vec<u64>>> = BTreeMap::new();
    while let Some(step) = source.next(&mut batch).expect("a whole trace") {
        let Step::Batch(stream) = step else { continue };
        let chunks = streams.entry(stream).or_default();
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK_WORDS => chunk.extend(&batch.words),
            _ => chunks.push(batch.words.clone()),
        }
    }
    streams
}

/// Encodes chunks, and returns a hash of their bytes.
fn encode(streams: &BTreeMap<u32, Vec<Vec<u64>>>) -> u64 {
    let (mut parts, mut hash) = ([Vec::new(), Vec::new()], 0);
    for chunks in streams.values() {
        let mut encoder = ChunkEncoder::default();
        for words in chunks {
            encoder.encode(words, &mut parts).expect("sound words");
            hash = parts.iter().fold(hash, |hash, part| XxHash3_64::oneshot_with_seed(hash, part));
        }
    }
    hash
}

fn read_zstd(file: &str) {
    let file = File::open(file).expect("it was just made");
    let mut decoder = zstd::Decoder::new(file).expect("zstd starts");
    let mut buffer = vec![0; 1 << 18];
    while decoder.read(&mut buffer).expect("zstd's data") > 0 {
        black_box(&buffer);
    }
}

/// Writes the addresses of all references, and returns their number.
fn write_addresses(file: &str, path: &Path) -> u64 {
    let out = File::create(path).expect("the directory can be written");
    let encoder = zstd::Encoder::new(out, 3).expect("zstd starts");
    let mut addresses = Addresses { encoder, buffer: Vec::new(), count: 0 };
    let (mut source, mut batch, mut decoders) = (source(file), Batch::default(), Vec::new());
    while let Some(step) = source.next(&mut batch).expect("a whole trace") {
        if let Step::Batch(stream) = step {
            let stream = stream as usize;
            if decoders.len() <= stream {
                decoders.resize_with(stream + 1, Decoder::default);
            }
            decoders[stream].decode(&batch.words, &mut addresses).expect("sound words");
        }
    }
    addresses.flush();
    addresses.encoder.finish().expect("the directory can be written");
    addresses.count
}

struct Addresses {
    encoder: zstd::Encoder<'static, File>,
    buffer: Vec<u8>,
    count: u64,
}

impl Addresses {
    fn flush(&mut self) {
        self.encoder.write_all(&self.buffer).expect("the directory can be written");
        self.buffer.clear();
    }
}

impl Consumer for Addresses {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let mut data = addresses.iter();
        for item in segment.items() {
            let (addr, times) = match item.kind {
                ItemKind::Fetch => (item.addr, 1),
                kind => (*data.next().expect("one each"), 1 + u64::from(kind == ItemKind::Modify)),
            };
            if item.guarded && addr == VirtAddr::NULL {
                continue;
            }
            for _ in 0..times {
                self.buffer.extend(addr.raw().to_le_bytes());
            }
            self.count += times;
        }
        if self.buffer.len() > 1 << 20 {
            self.flush();
        }
    }

    fn event(&mut self, _: &Event) {}
}

impl StreamConsumer for Addresses {}

fn seconds(run: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    run();
    begun.elapsed().as_secs_f64()
}
