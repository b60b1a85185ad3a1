//! How fast Lackey's text is read, against a plain parser: `lackey_speed FILE [ROUNDS]`.
//!
//! Both read the same text from memory, by turns; the ratio is of the best rounds.

use std::hint::black_box;
use std::io::BufRead;
use std::time::Instant;

use octavo_trace::read_lackey;
use octavo_types::{Consumer, Event, Segment, VirtAddr};

/// Adds up what it is given, so that nothing is optimised away.
#[derive(Default)]
struct Sum {
    instructions: u64,
    addresses: u64,
}

impl Consumer for Sum {
    fn segment(&mut self, segment: &Segment, addresses: &[VirtAddr]) {
        self.instructions += u64::from(segment.instructions());
        self.addresses += addresses.len() as u64;
    }

    fn event(&mut self, _: &Event) {}
}

/// What anyone would write first.
fn plain(mut text: &[u8]) -> (u64, u64) {
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

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("usage: lackey_speed FILE [ROUNDS]");
    let rounds = arguments.next().map_or(3, |rounds| rounds.parse().expect("a number of rounds"));
    let text = std::fs::read(path).expect("a readable file");
    let lines = memchr::memchr_iter(b'\n', &text).count() as f64;
    let (mut best_plain, mut best_ours) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..rounds {
        let start = Instant::now();
        let counted = plain(&text);
        best_plain = best_plain.min(start.elapsed().as_nanos() as f64 / lines);

        let start = Instant::now();
        let mut sum = Sum::default();
        read_lackey(text.as_slice(), &mut sum, |_| false).expect("Lackey's text");
        best_ours = best_ours.min(start.elapsed().as_nanos() as f64 / lines);
        assert_eq!(counted, (sum.instructions, sum.addresses));
    }
    println!(
        "{lines} lines: plain {best_plain:.2} ns a line, read_lackey {best_ours:.2}: {:.1} times",
        best_plain / best_ours
    );
}
