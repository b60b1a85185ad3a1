//! Eager paging, and the resulting ranges.

use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::{Format, Range};
use octavo_os::policy::{Eager, EagerConfig};
use octavo_os::{Memory, ProcessId, base_pages};
use octavo_types::{Event, FrameNumber, PageNumber, PageSize, Protection};
use proptest::prelude::*;

use super::machine::{Machine, Source, map, ops, range};

const FRAMES: u64 = 1 << 16;
const FIRST: ProcessId = ProcessId(0);

fn machine(largest: PageSize) -> Machine {
    let sizes = [PageSize::BASE, PageSize::HUGE];
    Machine::new(FRAMES, Order::LARGEST, &sizes, Box::new(Eager::new(EagerConfig { largest })))
}

/// The ranges of a process, computed page by page.
fn plain_ranges(memory: &Memory, process: ProcessId) -> Vec<Range> {
    let mut ranges: Vec<Range> = Vec::new();
    for leaf in memory.leaves(process, &(0..u64::MAX)) {
        for page in leaf.page.raw()..leaf.page.raw() + base_pages(leaf.size) {
            let (frame, rights) = (leaf.frame_of(PageNumber::new(page)), leaf.rights);
            match ranges.last_mut() {
                Some(last)
                    if last.pages.end == page
                        && last.rights == rights
                        && last.frame.raw() + (page - last.pages.start) == frame.raw() =>
                {
                    last.pages.end += 1;
                }
                _ => ranges.push(Range { pages: page..page + 1, frame, rights }),
            }
        }
    }
    ranges
}

fn ranges(machine: &Machine) -> Vec<Range> {
    machine.os.memory().process(FIRST).table.ranges().unwrap().iter().collect()
}

fn shape(ranges: &[Range]) -> Vec<(u64, u64)> {
    ranges.iter().map(|range| (range.pages.start, range.pages.end - range.pages.start)).collect()
}

#[test]
fn eager_mapping_is_one_range_in_free_memory() {
    for (largest, huge_pages) in [(PageSize::BASE, 0), (PageSize::HUGE, 5)] {
        let mut machine = machine(largest);
        machine.event(FIRST, &map(1004, 3001, Source::Anonymous));
        assert_eq!(shape(&ranges(&machine)), [(1004, 3001)]);
        let table = &machine.os.memory().process(FIRST).table;
        assert!(table.ranges().unwrap().find(PageNumber::new(1003)).is_none());
        let found = table.ranges().unwrap().find(PageNumber::new(4004)).unwrap();
        assert_eq!(found.pages, 1004..4005);
        let leaves = machine.os.memory().leaves(FIRST, &(0..u64::MAX));
        let huge = leaves.iter().filter(|leaf| leaf.size == PageSize::HUGE).count() as u64;
        assert_eq!((huge, leaves.len() as u64), (huge_pages, 3001 - huge * 511));
        (1004..4005).for_each(|page| machine.touch(FIRST, page, true));
        assert_eq!(machine.os.memory().counters.faults, 0, "all was there");
        assert_eq!(machine.os.memory().counters.bytes_zeroed, 3001 * 4096);
    }
}

/// 300 frames are free from 1000 on, and 110 from 3000 on.
#[test]
fn eager_paging_uses_the_largest_free_blocks_and_their_successors() {
    let mut machine = machine(PageSize::BASE);
    let memory = machine.os.memory_mut();
    let foreign = Owner::Background { movable: false };
    while memory.frames.allocate(Order::BASE, foreign).is_ok() {}
    memory.frames.free_range(FrameNumber::new(1000), 300);
    memory.frames.free_range(FrameNumber::new(3000), 110);
    // Page tables use the smallest blocks.
    machine.event(FIRST, &map(7, 380, Source::Anonymous));
    let found = ranges(&machine);
    assert_eq!(found[0].frame, FrameNumber::new(1024), "256 frames are the largest block");
    assert_eq!(found[0].pages, 7..7 + 272, "16 more lie behind them, then page tables");
    assert_eq!(found[1].frame, FrameNumber::new(3008));
    assert!(found.len() <= 4, "{found:?}");
    machine.check().unwrap();
}

#[test]
fn oversized_mappings_are_paged_on_demand() {
    let mut machine = machine(PageSize::HUGE);
    machine.event(FIRST, &map(0, FRAMES + 1, Source::Anonymous));
    assert_eq!((ranges(&machine), machine.data_frames()), (vec![], 0));
    machine.touch(FIRST, 77, true);
    assert_eq!(shape(&ranges(&machine)), [(77, 1)]);
}

#[test]
fn inaccessible_mappings_are_backed_once_accessible() {
    let mut machine = machine(PageSize::HUGE);
    let none = Protection::default();
    let closed = match map(1024, 600, Source::Anonymous) {
        Event::Map { range, source, flags, .. } => {
            Event::Map { range, source, flags, protection: none }
        }
        _ => unreachable!(),
    };
    machine.event(FIRST, &closed);
    assert_eq!(machine.data_frames(), 0);
    let protection = Protection::from_bits(3);
    machine.event(FIRST, &Event::Protect { range: range(1024, 33), protection });
    assert_eq!(shape(&ranges(&machine)), [(1024, 33)]);
}

proptest! {
    #![proptest_config(octavo_oracle::cases(100))]

    #[test]
    fn frames_are_conserved_and_ranges_match_the_page_table(
        ops in ops(),
        huge in any::<bool>(),
        holes in prop::collection::vec(any::<bool>(), 64),
    ) {
        let mut frames = Frames::new(MemoryShape::new(FRAMES, Order::LARGEST).unwrap());
        for (number, _) in holes.iter().enumerate().filter(|(_, hole)| **hole) {
            let at = FrameNumber::new(number as u64 * 333);
            frames.allocate_at(at, Order::BASE, Owner::Background { movable: false });
        }
        let sizes = [PageSize::BASE, PageSize::HUGE];
        let largest = if huge { PageSize::HUGE } else { PageSize::BASE };
        let policy = Box::new(Eager::new(EagerConfig { largest }));
        let mut machine = Machine::with(Memory::new(frames, &sizes, Format::default()), policy);
        for op in &ops {
            machine.step(op);
            let memory = machine.os.memory();
            for &process in &machine.live {
                if let Some(ranges) = memory.process(process).table.ranges() {
                    let kept: Vec<_> = ranges.iter().collect();
                    prop_assert_eq!(kept, plain_ranges(memory, process));
                }
            }
        }
        machine.play(&[], 0)?;
    }
}
