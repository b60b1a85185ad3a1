//! Atomicity of operations when memory is short.

use crate::small::{R, RW, SIZE_32K, leaf, memory, page, place, vma, vma_of};
use octavo_os::frames::{Order, Owner};
use octavo_os::policy::BasePages;
use octavo_os::vmas::ObjectId;
use octavo_os::{CopyOnWrite, Memory, Os, ProcessId, base_pages};
use octavo_types::{Access, AddrRange, Event, PageSize, VirtAddr};

/// Allocates all but `frames` free frames.
fn leave(memory: &mut Memory, frames: u64) {
    let foreign = Owner::Background { movable: false };
    while memory.frames.free_frames() > frames {
        memory.frames.allocate(Order::BASE, foreign).unwrap();
    }
}

#[test]
fn whole_page_copy_needs_a_free_block() {
    let (mut memory, process) = memory(600);
    place(&mut memory, process, 512, PageSize::HUGE);
    memory.fork(process).unwrap();
    memory.copy_on_write(process, page(512), RW, CopyOnWrite::Whole).unwrap();
    assert_eq!((memory.counters.bytes_copied, memory.counters.splits), (4096, 1));
}

/// Nodes for the rest of a large page use the released frames.
#[test]
fn part_of_a_large_page_is_released_without_free_frames() {
    let (mut memory, process) = memory(1 << 12);
    place(&mut memory, process, 512, PageSize::HUGE);
    leave(&mut memory, 0);
    memory.release(process, &(600..601)).unwrap();
    assert_eq!(
        memory.leaves(process, &(512..1024)).iter().map(|l| base_pages(l.size)).sum::<u64>(),
        511
    );
    assert_eq!((memory.frames.free_frames(), memory.check()), (0, Ok(())));
}

#[test]
fn failed_operations_change_nothing() {
    let (mut memory, process) = memory(1 << 12);
    place(&mut memory, process, 512, PageSize::HUGE);
    let whole = leaf(&memory, process, 512);
    let child = memory.fork(process).unwrap();
    leave(&mut memory, 0);
    let (counters, stale) = (memory.counters, memory.take_invalidations());
    assert_eq!(stale.len(), 1);
    let everything = |memory: &Memory| {
        let all = 0..u64::MAX;
        (memory.leaves(process, &all), memory.leaves(child, &all), memory.live().count())
    };
    let before = everything(&memory);
    let part = 512..520;
    let elsewhere = 1 << 20;
    assert!(memory.release(process, &part).is_err(), "the child has the frames too");
    assert!(memory.protect_parts(process, &[(part.clone(), vma_of(R))]).is_err());
    assert!(memory.split(process, whole, &part).is_err());
    assert!(memory.move_pages(process, &part, &(elsewhere..elsewhere + 8)).is_err());
    assert!(memory.move_pages(process, &(512..1024), &(elsewhere..elsewhere + 512)).is_err());
    assert!(memory.collapse(process, page(0), SIZE_32K, RW).is_err());
    assert!(memory.place_new(process, page(elsewhere), PageSize::BASE, RW).is_err());
    assert!(memory.fork(process).is_err());
    assert!(memory.spawn().is_err());
    for how in [CopyOnWrite::Split, CopyOnWrite::Whole] {
        assert!(memory.copy_on_write(process, page(512), RW, how).is_err());
    }
    assert_eq!(everything(&memory), before);
    assert_eq!((memory.counters, memory.take_invalidations()), (counters, vec![]));
    assert_eq!(memory.check(), Ok(()));
}

/// A block is free, but no frame for the page table.
#[test]
fn unmappable_block_is_freed() {
    let (mut memory, process) = memory(1 << 12);
    leave(&mut memory, 8);
    memory.place_new(process, page(0), SIZE_32K, RW).unwrap_err();
    memory.collapse(process, page(0), SIZE_32K, RW).unwrap_err();
    let (object, index) = (ObjectId(0), 0);
    leave(&mut memory, 2);
    memory.place_object_page(process, page(0), (object, index), RW).unwrap_err();
    memory.place_copy(process, page(0), (object, index), RW).unwrap_err();
    assert_eq!(memory.frames.free_frames(), 1, "the file's page has been read");
    assert_eq!(memory.counters.bytes_zeroed + memory.counters.bytes_copied, 0);
    assert_eq!(memory.check(), Ok(()));
}

