//! Same-page merging: pages that map the zero frame, effects on large pages, and stores.

use octavo_machine::designs::perforated::hole_filter;
use octavo_machine::designs::registry::policies;
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::Format;
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{
    Access, AddrRange, Event, MapSource, PageNumber, PageSize, Protection, VirtAddr,
};

fn page(raw: u64) -> PageNumber {
    PageNumber::new(raw)
}

fn started(policy: &str) -> (Os, ProcessId) {
    let frames = Frames::new(MemoryShape::new(8 * 512, Order::LINUX).unwrap());
    let format = Format { holes: Some(hole_filter), ..Format::default() };
    let memory = Memory::new(frames, &[PageSize::HUGE], format);
    let mut config = policies().parse(policy).unwrap();
    config.set("same_pages_every_instructions", "10").unwrap();
    let mut os = config.build(memory);
    let process = os.spawn().unwrap();
    let (protection, source) = (Protection::from_bits(3), MapSource::Anonymous);
    let range = AddrRange::new(VirtAddr::new(0), 4 << 21);
    os.event(process, &Event::Map { range, protection, source, flags: 2 }).unwrap();
    (os, process)
}

/// Loads from or stores to a page.
fn touch(os: &mut Os, process: ProcessId, at: u64, stores: bool) {
    let leaf = os.memory().process(process).table.leaf(page(at));
    if leaf.is_none_or(|leaf| stores && !leaf.rights.write) {
        os.fault(process, page(at), if stores { Access::Store } else { Access::Load }).unwrap();
    }
    os.memory_mut().process_mut(process).table.mark(page(at), stores);
    if stores {
        let frame = os.memory().process(process).table.leaf(page(at)).unwrap().frame_of(page(at));
        os.memory_mut().record_store(frame);
    }
    assert_eq!(os.memory().check(), Ok(()));
}

/// The numbers of data frames, merged pages, splits, and holes of the page at 512.
fn merge_counts(os: &Os, process: ProcessId) -> (u64, u64, u64, Option<u32>) {
    assert_eq!(os.memory().check(), Ok(()));
    let data = os.memory().frames.used_frames(Owner::Data);
    let holes = os.memory().process(process).table.holes_of(page(512));
    let holes = holes.map(|(_, holes)| holes.count());
    (data, os.memory().merged_pages(), os.memory().counters.splits, holes)
}

/// Touches all base pages of a region, stores to three of them, and lets the operating system merge.
fn merged(policy: &str) -> (Os, ProcessId) {
    let (mut os, process) = started(policy);
    (512..1024).for_each(|at| touch(&mut os, process, at, false));
    [600, 601, 1023].into_iter().for_each(|at| touch(&mut os, process, at, true));
    os.take_invalidations();
    os.background(9);
    assert_eq!(os.memory().merged_pages(), 0, "not yet");
    os.background(10);
    (os, process)
}

/// All pages except the three that were stored to map the zero frame.
#[test]
fn merging_parts_punches_holes() {
    let (os, process) = merged("perforated:same_pages=all");
    assert_eq!(merge_counts(&os, process), (3 + 1, 509, 0, Some(509)));
    let (os, process) = merged("thp:same_pages=all");
    assert_eq!(merge_counts(&os, process), (3 + 1, 509, 1, None));
    let (os, process) = merged("perforated:same_pages=base");
    assert_eq!(merge_counts(&os, process), (512, 0, 0, None), "large pages are left alone");
    let (os, process) = merged("base:same_pages=base");
    assert_eq!(merge_counts(&os, process), (3 + 1, 509, 0, None));
    let (os, process) = merged("base:same_pages=never");
    assert_eq!(merge_counts(&os, process), (512, 0, 0, None));
}

/// A hole is patched if its frame is free; otherwise it stays a hole.
#[test]
fn store_to_a_merged_part_patches_the_hole() {
    let (mut os, process) = merged("perforated:same_pages=all");
    let region = os.memory().process(process).table.holes_of(page(512)).unwrap().0;
    os.take_invalidations();
    let before = os.memory().counters;
    touch(&mut os, process, 700, true);
    assert_eq!(os.take_invalidations().len(), 1, "one shootdown, of the page and its bit");
    let counters = os.memory().counters;
    assert_eq!(counters.patches - before.patches, 1);
    assert_eq!((counters.pages_unmerged, counters.bytes_copied - before.bytes_copied), (1, 4096));
    assert_eq!(merge_counts(&os, process), (3 + 1 + 1, 508, 0, Some(508)));
    let leaf = |os: &Os, at| os.memory().process(process).table.leaf(page(at)).unwrap();
    assert_eq!(leaf(&os, 700).frame, region.frame_of(page(700)));
    let place = region.frame_of(page(701));
    let taken = Owner::Background { movable: false };
    assert!(os.memory_mut().frames.allocate_at(place, Order::BASE, taken));
    touch(&mut os, process, 701, true);
    assert_ne!(leaf(&os, 701).frame, place);
    assert_eq!(merge_counts(&os, process), (3 + 1 + 2, 507, 0, Some(508)));
    // Non-zero pages are not merged, and merged pages are not merged twice.
    os.background(100);
    assert_eq!(merge_counts(&os, process).1, 507);
}

/// After a fork, merged pages stay merged in both processes, and a store unmerges only the page of the storing process.
#[test]
fn forks_share_merged_pages() {
    let (mut os, process) = merged("perforated:same_pages=all");
    let child = os.fork(process).unwrap();
    assert_eq!(merge_counts(&os, child).1, 2 * 509);
    touch(&mut os, child, 700, true);
    assert_eq!(merge_counts(&os, process).1, 2 * 509 - 1);
    assert!(!os.memory().process(process).table.leaf(page(700)).unwrap().rights.write);
    os.end(process);
    os.end(child);
    assert_eq!(os.memory().frames.used_frames(Owner::Data), 1, "the frame of zeros stays");
    assert_eq!(os.memory().check(), Ok(()));
}

/// Pages that were stored to stay so when they are copied: two pages of a region are stored to, and then all pages
/// move.
#[test]
fn moved_pages_keep_their_stored_state() {
    let (mut os, process) = started("thp:same_pages=all:scan_every_instructions=1");
    let protect = |os: &mut Os, bits| {
        let range = AddrRange::new(VirtAddr::new(512 << 12), 1 << 12);
        let protection = Protection::from_bits(bits);
        os.event(process, &Event::Protect { range, protection }).unwrap();
    };
    // The mapping has no room for the huge page yet.
    protect(&mut os, 1);
    for at in [600, 700] {
        touch(&mut os, process, at, true);
    }
    touch(&mut os, process, 800, false);
    protect(&mut os, 3);
    os.background(1);
    assert_eq!(os.memory().pages(PageSize::HUGE), 1);
    os.background(10);
    assert_eq!(merge_counts(&os, process), (2 + 1, 510, 1, None));
}
