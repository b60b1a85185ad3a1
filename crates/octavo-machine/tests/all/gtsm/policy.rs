//! Gap-Tolerant Sequential Mapping: selection of sub-blocks, and splits.

use octavo_machine::designs::gtsm::GtsmPolicyConfig;
use octavo_os::frames::{Frames, MemoryShape, Order, Owner};
use octavo_os::page_table::Format;
use octavo_os::policy::PolicySettings;
use octavo_os::{Memory, Os, ProcessId};
use octavo_types::{
    Access, AddrRange, Event, FrameNumber, MapSource, PageNumber, PageSize, Protection, VirtAddr,
};

fn page(raw: u64) -> PageNumber {
    PageNumber::new(raw)
}

fn pages(at: u64, count: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(at << 12), count << 12)
}

/// An operating system with 2.5 chunks of memory, of which each sub-block in `faulty` has a faulty frame, and a process
/// with an anonymous mapping of eight huge pages.
fn started(faulty: impl IntoIterator<Item = u64>, config: GtsmPolicyConfig) -> (Os, ProcessId) {
    let mut frames = Frames::new(MemoryShape::new(2 * 1024 + 512, Order::LINUX).unwrap());
    for block in faulty {
        let frame = FrameNumber::new(block * 16 + block % 15);
        assert!(frames.allocate_at(frame, Order::BASE, Owner::Faulty));
    }
    let format = Format { has_gapped: true, ..Format::default() };
    let memory = Memory::new(frames, &[PageSize::HUGE], format);
    let mut os = Os::new(memory, config.build());
    let process = os.spawn().unwrap();
    let (protection, source) = (Protection::from_bits(3), MapSource::Anonymous);
    let range = pages(0, 8 * 512);
    os.event(process, &Event::Map { range, protection, source, flags: 2 }).unwrap();
    os.take_invalidations();
    (os, process)
}

/// Touches a page. Returns the chunk and bits of its gapped page, if any.
fn touch(os: &mut Os, process: ProcessId, at: u64) -> Option<(u64, u64)> {
    os.fault(process, page(at), Access::Store).unwrap();
    assert_eq!(os.memory().check(), Ok(()));
    let gapped = os.memory().process(process).table.gapped(page(at))?;
    Some((gapped.chunk.raw(), os.memory().frames.chunk_bitmaps().of(gapped.chunk).unwrap().bits()))
}

/// Faults in every second sub-block of the second chunk, and in all sub-blocks of the others.
fn every_second() -> impl Iterator<Item = u64> {
    (0..160).filter(|block| !(64..128).contains(block) || block % 2 == 0)
}

#[test]
fn gapped_page_uses_the_first_free_sub_blocks() {
    let (mut os, process) = started(every_second(), GtsmPolicyConfig::default());
    let bits = 0xaaaa_aaaa_aaaa_aaaa;
    assert_eq!(touch(&mut os, process, 512 + 77), Some((1024, bits)));
    let leaf = os.memory().process(process).table.leaf(page(512 + 77)).unwrap();
    // The fifth sub-block of the page is the fifth odd one of the chunk, number 9.
    assert_eq!((leaf.frame.raw(), leaf.size), (1024 + 9 * 16 + 13, PageSize::BASE));
    assert_eq!(os.memory().frames.used_frames(Owner::Data), 512);
    assert_eq!(touch(&mut os, process, 1024), None, "no chunk is left");
    assert_eq!(os.memory().frames.used_frames(Owner::Faulty), 128);
}

/// "It limits the allocation of large pages to one-half of the available memory."
#[test]
fn chunk_has_at_most_one_gapped_page() {
    let config = GtsmPolicyConfig { whole_blocks: false, ..GtsmPolicyConfig::default() };
    let (mut os, process) = started([], config);
    let low = u64::from(u32::MAX);
    assert_eq!(touch(&mut os, process, 512), Some((0, low)));
    assert_eq!(touch(&mut os, process, 1024), Some((1024, low)));
    // The search restarts at the first chunk.
    os.event(process, &Event::Unmap { range: pages(7 * 512, 1) }).unwrap();
    assert_eq!(
        touch(&mut os, process, 2048),
        None,
        "what is left of both chunks is for base pages"
    );
    let (mut os, process) = started([], GtsmPolicyConfig::default());
    assert_eq!(touch(&mut os, process, 512), None, "a free block is a huge page");
    assert_eq!(os.memory().pages(PageSize::HUGE), 1);
}

#[test]
fn changing_a_part_splits_a_gapped_page() {
    let protect = |at, count| {
        let protection = Protection::from_bits(1);
        Event::Protect { range: pages(at, count), protection }
    };
    let unmap = |at, count| Event::Unmap { range: pages(at, count) };
    for (event, is_split) in [
        (protect(512 + 7, 1), true),
        (unmap(512 + 7, 1), true),
        (unmap(512 + 256, 512), true),
        (protect(512, 512), false),
        (unmap(512, 512), false),
        (Event::Remap { from: pages(512, 512), to: pages(2048, 512) }, false),
        (Event::Remap { from: pages(512, 512), to: pages(2048 + 16, 512) }, true),
    ] {
        let (mut os, process) = started(every_second(), GtsmPolicyConfig::default());
        touch(&mut os, process, 512);
        os.take_invalidations();
        os.event(process, &event).unwrap();
        let stale = os.take_invalidations();
        assert!(!stale.is_empty());
        assert_eq!(os.memory().check(), Ok(()));
        assert_eq!(os.memory().counters.splits, u64::from(is_split), "{event:?}");
        let covers = |stale: &octavo_os::Invalidation| stale.pages == (512..1024);
        assert!(stale.iter().any(covers), "{event:?}: {stale:?}");
        let is_there = !is_split && !matches!(event, Event::Unmap { .. });
        assert_eq!(os.memory().gapped_pages(), u64::from(is_there), "{event:?}");
    }
}

