//! Fills memory through Rust's allocator, prints "ready" and waits.
fn main() {
    let kept: Vec<Box<[u64; 12]>> = (0..1_800_000).map(|at| Box::new([at; 12])).collect();
    println!("ready");
    std::thread::sleep(std::time::Duration::from_secs(600));
    println!("{}", kept.len());
}
