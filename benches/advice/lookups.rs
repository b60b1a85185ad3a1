//! Random look-ups in a HashMap of strings: lookups ENTRIES LOOKUPS

use std::collections::HashMap;
use std::io::Read;
use std::time::Instant;

fn main() {
    let number = |at: usize| std::env::args().nth(at).and_then(|word| word.parse().ok());
    let (Some(entries), Some(lookups)) = (number(1), number(2)) else {
        eprintln!("usage: lookups ENTRIES LOOKUPS");
        std::process::exit(2);
    };
    let table: HashMap<u32, String> = (0..entries).map(|i| (i * 7, format!("name {i}"))).collect();
    println!("ready");
    std::io::stdin().read_exact(&mut [0]).expect("a byte that starts the measurement");
    let mut seed = 2_463_534_242_u32;
    let mut sum = 0;
    let start = Instant::now();
    for _ in 0..lookups {
        seed ^= seed << 13;
        seed ^= seed >> 17;
        seed ^= seed << 5;
        sum += table[&(seed % entries * 7)].len();
    }
    let taken = start.elapsed().as_nanos() as f64;
    println!("{:.2} ns per operation, sum {sum}", taken / f64::from(lookups));
}
