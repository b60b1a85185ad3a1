//! The base pages that a TLB looks up, as requests to a cache simulator:
//!
//!     curves_requests [--references N] [--stream fetch|data|all] [--drop-repeats] TRACE OUT
//!
//! OUT is in libCacheSim's `oracleGeneral` format: records of 24 bytes, little-endian, each with the
//! time (4 bytes), the page number (8), the size 1 (4), and -2 for "never again", which only optimal
//! caches use (8). `--drop-repeats` omits requests for the same page as the request before, which hit
//! in any TLB. A reference that spans two pages makes two requests. Prints the numbers of references
//! and of requests.

mod loaded;

use std::fs::File;
use std::io::{BufWriter, Write};

use loaded::{Loaded, each_reference};
use octavo_curves::Stream;
use octavo_trace::StreamConsumer;
use octavo_types::{Consumer, Event, PageSize, Segment, VirtAddr};

fn main() {
    let (mut references, mut stream, mut drop_repeats) = (u64::MAX, Stream::All, false);
    let mut files = Vec::new();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().unwrap_or_else(|| panic!("{argument} needs a value"));
        match argument.as_str() {
            "--references" => references = value().parse().expect("a number"),
            "--stream" => stream = loaded::stream(&value()).1,
            "--drop-repeats" => drop_repeats = true,
            _ => files.push(argument),
        }
    }
    let [trace, out] = &files[..] else { panic!("a trace, and where the requests go") };
    let out = BufWriter::new(File::create(out).expect("a file that can be written"));
    let mut requests =
        Requests { stream, drop_repeats, out, last: None, references: 0, requests: 0 };
    Loaded::read(trace, references).play(&mut requests);
    requests.out.flush().expect("room on the disk");
    let Requests { references, requests, .. } = requests;
    println!("{}", serde_json::json!({"references": references, "requests": requests}));
}

struct Requests {
    stream: Stream,
    drop_repeats: bool,
    out: BufWriter<File>,
    last: Option<u64>,
    references: u64,
    requests: u64,
}

impl Requests {
    fn reference(&mut self, first: u64, last: u64) {
        self.request(first);
        if last != first {
            self.request(last);
        }
        self.references += 1;
    }

    fn request(&mut self, page: u64) {
        if self.drop_repeats && self.last.replace(page) == Some(page) {
            return;
        }
        let mut record = [0; 24];
        record[..4].copy_from_slice(&(self.requests as u32).to_le_bytes());
        record[4..12].copy_from_slice(&page.to_le_bytes());
        record[12..16].copy_from_slice(&1u32.to_le_bytes());
        record[16..].copy_from_slice(&(-2i64).to_le_bytes());
        self.out.write_all(&record).expect("room on the disk");
        self.requests += 1;
    }
}

impl Consumer for Requests {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        let stream = self.stream;
        let log2 = PageSize::BASE.log2();
        each_reference(stream, segment, addresses, log2, |first, last| self.reference(first, last));
    }

    fn event(&mut self, _: &Event) {}
}

impl StreamConsumer for Requests {}
