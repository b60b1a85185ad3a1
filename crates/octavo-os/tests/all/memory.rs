//! Single operations on memory: effects and costs.

use crate::small::{R, RW, SIZE_32K, leaf, memory, page, place, vma, vma_of};
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::{Format, Leaf};
use octavo_os::policy::{BasePages, Thp, ThpConfig};
use octavo_os::vmas::Pages;
use octavo_os::{CopyOnWrite, Invalidation, Memory, Os, ProcessId};
use octavo_types::{Access, AddrRange, Event, MapSource, PageSize, VirtAddr};

fn mark(memory: &mut Memory, process: ProcessId, at: u64, written: bool) {
    memory.process_mut(process).table.mark(page(at), written);
}

fn used(memory: &Memory, process: ProcessId, at: u64) -> Option<(bool, bool)> {
    memory.process(process).table.used(page(at))
}

/// The sizes of the mapped pages in a range, run-length encoded.
fn runs(memory: &Memory, process: ProcessId, pages: &Pages) -> Vec<(PageSize, usize)> {
    let sizes: Vec<PageSize> = memory.leaves(process, pages).iter().map(|leaf| leaf.size).collect();
    sizes.chunk_by(PartialEq::eq).map(|run| (run[0], run.len())).collect()
}

fn stale(process: ProcessId, pages: Pages) -> Vec<Invalidation> {
    vec![Invalidation { process, pages }]
}

/// The tables of a child keep ranges, too.
#[test]
fn tables_keep_ranges_if_their_format_does() {
    let ranges = |keeps_ranges| {
        let frames = Frames::new(MemoryShape::new(1 << 12, Order::LINUX).unwrap());
        let format = Format { keeps_ranges, ..Format::default() };
        let mut os = Os::new(Memory::new(frames, &[], format), Box::new(BasePages));
        let parent = os.spawn().unwrap();
        vma(&mut os, parent, 100, 50);
        // The frames after that of the first page are those of the page table.
        let counts = [100, 101, 102, 110].map(|at| {
            os.fault(parent, page(at), Access::Store).unwrap();
            os.memory().ranges()
        });
        let child = os.fork(parent).unwrap();
        let both = os.memory().ranges();
        os.end(child);
        (counts, both, os.memory().ranges())
    };
    assert_eq!(ranges(true), ([1, 2, 2, 3].map(Some), Some(6), Some(3)));
    assert_eq!(ranges(false), ([None; 4], None, None));
}

#[test]
fn range_operation_is_one_shootdown() {
    let (mut memory, process) = memory(1 << 14);
    for at in (512..612).chain(700..710) {
        place(&mut memory, process, at, PageSize::BASE);
    }
    assert_eq!(memory.take_invalidations(), [], "new pages are in no TLB");
    memory.protect_parts(process, &[(512..1024, vma_of(R))]).unwrap();
    assert_eq!(memory.take_invalidations(), stale(process, 512..710));
    memory.protect_parts(process, &[(512..1024, vma_of(R))]).unwrap();
    assert_eq!(memory.take_invalidations(), [], "nothing has changed");
    memory.protect_parts(process, &[(520..530, vma_of(RW))]).unwrap();
    assert_eq!(memory.take_invalidations(), stale(process, 520..530));
    let child = memory.fork(process).unwrap();
    assert_eq!(memory.take_invalidations(), stale(process, 520..530), "others had no stores");
    memory.release(process, &(600..705)).unwrap();
    assert_eq!(memory.take_invalidations(), stale(process, 600..705));
    memory.move_pages(process, &(512..600), &(2048..2136)).unwrap();
    assert_eq!(memory.take_invalidations(), stale(process, 512..600));
    memory.end(child);
    assert_eq!(memory.take_invalidations(), stale(child, 512..710));
    memory.collapse(process, page(2048), PageSize::HUGE, RW).unwrap();
    assert_eq!(memory.take_invalidations(), stale(process, 2048..2560));
    assert_eq!(memory.counters.shootdowns, 7);
    assert_eq!(memory.counters.bytes_copied, 88 << 12);
    // A split is a shootdown of its own.
    memory.release(process, &(2048..2050)).unwrap();
    assert_eq!(memory.take_invalidations(), stale(process, 2048..2560));
    assert_eq!(memory.counters.splits, 1);
    assert_eq!(memory.check(), Ok(()));
}

