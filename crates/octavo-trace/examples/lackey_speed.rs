//! How fast Lackey's text is read, against a plain parser: `lackey_speed [--rounds N] FILE …`.
//!
//! Both read the same warm file, in alternation; ours parses into batches that are not decoded.
//! Prints a line of JSON per text, with medians: wall-clock time, and the processor time of all
//! threads with the system's part, which other programs on the machine disturb less. Ours reads
//! the file on a second thread.

mod timing;

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::path::Path;

use octavo_trace::formats::FORMATS;
use octavo_trace::source::{Batch, Input, InputOptions};
use timing::median;

/// The straightforward parser: counts instructions and data references line by line.
fn plain(path: &str) -> (u64, u64) {
    let mut text = BufReader::with_capacity(1 << 16, File::open(path).expect("a readable file"));
    let (mut instructions, mut data) = (0, 0);
    let mut line = String::new();
    while text.read_line(&mut line).expect("text") > 0 {
        if !line.starts_with("==") {
            let (label, rest) = line.trim_end().split_at(3);
            let mut fields = rest.split(',');
            let addr = u64::from_str_radix(fields.next().expect("an address"), 16);
            let size = fields.next().expect("a size").parse::<u16>();
            black_box((addr.expect("hexadecimal"), size.expect("a number")));
            if label == "I  " {
                instructions += 1;
            } else {
                data += 1;
            }
        }
        line.clear();
    }
    (instructions, data)
}

/// Reads batches; returns how many words they hold.
fn ours(path: &str) -> usize {
    let lackey = FORMATS.iter().find(|format| format.name == "lackey").expect("it is listed");
    let input = Input::open(Path::new(path), InputOptions::default());
    let mut source = (lackey.open)(input.expect("a readable file")).expect("Lackey's text");
    let mut batch = Batch::default();
    let mut words = 0;
    while source.next(&mut batch).expect("Lackey's text").is_some() {
        words += black_box(&batch.words).len();
    }
    words
}

/// Nanoseconds by the clock on the wall, and of processor time that the process has used.
fn now_ns() -> [f64; 2] {
    [libc::CLOCK_MONOTONIC, libc::CLOCK_PROCESS_CPUTIME_ID].map(|clock| {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the time is this function's own.
        let status = unsafe { libc::clock_gettime(clock, &raw mut time) };
        assert_eq!(status, 0, "Linux has this clock");
        time.tv_sec as f64 * 1e9 + time.tv_nsec as f64
    })
}

/// The time of `work` by both clocks.
fn timed<T>(work: impl FnOnce() -> T) -> [f64; 2] {
    let [wall, cpu] = now_ns();
    black_box(work());
    let [wall_after, cpu_after] = now_ns();
    [wall_after - wall, cpu_after - cpu]
}

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
    for path in files {
        let lines = BufReader::new(File::open(&path).expect("a readable file"));
        let lines = lines.split(b'\n').count() as f64;
        let (mut plain_ns, mut our_ns) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            plain_ns.push(timed(|| plain(&path)));
            our_ns.push(timed(|| ours(&path)));
        }
        let median_of = |times: &[[f64; 2]], clock: usize| {
            median(times.iter().map(|both| both[clock] / lines).collect())
        };
        let least = |times: &[[f64; 2]]| {
            times.iter().map(|[wall, _]| wall / lines).fold(f64::INFINITY, f64::min)
        };
        let line = serde_json::json!({
            "text": path,
            "lines": lines,
            "plain_nanoseconds": median_of(&plain_ns, 0),
            "nanoseconds": median_of(&our_ns, 0),
            "ratio": median_of(&plain_ns, 0) / median_of(&our_ns, 0),
            "least_plain_nanoseconds": least(&plain_ns),
            "least_nanoseconds": least(&our_ns),
            "plain_cpu_nanoseconds": median_of(&plain_ns, 1),
            "cpu_nanoseconds": median_of(&our_ns, 1),
            "cpu_ratio": median_of(&plain_ns, 1) / median_of(&our_ns, 1),
        });
        println!("{line}");
    }
}