/// The target of a failed move stays mapped: its ends and the middle need nodes.
#[test]
fn failed_move_leaves_both_ranges_unchanged() {
    for free in [2, 3] {
        let (memory, process) = memory(1 << 13);
        let mut os = Os::new(memory, Box::new(BasePages));
        vma(&mut os, process, 512, 512 * 3);
        vma(&mut os, process, 1 << 18, 700);
        os.fault(process, page((1 << 18) + 600), Access::Store).unwrap();
        for at in [512, 1536] {
            place(os.memory_mut(), process, at, PageSize::HUGE);
        }
        os.fault(process, page((1 << 18) + 3), Access::Store).unwrap();
        os.fork(process).unwrap();
        leave(os.memory_mut(), free);
        let from = AddrRange::new(VirtAddr::new(1 << 30), 700 << 12);
        let to = AddrRange::new(VirtAddr::new(600 << 12), 1000 << 12);
        let moved = os.event(process, &Event::Remap { from, to });
        assert_eq!(moved.is_ok(), free == 3);
        let left: u64 = os
            .memory()
            .leaves(process, &(512..2048))
            .iter()
            .map(|leaf| base_pages(leaf.size))
            .sum();
        assert_eq!(left, if free == 3 { 88 + 448 + 2 } else { 1024 });
        assert_eq!(os.memory().check(), Ok(()));
    }
}

/// The operation fails with this many free frames, and succeeds with one more.
#[test]
fn operations_reserve_exactly_the_frames_they_use() {
    type Operation = fn(&mut Memory, ProcessId) -> bool;
    let cases: [(u64, Operation); 6] = [
        (2, |memory, process| {
            // A node of 512 pages for each end.
            let whole = leaf(memory, process, 1 << 18);
            memory.split(process, whole, &((1 << 18) + 3..(1 << 18) + 6)).is_ok()
        }),
        (3, |memory, process| {
            let whole = leaf(memory, process, 1 << 18);
            memory.split(process, whole, &((1 << 18) + 3..(1 << 18) + 5000)).is_ok()
        }),
        (3, |memory, process| {
            memory.copy_on_write(process, page(1 << 18), RW, CopyOnWrite::Split).is_ok()
        }),
        (4, |memory, process| memory.place_new(process, page(1 << 30), PageSize::BASE, RW).is_ok()),
        (1, |memory, process| {
            let to = 1 << 30;
            memory.move_pages(process, &(1 << 18..2 << 18), &(to..to + (1 << 18))).is_ok()
        }),
        (2, |memory, process| memory.fork(process).is_ok()),
    ];
    for (number, (needed, operation)) in cases.into_iter().enumerate() {
        for free in [needed - 1, needed] {
            let (mut memory, process) = memory(3 << 18);
            place(&mut memory, process, 1 << 18, PageSize::LARGEST);
            memory.fork(process).unwrap();
            leave(&mut memory, free);
            let before = memory.leaves(process, &(0..u64::MAX));
            assert_eq!(operation(&mut memory, process), free == needed, "case {number}");
            let after = memory.leaves(process, &(0..u64::MAX));
            assert!(free == needed || before == after, "case {number} has changed something");
            assert_eq!(memory.check(), Ok(()));
        }
    }
}

/// The large page at its ends cannot be split, so that the mapping's permissions stay.
#[test]
fn failed_protection_keeps_the_rights() {
    let (memory, process) = memory(1 << 12);
    let mut os = Os::new(memory, Box::new(BasePages));
    vma(&mut os, process, 512, 512);
    place(os.memory_mut(), process, 512, PageSize::HUGE);
    leave(os.memory_mut(), 0);
    let range = AddrRange::new(VirtAddr::new(600 << 12), 8 << 12);
    for (advice, part) in [(None, 600), (Some(15), 700)] {
        let event = match advice {
            None => Event::Protect { range, protection: R },
            Some(advice) => Event::Advise { range, advice },
        };
        os.event(process, &event).unwrap_err();
        let (pages, found) = os.memory().process(process).vmas.find(page(part)).unwrap();
        assert_eq!((pages, found), (512..1024, vma_of(RW)));
    }
}