#[test]
fn accessed_and_dirty_bits_survive_changes() {
    let (mut memory, process) = memory(1 << 14);
    place(&mut memory, process, 512, PageSize::HUGE);
    mark(&mut memory, process, 512, false);
    let whole = leaf(&memory, process, 512);
    // A change of permissions.
    memory.protect_parts(process, &[(512..1024, vma_of(R))]).unwrap();
    assert_eq!(used(&memory, process, 512), Some((true, false)));
    // Every part of a split page.
    memory.split(process, Leaf { rights: R, ..whole }, &(512..513)).unwrap();
    let parts = runs(&memory, process, &(512..1024));
    assert_eq!(parts, [(PageSize::BASE, 8), (SIZE_32K, 63)]);
    assert!((512..1024).all(|at| used(&memory, process, at) == Some((true, false))));
    // Moved pages, with their size and with other sizes.
    mark(&mut memory, process, 1023, true);
    memory.move_pages(process, &(512..1024), &(4104..4616)).unwrap();
    assert_eq!(used(&memory, process, 4104), Some((true, false)));
    assert_eq!(used(&memory, process, 4615), Some((true, true)));
    memory.move_pages(process, &(4104..4616), &(1025..1537)).unwrap();
    assert_eq!(runs(&memory, process, &(1025..1537)), [(PageSize::BASE, 512)]);
    assert_eq!(used(&memory, process, 1528), Some((true, false)));
    assert_eq!(used(&memory, process, 1536), Some((true, true)));
    // The parts of a collapsed page.
    memory.collapse(process, page(1528), SIZE_32K, RW).unwrap();
    memory.collapse(process, page(1520), SIZE_32K, RW).unwrap();
    assert_eq!(used(&memory, process, 1528), Some((true, true)));
    assert_eq!(used(&memory, process, 1520), Some((true, false)));
    memory.collapse(process, page(1024), PageSize::HUGE, RW).unwrap();
    assert_eq!(used(&memory, process, 1024), Some((true, true)));
    memory.collapse(process, page(1536), PageSize::HUGE, RW).unwrap();
    assert_eq!(used(&memory, process, 1536), Some((true, true)));
    place(&mut memory, process, 8192, PageSize::BASE);
    memory.collapse(process, page(8192), PageSize::HUGE, RW).unwrap();
    assert_eq!(used(&memory, process, 8192), Some((false, false)), "the page is unused");
    // `copy_present_pte`: the copy is not accessed.
    let child = memory.fork(process).unwrap();
    assert_eq!(used(&memory, child, 1536), Some((false, true)));
    assert_eq!(used(&memory, process, 1536), Some((true, true)));
    assert_eq!(memory.check(), Ok(()));
}

/// Promotion in place merges the parts without a copy.
#[test]
fn promotion_in_place_keeps_accessed_bits() {
    let (mut memory, process) = memory(1 << 12);
    let block = memory.frames.allocate(Order::HUGE, Owner::Data).unwrap();
    for at in 0..512 {
        memory.map(process, page(512 + at), PageSize::BASE, block.plus(at), RW).unwrap();
    }
    mark(&mut memory, process, 600, true);
    memory.map(process, page(600), SIZE_32K, block.plus(88), RW).unwrap();
    assert_eq!(used(&memory, process, 607), Some((true, true)));
    assert_eq!(used(&memory, process, 608), Some((false, false)));
    memory.map(process, page(512), PageSize::HUGE, block, RW).unwrap();
    assert_eq!(used(&memory, process, 512), Some((true, true)));
    assert_eq!(memory.check(), Ok(()));
}

#[test]
fn copy_on_write_copies_a_base_page_or_the_whole_page() {
    let around_it = vec![(SIZE_32K, 1), (PageSize::BASE, 8), (SIZE_32K, 62)];
    for (how, copied, parts, shootdowns) in [
        (CopyOnWrite::Split, 4096, around_it, 2),
        (CopyOnWrite::Whole, 2 << 20, vec![(PageSize::HUGE, 1)], 1),
    ] {
        let (mut memory, process) = memory(1 << 13);
        place(&mut memory, process, 512, PageSize::HUGE);
        let child = memory.fork(process).unwrap();
        memory.take_invalidations();
        memory.copy_on_write(process, page(522), RW, how).unwrap();
        let invalidations = memory.take_invalidations();
        assert_eq!(
            invalidations[0],
            Invalidation { process, pages: 512..1024 },
            "all translations of it"
        );
        assert_eq!(invalidations.len(), shootdowns, "a split is one of its own");
        assert_eq!(memory.counters.bytes_copied, copied);
        assert_eq!(memory.counters.copy_on_write_faults, 1);
        assert_eq!(runs(&memory, process, &(512..1024)), parts);
        assert_eq!(runs(&memory, child, &(512..1024)), [(PageSize::HUGE, 1)]);
        assert!(leaf(&memory, process, 522).rights.write);
        assert_eq!(memory.check(), Ok(()));
        // The other process now owns all of its page, or splits it and finds that it owns this part.
        memory.copy_on_write(child, page(522), RW, CopyOnWrite::Split).unwrap();
        assert_eq!(memory.counters.bytes_copied, copied);
        assert_eq!(runs(&memory, child, &(512..1024)), parts);
        assert!(leaf(&memory, child, 522).rights.write);
        assert_eq!(memory.check(), Ok(()));
    }
}

