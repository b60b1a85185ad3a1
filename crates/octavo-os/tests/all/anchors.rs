//! Anchors: their lengths, what keeps them correct, and the choice of their distance.

use crate::small::{R, RW, page, vma_of};
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::{AnchorFormat, Format};
use octavo_os::policy::BasePages;
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{FrameNumber, PageSize};

/// A memory with one process, anchors at this distance, and the first of 64 contiguous frames.
fn memory(distance_log2: u8, choose_every_instructions: u64) -> (Memory, ProcessId, FrameNumber) {
    let frames = Frames::new(MemoryShape::new(1 << 14, Order::LARGEST).unwrap());
    let anchors =
        AnchorFormat { first_log2: distance_log2, largest_log2: 16, choose_every_instructions };
    let format = Format { anchors: Some(anchors), ..Format::default() };
    let mut memory = Memory::new(frames, &[PageSize::HUGE], format);
    let process = memory.spawn().unwrap();
    let first = memory.frames.allocate(Order::new(6).unwrap(), Owner::Data).unwrap();
    (memory, process, first)
}

/// Maps base pages from page 512 on, at the frames of the same places after `first`, in one operation.
fn map(memory: &mut Memory, process: ProcessId, first: FrameNumber, places: std::ops::Range<u64>) {
    for at in places {
        memory.map(process, page(512 + at), PageSize::BASE, first.plus(at), RW).unwrap();
    }
}

/// The lengths of the anchors of the first three blocks of eight pages.
fn lengths(memory: &Memory, process: ProcessId) -> [u64; 3] {
    [512, 520, 528].map(|at| memory.process(process).table.anchored_pages(page(at)))
}

/// The number of anchors written by an operation and at its end.
fn cost(memory: &mut Memory, operation: impl FnOnce(&mut Memory)) -> u64 {
    let before = (memory.counters.anchors_written, memory.counters.entries_written);
    operation(memory);
    let _ = memory.take_invalidations();
    assert_eq!(memory.check_anchors(), Ok(()));
    let written = memory.counters.anchors_written - before.0;
    assert!(memory.counters.entries_written >= before.1 + written, "they are entries");
    written
}

#[test]
fn anchor_is_written_with_its_own_entry_or_for_the_page_that_extends_it() {
    let (mut memory, process, first) = memory(3, 0);
    // The first page is its own anchor; each of the next seven lengthens it.
    let written = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]
        .map(|at| cost(&mut memory, |memory| map(memory, process, first, at..at + 1)));
    assert_eq!(written, [0, 1, 1, 1, 1, 1, 1, 1, 0, 1]);
    assert_eq!(lengths(&memory, process), [8, 2, 0]);
    // A page after a gap lengthens no anchor.
    assert_eq!(cost(&mut memory, |memory| map(memory, process, first, 11..12)), 0);
    // The page in the gap lengthens the anchor to all four pages.
    assert_eq!(cost(&mut memory, |memory| map(memory, process, first, 10..11)), 1);
    assert_eq!(lengths(&memory, process), [8, 4, 0]);
}

#[test]
fn run_that_begins_inside_a_block_has_no_anchor_there() {
    let (mut memory, process, first) = memory(3, 0);
    assert_eq!(cost(&mut memory, |memory| map(memory, process, first, 4..20)), 0);
    assert_eq!(lengths(&memory, process), [0, 8, 4]);
    assert_eq!(cost(&mut memory, |memory| map(memory, process, first, 0..4)), 0);
    assert_eq!(lengths(&memory, process), [8, 8, 4]);
}

