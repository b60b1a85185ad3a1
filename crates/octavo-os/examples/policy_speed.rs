//! Measures the cost of first touches under each policy, in nanoseconds per page of a 4 GiB mapping, touched
//! sequentially and in an order without locality: `cargo run --release --example policy_speed`.

use std::time::Instant;

use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::policy::{POLICIES, PolicyEntry};
use octavo_os::{Memory, Os};
use octavo_types::{
    Access, AddrRange, Event, MapSource, PageNumber, PageSize, Protection, VirtAddr,
};

const PAGES: u64 = 1 << 20;

/// Maps and touches all pages, each `step` pages behind the one before. Returns nanoseconds per page, and faults.
fn touch(entry: &PolicyEntry, step: u64) -> (f64, u64) {
    let policy = (entry.usual)();
    let shape = MemoryShape::new(PAGES * 2, Order::LARGEST).expect("8 GiB");
    let mut memory = Memory::new(Frames::new(shape), &policy.required_sizes(), Format::default());
    let process = memory.spawn().expect("a frame");
    let mut os = Os::new(memory, policy.build());
    let began = Instant::now();
    let map = Event::Map {
        range: AddrRange::new(VirtAddr::new(PAGES << PageSize::BASE.log2()), PAGES << 12),
        protection: Protection::from_bits(3),
        source: MapSource::Anonymous,
        flags: 0,
    };
    os.event(process, &map).expect("memory");
    let mut page = 0;
    for _ in 0..PAGES {
        page = (page + step) % PAGES;
        let touched = PageNumber::new(PAGES + page);
        if os.memory().process(process).table.leaf(touched).is_none() {
            os.fault(process, touched, Access::Store).expect("memory");
        }
    }
    (began.elapsed().as_secs_f64() * 1e9 / PAGES as f64, os.memory().counters.faults)
}

fn main() {
    println!("{:14} {:>12} {:>12} {:>10}", "policy", "in order", "scattered", "faults");
    for entry in POLICIES {
        let (in_order, faults) = touch(entry, 1);
        let (scattered, _) = touch(entry, 654_321);
        println!("{:14} {in_order:9.0} ns {scattered:9.0} ns {faults:10}", entry.name);
    }
}
