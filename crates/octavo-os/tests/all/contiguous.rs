//! Blocks with the contiguous hint: when Linux folds and unfolds them, and what that costs.

use crate::small::{R, RW, page, vma_of};
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::Format;
use octavo_os::{CopyOnWrite, Memory, ProcessId};
use octavo_types::{FrameNumber, PageSize};

/// Blocks of 16 entries.
const BLOCK: u64 = 16;

/// A memory with one process that has four whole blocks from page 512 on, mapped at once, and their first frame.
fn four_blocks() -> (Memory, ProcessId, FrameNumber) {
    let frames = Frames::new(MemoryShape::new(1 << 14, Order::LARGEST).unwrap());
    let format = Format { block_log2: 4, ..Format::default() };
    let mut memory = Memory::new(frames, &[PageSize::HUGE], format);
    let process = memory.spawn().unwrap();
    let block = memory.frames.allocate(Order::of(PageSize::from_log2(18).unwrap()), Owner::Data);
    let first = block.unwrap();
    memory.map_run(process, &(512..576), first, PageSize::HUGE, RW).unwrap();
    assert_eq!(memory.take_invalidations(), [], "new pages are in no TLB");
    (memory, process, first)
}

/// Which of the four blocks have the hint.
fn folded(memory: &Memory, process: ProcessId) -> [bool; 4] {
    let table = &memory.process(process).table;
    let of_block = |block: u64| {
        let pages = 512 + block * BLOCK..512 + (block + 1) * BLOCK;
        let all: Vec<bool> = pages.map(|at| table.is_folded(page(at))).collect();
        assert!(
            all.iter().all(|is_folded| *is_folded == all[0]),
            "a hint is in all entries of a block or in none"
        );
        all[0]
    };
    [0, 1, 2, 3].map(of_block)
}

/// Folds, unfolds, entries written and shootdowns of an operation, including its end.
fn cost(memory: &mut Memory, operation: impl FnOnce(&mut Memory)) -> [u64; 4] {
    let counted = |memory: &Memory| {
        let counters = &memory.counters;
        [counters.folds, counters.unfolds, counters.entries_written, counters.shootdowns]
    };
    let before = counted(memory);
    operation(memory);
    let _ = memory.take_invalidations();
    assert_eq!(memory.check(), Ok(()));
    let after = counted(memory);
    [0, 1, 2, 3].map(|at| after[at] - before[at])
}

#[test]
fn blocks_mapped_at_once_have_the_hint_at_no_cost() {
    let (memory, process, _) = four_blocks();
    assert_eq!(folded(&memory, process), [true; 4]);
    let counters = memory.counters;
    assert_eq!((counters.folds, counters.entries_written, counters.shootdowns), (0, 64, 0));
    let walk = memory.process(process).table.walk(page(530));
    let block = walk.cacheable().unwrap();
    assert_eq!((block.page, block.size.bytes()), (page(528), 64 << 10));
    assert_eq!(walk.leaf.map(|leaf| leaf.page), Some(page(530)));
}

#[test]
fn unmapping_a_page_unfolds_its_block() {
    let (mut memory, process, _) = four_blocks();
    // The block is rewritten and invalidated; the unmapping has a shootdown of its own.
    let one = cost(&mut memory, |memory| memory.release(process, &(530..531)).unwrap());
    assert_eq!(one, [0, 1, BLOCK, 2]);
    let whole = cost(&mut memory, |memory| memory.release(process, &(544..560)).unwrap());
    assert_eq!(whole, [0, 0, 0, 1]);
    assert_eq!(memory.process(process).table.folded_entries(), 2 * BLOCK);
}

#[test]
fn changing_the_permissions_of_a_part_unfolds_its_block() {
    let (mut memory, process, _) = four_blocks();
    let protect = |memory: &mut Memory, pages, rights| {
        cost(memory, |memory| memory.protect_parts(process, &[(pages, vma_of(rights))]).unwrap())
    };
    assert_eq!(protect(&mut memory, 512..544, R), [0, 0, 2 * BLOCK, 1], "whole blocks keep it");
    assert_eq!(protect(&mut memory, 512..513, RW), [0, 1, 1 + BLOCK, 2]);
    assert_eq!(folded(&memory, process), [false, true, true, true]);
    // A fold is tried when the last entry of a block is written.
    assert_eq!(protect(&mut memory, 512..513, R), [0, 0, 1, 1]);
    assert_eq!(protect(&mut memory, 527..528, RW), [0, 0, 1, 1]);
    assert_eq!(protect(&mut memory, 527..528, R), [1, 0, 1 + BLOCK, 2]);
    assert_eq!(folded(&memory, process), [true; 4]);
}