#[test]
fn process_numbers_are_reused() {
    let (mut memory, first) = memory(1 << 10);
    let second = memory.fork(first).unwrap();
    let third = memory.fork(second).unwrap();
    memory.end(second);
    assert_eq!(memory.spawn(), Ok(second));
    assert_eq!(memory.spawn(), Ok(ProcessId(third.0 + 1)));
}

fn shared(os: &mut Os, process: ProcessId, at: u64) {
    let range = AddrRange::new(VirtAddr::new(at << 12), 8 << 12);
    let source = MapSource::Shared;
    os.event(process, &Event::Map { range, protection: RW, source, flags: 0 }).unwrap();
}

#[test]
fn shared_memory_is_freed_with_its_last_mapping() {
    let (memory, process) = memory(1 << 10);
    let mut os = Os::new(memory, Box::new(BasePages));
    shared(&mut os, process, 64);
    os.fault(process, page(65), Access::Store).unwrap();
    let free = os.memory().frames.free_frames();
    assert_eq!((os.memory().counters.bytes_zeroed, os.memory().counters.bytes_read), (4096, 0));
    let child = os.fork(process).unwrap();
    let mapping = AddrRange::new(VirtAddr::new(64 << 12), 8 << 12);
    os.event(process, &Event::Unmap { range: mapping }).unwrap();
    assert_eq!(os.memory().frames.used_frames(Owner::Data), 1, "the child maps it");
    os.end(child);
    assert_eq!(os.memory().frames.used_frames(Owner::Data), 0);
    assert!(os.memory().frames.free_frames() > free);
    shared(&mut os, process, 64);
    os.fault(process, page(65), Access::Store).unwrap();
    os.event(process, &Event::Unmap { range: mapping }).unwrap();
    assert_eq!(os.memory().frames.used_frames(Owner::Data), 0);
    assert_eq!(os.memory().check(), Ok(()));
}

/// Short scans continue where the previous one ended.
#[test]
fn khugepaged_scans_every_process() {
    let (memory, process) = memory(1 << 13);
    let config =
        ThpConfig { pages_to_scan: 1, scan_every_instructions: 10, ..ThpConfig::default() };
    let mut os = Os::new(memory, Box::new(Thp::new(config)));
    for at in 0..4 {
        // No huge page fits yet.
        vma(&mut os, process, 1024 + at * 512, 511);
        os.fault(process, page(1024 + at * 512), Access::Store).unwrap();
        vma(&mut os, process, 1024 + at * 512 + 511, 1);
    }
    for scans in 0..=4 {
        assert_eq!(os.memory().counters.promotions, scans);
        os.background(10 * (scans + 1));
    }
    assert_eq!(runs(os.memory(), process, &(1024..3072)), [(PageSize::HUGE, 4)]);
    assert_eq!(os.take_invalidations().len(), 4);
}

#[test]
fn advised_mapping_shares_no_page() {
    let (memory, process) = memory(1 << 13);
    let mut os = Os::new(memory, Box::new(Thp::new(ThpConfig::default())));
    vma(&mut os, process, 512, 512);
    os.fault(process, page(600), Access::Store).unwrap();
    let advise = |os: &mut Os, advice| {
        let range = AddrRange::new(VirtAddr::new(600 << 12), 4 << 12);
        os.event(process, &Event::Advise { range, advice }).unwrap();
        os.memory().counters.splits
    };
    assert_eq!(runs(os.memory(), process, &(512..1024)), [(PageSize::HUGE, 1)]);
    assert_eq!(advise(&mut os, 15), 1);
    assert_eq!(advise(&mut os, 15), 1);
    assert_eq!(os.memory().leaves(process, &(600..604)).len(), 4);
}
