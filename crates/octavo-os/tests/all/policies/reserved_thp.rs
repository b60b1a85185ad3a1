//! Huge pages by reservation.

use octavo_os::frames::{Order, Owner};
use octavo_os::policy::{ReservedThp, ReservedThpConfig};
use octavo_os::{ProcessId, base_pages};
use octavo_types::PageSize;
use proptest::prelude::*;

use super::machine::{Machine, Source, map, ops};

const FRAMES: u64 = 1 << 15;
const FIRST: ProcessId = ProcessId(0);

fn machine(promotion_threshold_percent: u8) -> Machine {
    let config = ReservedThpConfig { promotion_threshold_percent, ..ReservedThpConfig::default() };
    let sizes = [PageSize::BASE, PageSize::HUGE];
    Machine::new(FRAMES, Order::LINUX, &sizes, Box::new(ReservedThp::new(config)))
}

/// The mapped sizes in base pages, and the reserved and data frames.
fn state(machine: &Machine) -> (Vec<u64>, u64, u64) {
    let memory = machine.os.memory();
    let leaves = memory.leaves(FIRST, &(0..u64::MAX));
    let sizes = leaves.iter().map(|leaf| base_pages(leaf.size)).collect();
    (sizes, memory.frames.used_frames(Owner::Reserved), machine.data_frames())
}

#[test]
fn fully_touched_reservation_is_promoted_in_place() {
    let mut machine = machine(100);
    machine.event(FIRST, &map(1000, 1024, Source::Anonymous));
    machine.touch(FIRST, 1300, true);
    assert_eq!(state(&machine), (vec![1], 511, 1));
    for page in (1024..1536).rev().filter(|page| *page != 1024) {
        machine.touch(FIRST, page, true);
    }
    assert_eq!(state(&machine), (vec![1; 511], 1, 511));
    machine.touch(FIRST, 1024, true);
    assert_eq!(state(&machine), (vec![512], 0, 512));
    let counters = machine.os.memory().counters;
    assert_eq!((counters.promotions, counters.bytes_copied), (1, 0));
    assert_eq!(counters.shootdowns, 1, "of the way to the table of its parts, which is gone");
    // The ends of the mapping hold no aligned 2 MiB.
    machine.touch(FIRST, 1000, true);
    machine.touch(FIRST, 1536, true);
    assert_eq!(state(&machine), (vec![1, 512, 1], 0, 514));
}

#[test]
fn ranges_are_runs_of_contiguous_touched_pages() {
    let config = ReservedThpConfig { ranges: true, ..ReservedThpConfig::default() };
    let sizes = [PageSize::BASE, PageSize::HUGE];
    let mut machine =
        Machine::new(FRAMES, Order::LINUX, &sizes, Box::new(ReservedThp::new(config)));
    machine.event(FIRST, &map(1024, 512, Source::Anonymous));
    let ranges = |machine: &Machine| {
        let ranges = machine.os.memory().process(FIRST).table.ranges().unwrap();
        ranges.iter().map(|range| (range.pages.start, range.pages.end)).collect::<Vec<_>>()
    };
    for page in [1024, 1026, 1025] {
        machine.touch(FIRST, page, true);
    }
    assert_eq!(ranges(&machine), [(1024, 1027)]);
    machine.touch(FIRST, 1100, true);
    assert_eq!(ranges(&machine), [(1024, 1027), (1100, 1101)]);
    (1024..1536).for_each(|page| machine.touch(FIRST, page, true));
    assert_eq!(ranges(&machine), [(1024, 1536)], "a huge page is in one range");
}

#[test]
fn promotion_below_full_use_clears_the_rest() {
    let mut machine = machine(75);
    machine.event(FIRST, &map(1024, 512, Source::Anonymous));
    (1024..1024 + 383).for_each(|page| machine.touch(FIRST, page, true));
    assert_eq!(state(&machine), (vec![1; 383], 129, 383));
    machine.touch(FIRST, 1500, true);
    assert_eq!(state(&machine), (vec![512], 0, 512));
    assert_eq!(machine.os.memory().counters.bytes_mapped_untouched, 128 * 4096);
    assert_eq!(machine.os.memory().counters.bytes_zeroed, 512 * 4096);
}

#[test]
fn base_pages_are_used_without_a_free_block() {
    let mut machine = machine(100);
    let foreign = Owner::Background { movable: false };
    while machine.os.memory_mut().frames.allocate(Order::HUGE, foreign).is_ok() {}
    machine.event(FIRST, &map(1024, 512, Source::Anonymous));
    machine.touch(FIRST, 1024, true);
    assert_eq!(state(&machine), (vec![1], 0, 1));
    assert_eq!(machine.os.memory().counters.fallbacks, 1);
}

proptest! {
    #![proptest_config(octavo_oracle::cases(100))]

    #[test]
    fn frames_are_conserved(ops in ops(), percent in 50u8..=100) {
        machine(percent).play(&ops, 0)?;
    }
}