/// Parent and child share a gapped page until one of them stores.
#[test]
fn store_after_fork_splits_the_storing_processs_page() {
    let (mut os, process) = started(every_second(), GtsmPolicyConfig::default());
    let before = touch(&mut os, process, 512);
    let child = os.fork(process).unwrap();
    assert_eq!((os.memory().gapped_pages(), os.memory().check()), (2, Ok(())));
    assert_eq!(touch(&mut os, process, 600), None);
    let counters = os.memory().counters;
    assert_eq!((counters.splits, counters.bytes_copied), (1, 4096));
    assert_eq!(os.memory().gapped_pages(), 1);
    os.end(process);
    assert_eq!(touch(&mut os, child, 700), before, "it is the child's alone, and whole");
    assert_eq!(os.memory().counters.bytes_copied, 4096);
}

/// `khugepaged` copies base pages to their places in the chunk.
#[test]
fn khugepaged_makes_gapped_pages() {
    let mut config = GtsmPolicyConfig::default();
    config.huge.scan_every_instructions = 1;
    let (mut os, process) = started(every_second(), config);
    let protect =
        |bits| Event::Protect { range: pages(512, 1), protection: Protection::from_bits(bits) };
    // The mapping has no room for the huge page yet.
    os.event(process, &protect(1)).unwrap();
    assert_eq!(touch(&mut os, process, 600), None);
    os.event(process, &protect(3)).unwrap();
    let table = &mut os.memory_mut().process_mut(process).table;
    table.mark(page(600), true);
    let used = table.used(page(600)).unwrap();
    os.background(1);
    assert_eq!(os.memory().check(), Ok(()));
    let gapped = os.memory().process(process).table.gapped(page(600)).unwrap();
    assert_eq!((gapped.chunk.raw(), gapped.used), (1024, used));
    assert_eq!(os.memory().counters.bytes_copied, 4096);
}

/// The deposited node suffices: the only free frame is for the copy of a store after a fork.
#[test]
fn splitting_a_gapped_page_needs_no_memory() {
    let (mut os, process) = started(every_second(), GtsmPolicyConfig::default());
    touch(&mut os, process, 512);
    while os.memory().frames.free_frames() > 0 {
        os.memory_mut().frames.allocate(Order::BASE, Owner::Background { movable: false }).unwrap();
    }
    let event = Event::Protect { range: pages(600, 1), protection: Protection::from_bits(1) };
    assert_eq!(os.event(process, &event), Ok(()));
    assert_eq!((os.memory().counters.splits, os.memory().check()), (1, Ok(())));
}

/// An increase of the permissions of a part also splits the page, and needs a shootdown: TLBs would find the page by a
/// bitmap that no longer exists.
#[test]
fn splitting_a_gapped_page_is_a_shootdown() {
    let (mut os, process) = started(every_second(), GtsmPolicyConfig::default());
    touch(&mut os, process, 512);
    os.take_invalidations();
    os.fault(process, page(600), Access::Fetch).unwrap();
    let stale = os.take_invalidations();
    assert_eq!((stale.len(), stale[0].pages.clone()), (1, 512..1024));
    assert_eq!(os.memory().counters.splits, 1);
    assert_eq!((os.memory().gapped_pages(), os.memory().check()), (0, Ok(())));
}

/// A change of a part splits the page with as many shootdowns as for a 2 MiB page.
#[test]
fn gapped_split_has_the_shootdowns_of_a_huge_page() {
    let protect = |at, count| {
        let protection = Protection::from_bits(1);
        Event::Protect { range: pages(at, count), protection }
    };
    let unmap = |at, count| Event::Unmap { range: pages(at, count) };
    for (event, shootdowns) in [
        (protect(512 + 7, 1), 2),
        (unmap(512 + 7, 1), 1),
        (unmap(512 + 256, 512), 1),
        (unmap(512, 512), 1),
        (Event::Remap { from: pages(512, 512), to: pages(2048, 512) }, 1),
        (Event::Remap { from: pages(512, 512), to: pages(2048 + 16, 512) }, 1),
    ] {
        for faulty in [every_second().collect(), Vec::new()] {
            let has_gaps = !faulty.is_empty();
            let (mut os, process) = started(faulty, GtsmPolicyConfig::default());
            assert_eq!(touch(&mut os, process, 512).is_some(), has_gaps);
            os.take_invalidations();
            let before = os.memory().counters.shootdowns;
            os.event(process, &event).unwrap();
            assert_eq!(os.take_invalidations().len(), shootdowns, "{event:?}, gaps: {has_gaps}");
            let counted = os.memory().counters.shootdowns - before;
            assert_eq!(counted, shootdowns as u64, "{event:?}, gaps: {has_gaps}");
            assert_eq!(os.memory().check(), Ok(()));
        }
    }
}