#[test]
fn forked_process_has_the_hint_until_one_stores() {
    let (mut memory, process, _) = four_blocks();
    let mut child = None;
    let fork = cost(&mut memory, |memory| child = memory.fork(process).ok());
    assert_eq!(fork, [0, 0, 2 * 64, 1]);
    let child = child.unwrap();
    assert_eq!([process, child].map(|process| folded(&memory, process)), [[true; 4]; 2]);
    let store = cost(&mut memory, |memory| {
        memory.copy_on_write(child, page(520), RW, CopyOnWrite::Split).unwrap();
    });
    assert_eq!(store, [0, 1, 1 + BLOCK, 2]);
    assert_eq!(folded(&memory, child), [false, true, true, true]);
    assert_eq!(folded(&memory, process), [true; 4]);
}

#[test]
fn moved_block_has_the_hint_if_it_is_aligned() {
    let (mut memory, process, _) = four_blocks();
    let moved = cost(&mut memory, |memory| {
        memory.move_pages(process, &(544..560), &(1024..1040)).unwrap();
        memory.move_pages(process, &(560..576), &(2049..2065)).unwrap();
    });
    assert_eq!(moved, [0, 0, 2 * BLOCK, 2]);
    let table = &memory.process(process).table;
    assert!(table.is_folded(page(1030)) && !table.is_folded(page(2056)));
}

#[test]
fn parts_of_a_split_huge_page_have_the_hint() {
    let (mut memory, process, _) = four_blocks();
    memory.place_new(process, page(2048), PageSize::HUGE, RW).unwrap();
    let split = cost(&mut memory, |memory| memory.release(process, &(2050..2051)).unwrap());
    assert_eq!(split, [0, 0, 511, 1]);
    let table = &memory.process(process).table;
    assert!(!table.is_folded(page(2048)) && table.is_folded(page(2064)));
    assert_eq!(table.folded_entries(), 64 + 31 * BLOCK);
}

#[test]
fn frames_allocated_one_by_one_are_not_folded() {
    let (mut memory, process, _) = four_blocks();
    let first = memory.frames.allocate(Order::new(4).unwrap(), Owner::Data).unwrap();
    memory.frames.free(first, Order::new(4).unwrap());
    for at in 0..BLOCK {
        memory.frames.allocate_at(first.plus(at), Order::BASE, Owner::Data);
        memory.place_at(process, page(1024 + at), first.plus(at), RW).unwrap();
    }
    let _ = memory.take_invalidations();
    assert!(!memory.process(process).table.is_folded(page(1024)));
}

#[test]
fn folding_and_unfolding_write_accessed_and_dirty_bits_to_the_whole_block() {
    let (mut memory, process, _) = four_blocks();
    let used = |memory: &Memory, at| memory.process(process).table.used(page(at)).unwrap();
    let walked = |memory: &Memory, at| memory.process(process).table.walk(page(at)).used;
    memory.process_mut(process).table.mark(page(513), true);
    // Hardware sees the entry that it reads, software the block.
    assert_eq!((walked(&memory, 514), used(&memory, 514)), ((false, false), (true, true)));
    memory.release(process, &(513..514)).unwrap();
    let _ = memory.take_invalidations();
    assert_eq!((walked(&memory, 514), walked(&memory, 530)), ((true, true), (false, false)));
    memory.protect_parts(process, &[(528..529, vma_of(R))]).unwrap();
    let _ = memory.take_invalidations();
    memory.process_mut(process).table.mark(page(530), true);
    memory.protect_parts(process, &[(529..544, vma_of(R))]).unwrap();
    let _ = memory.take_invalidations();
    assert_eq!((folded(&memory, process)[1], walked(&memory, 531)), (true, (true, true)));
}