#[test]
fn changes_shorten_anchors_before_them() {
    let (mut memory, process, first) = memory(3, 0);
    map(&mut memory, process, first, 0..24);
    let _ = memory.take_invalidations();
    assert_eq!(lengths(&memory, process), [8, 8, 8]);
    assert_eq!(cost(&mut memory, |memory| memory.release(process, &(514..515)).unwrap()), 1);
    assert_eq!(lengths(&memory, process), [2, 8, 8]);
    // The end of the second block is unmapped, with the anchor of the third.
    assert_eq!(cost(&mut memory, |memory| memory.release(process, &(526..529)).unwrap()), 1);
    assert_eq!(lengths(&memory, process), [2, 6, 0]);
    let protect = |memory: &mut Memory, rights| {
        cost(memory, |memory| memory.protect_parts(process, &[(521..522, vma_of(rights))]).unwrap())
    };
    assert_eq!((protect(&mut memory, R), lengths(&memory, process)), (1, [2, 1, 0]));
    assert_eq!((protect(&mut memory, RW), lengths(&memory, process)), (1, [2, 6, 0]));
    // A page gets another frame.
    let other = memory.frames.allocate(Order::BASE, Owner::Data).unwrap();
    let moved = cost(&mut memory, |memory| {
        memory.map(process, page(523), PageSize::BASE, other, RW).unwrap()
    });
    assert_eq!((moved, lengths(&memory, process)), (1, [2, 3, 0]));
}

#[test]
fn huge_page_is_an_anchor_where_it_begins() {
    let (mut memory, process, _) = memory(10, 0);
    let block = memory.frames.allocate(Order::LINUX, Owner::Data).unwrap();
    for at in [0, 512] {
        memory.map(process, page(1024 + at), PageSize::HUGE, block.plus(at), RW).unwrap();
    }
    let _ = memory.take_invalidations();
    let anchored = |memory: &Memory, at| memory.process(process).table.anchored_pages(page(at));
    assert_eq!((anchored(&memory, 1024), anchored(&memory, 1536)), (1024, 0));
    assert_eq!(cost(&mut memory, |memory| memory.release(process, &(1600..1601)).unwrap()), 1);
    assert_eq!(anchored(&memory, 1024), 576);
    // With a shorter distance, there are no entries inside the first page.
    memory.process_mut(process).table.set_anchor_log2(6);
    let all = [1024, 1088, 1536, 1600, 1664].map(|at| anchored(&memory, at));
    assert_eq!(all, [64, 0, 64, 0, 64]);
}

#[test]
fn choice_rewrites_anchors_and_invalidates_all_pages() {
    let (mut memory, process, first) = memory(0, 100);
    // Three chunks of 16 pages: an anchor each with a distance of 16.
    for at in [0, 16, 32] {
        map(&mut memory, process, first.plus(at), 0..16);
        memory.move_pages(process, &(512..528), &(1024 + 2 * at..1040 + 2 * at)).unwrap();
    }
    let _ = memory.take_invalidations();
    let mut os = Os::new(memory, Box::new(BasePages));
    os.background(10);
    let counted = |os: &Os| {
        let memory = os.memory();
        let log2 = memory.process(process).table.anchor_log2();
        (
            log2,
            memory.anchor_distance(),
            memory.counters.anchors_written,
            memory.counters.anchor_distance_changes,
        )
    };
    assert_eq!(counted(&os), (4, Some(16), 3, 1));
    let invalidated = os.take_invalidations();
    assert_eq!((invalidated.len(), invalidated[0].pages.clone()), (1, 0..u64::MAX));
    assert_eq!(os.memory().process(process).table.anchored_pages(page(1056)), 16);
    // The distance is chosen again after 100 instructions.
    os.memory_mut().release(process, &(1024..1039)).unwrap();
    os.memory_mut().release(process, &(1056..1071)).unwrap();
    os.memory_mut().release(process, &(1096..1104)).unwrap();
    let _ = os.take_invalidations();
    os.background(109);
    assert_eq!(counted(&os).0, 4);
    os.background(110);
    assert_eq!((counted(&os).0, counted(&os).3), (3, 2), "a chunk of 8 and two single pages");
    // A child begins with the distance of its parent.
    let child = os.fork(process).unwrap();
    let _ = os.take_invalidations();
    let table = &os.memory().process(child).table;
    assert_eq!((table.anchor_log2(), table.anchored_pages(page(1088))), (3, 8));
}
