//! Measures the cost of page faults:
//!
//!     os_speed [--pages N] [--rounds N]
//!
//! A process touches N pages for the first time, in order and in random order, with base pages and
//! with transparent huge pages; then it forks, and unmaps all. Prints medians of wall-clock time in
//! nanoseconds: per fault, and per page of a fork and of the unmapping.

use std::time::Instant;

use octavo_os::frames::{Frames, MemoryShape, Order};
use octavo_os::page_table::Format;
use octavo_os::policy::{BasePages, Policy, Thp, ThpConfig};
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{
    Access, AddrRange, Event, MapSource, PageNumber, PageSize, Protection, VirtAddr,
};

/// The first touched base page, behind a hundred other mappings.
const START: u64 = 1 << 27;

fn system(policy: Box<dyn Policy>, pages: u64) -> (Os, ProcessId) {
    let shape = MemoryShape::new(2 * pages + (1 << 14), Order::LINUX).unwrap();
    let memory = Memory::new(Frames::new(shape), &[PageSize::HUGE], Format::default());
    let mut os = Os::new(memory, policy);
    let process = os.spawn().unwrap();
    let map = |os: &mut Os, at: u64, pages: u64| {
        let range = AddrRange::new(VirtAddr::new(at << 12), pages << 12);
        let protection = Protection::from_bits(3);
        let source = MapSource::Anonymous;
        os.event(process, &Event::Map { range, protection, source, flags: 2 }).unwrap();
    };
    (0..100).for_each(|number| map(&mut os, number * 16, 8));
    map(&mut os, START, pages);
    (os, process)
}

/// Nanoseconds of `work` for each of `count` items.
fn timed(count: u64, work: impl FnOnce()) -> f64 {
    let begin = Instant::now();
    work();
    begin.elapsed().as_nanos() as f64 / count as f64
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}

fn main() {
    let option = |name: &str, default: u64| {
        let mut words = std::env::args().skip_while(|word| word != name);
        words.nth(1).map_or(default, |text| text.parse().expect("a number"))
    };
    let (pages, rounds) = (option("--pages", 1 << 20), option("--rounds", 5));
    let in_order: Vec<u64> = (0..pages).collect();
    // An odd factor below a power of two gives each page once.
    let mask = pages.next_power_of_two() - 1;
    let at_random: Vec<u64> = (0..=mask)
        .map(|number| number.wrapping_mul(0x9e37_79b9_7f4a_7c15) & mask)
        .filter(|page| *page < pages)
        .collect();
    println!("{:<28} {:>10} {:>10} {:>10}", "ns", "touch", "fork", "unmap");
    for (name, order) in [("in order", &in_order), ("at random", &at_random)] {
        for (policy_name, huge) in [("base", false), ("thp", true)] {
            let mut times = [Vec::new(), Vec::new(), Vec::new()];
            for _ in 0..rounds {
                let policy: Box<dyn Policy> = if huge {
                    Box::new(Thp::new(ThpConfig::default()))
                } else {
                    Box::new(BasePages)
                };
                let (mut os, process) = system(policy, pages);
                times[0].push(timed(pages, || {
                    for page in order {
                        let page = PageNumber::new(START + page);
                        if os.memory().process(process).table.leaf(page).is_none() {
                            os.fault(process, page, Access::Store).unwrap();
                        }
                    }
                }));
                // The second fork is measured: the first one also makes the parent's pages read-only.
                let first = os.fork(process).unwrap();
                os.end(first);
                let mut child = first;
                times[1].push(timed(pages, || child = os.fork(process).unwrap()));
                os.end(child);
                let range = AddrRange::new(VirtAddr::new(START << 12), pages << 12);
                times[2].push(timed(pages, || os.event(process, &Event::Unmap { range }).unwrap()));
            }
            let [touch, fork, unmap] = times.map(median);
            println!(
                "{:<28} {touch:>10.1} {fork:>10.1} {unmap:>10.1}",
                format!("{policy_name}, {name}")
            );
        }
    }
}
