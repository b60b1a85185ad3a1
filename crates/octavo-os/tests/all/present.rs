//! Memory that a process already has when its trace begins.

use crate::small::{RW, leaf, memory, page, vma};
use octavo_os::policy::BasePages;
use octavo_os::{Counters, Os, ProcessId};
use octavo_types::{Access, AddrRange, Event, MapSource, VirtAddr};

fn os(frames: u64) -> (Os, ProcessId) {
    let (memory, process) = memory(frames);
    (Os::new(memory, Box::new(BasePages)), process)
}

fn range(at: u64, pages: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(at << 12), pages << 12)
}

fn present(at: u64, pages: u64) -> Event {
    Event::Present { range: range(at, pages), known: true, first: true }
}

#[test]
fn present_pages_are_dirty_and_their_work_is_not_counted() {
    let (mut os, process) = os(1 << 12);
    vma(&mut os, process, 512, 8);
    let before = os.memory().counters;
    os.event(process, &present(510, 6)).unwrap();
    let bytes_present = 4 * 4096;
    assert_eq!(os.memory().counters, Counters { bytes_present, ..before });
    for at in 512..516 {
        assert_eq!(leaf(os.memory(), process, at).rights, RW);
        assert_eq!(os.memory().process(process).table.used(page(at)), Some((true, true)));
    }
    assert_eq!(os.memory().leaves(process, &(0..u64::MAX)).len(), 4);
    let unknown = Event::Present { range: range(516, 2), known: false, first: false };
    os.event(process, &unknown).unwrap();
    assert_eq!(os.memory().leaves(process, &(0..u64::MAX)).len(), 4, "a part, or all of it");
}

/// Page 512 is present in the child and copied; page 513 stays shared until a store.
#[test]
fn present_pages_of_a_forked_process_are_copied() {
    let (mut os, parent) = os(1 << 12);
    vma(&mut os, parent, 512, 8);
    os.event(parent, &present(512, 2)).unwrap();
    let child = os.fork(parent).unwrap();
    os.event(child, &present(512, 1)).unwrap();
    assert_ne!(leaf(os.memory(), child, 512).frame, leaf(os.memory(), parent, 512).frame);
    assert_eq!(leaf(os.memory(), child, 513).frame, leaf(os.memory(), parent, 513).frame);
    assert_eq!(os.memory().counters.copy_on_write_faults, 0);
    os.fault(child, page(513), Access::Store).unwrap();
    assert_eq!(os.memory().counters.copy_on_write_faults, 1);
}

#[test]
fn present_pages_can_exhaust_memory() {
    let (mut os, process) = os(1 << 12);
    let (protection, source) = (RW, MapSource::Anonymous);
    let everything = AddrRange::new(VirtAddr::NULL, u64::MAX);
    os.event(process, &Event::Map { range: everything, protection, source, flags: 2 }).unwrap();
    assert!(os.event(process, &present(0, 1 << 45)).is_err());
    assert_eq!((os.memory().frames.free_frames(), os.memory().check()), (0, Ok(())));
}

/// A trace that unmaps memory and reports it as present again, 40 times.
#[test]
fn at_most_sixteen_times_the_memory_is_mapped_as_present() {
    let (mut os, process) = os(1 << 12);
    let mut mapped = 0;
    for _ in 0..40 {
        vma(&mut os, process, 512, 1 << 11);
        os.event(process, &present(512, 1 << 11)).unwrap();
        mapped += os.memory().leaves(process, &(0..u64::MAX)).len();
        os.event(process, &Event::Unmap { range: range(512, 1 << 11) }).unwrap();
    }
    assert_eq!(mapped, 16 << 12);
}
