//! Page faults of a process's own memory, by region.

use octavo_curves::{Footprint, PageFaults, Sizes, Stream, Study, StudyConfig};
use octavo_trace::{Observer, StreamConsumer};
use octavo_types::{
    AddrRange, Consumer, Event, Item, ItemKind, MapSource, PageSize, Protection, Segment, VirtAddr,
};

const HUGE: u64 = PageSize::HUGE.bytes();
const BASE: u64 = 64 * HUGE;
const MADV_DONTNEED: u64 = 4;

fn study() -> Study {
    Study::new(&StudyConfig {
        sizes: Sizes::new(vec![PageSize::BASE, PageSize::HUGE]),
        fetch_levels: vec![64],
        data_levels: vec![64],
        machine: None,
        core_cache_bytes: None,
        native_layout: true,
        allocation_wrappers: Vec::new(),
    })
}

fn range(start: u64, bytes: u64) -> AddrRange {
    AddrRange::new(VirtAddr::new(start), bytes)
}

fn map(study: &mut Study, start: u64, bytes: u64, source: MapSource) {
    let protection = Protection { read: true, write: true, execute: false };
    study.event(&Event::Map { range: range(start, bytes), protection, source, flags: 0 });
}

/// Stores into each base page of a range.
fn touch(study: &mut Study, start: u64, bytes: u64) {
    let item = |kind, addr| Item::new(kind, 8, VirtAddr::new(addr));
    let items = vec![item(ItemKind::Fetch, 0x1000), item(ItemKind::Store, 0)];
    let segment = Segment::new(items, vec![]).unwrap();
    for addr in (start..start + bytes).step_by(4096) {
        study.segment(&segment, &[VirtAddr::new(addr)]);
    }
}

fn faults(study: &Study) -> (u64, u64, u64) {
    let PageFaults { base, huge, left, .. } = study.total().page_faults;
    (base, huge, left)
}

fn touched_bytes(study: &Study, size: PageSize) -> u64 {
    let all = study.total().footprints;
    let is_it = |f: &&Footprint| f.stream == Stream::Data && f.page_size == size;
    all.iter().find(is_it).unwrap().touched_bytes
}

#[test]
fn a_mapping_has_huge_pages_where_they_are_aligned_in_it() {
    let mut study = study();
    map(&mut study, BASE - 3 * 4096, 2 * HUGE, MapSource::Anonymous);
    touch(&mut study, BASE - 3 * 4096, 2 * HUGE);
    touch(&mut study, BASE - 3 * 4096, 2 * HUGE);
    assert_eq!(faults(&study), (1024, 1, 512));
}

#[test]
fn shared_memory_and_files_do_not_count() {
    let mut study = study();
    map(&mut study, BASE, HUGE, MapSource::Shared);
    map(&mut study, BASE + HUGE, HUGE, MapSource::File { path: "/x".into(), offset_bytes: 0 });
    touch(&mut study, BASE, 2 * HUGE);
    assert_eq!(faults(&study), (0, 0, 0));
}

#[test]
fn memory_that_is_mapped_again_faults_again() {
    let mut study = study();
    for _ in 0..10 {
        map(&mut study, BASE, HUGE, MapSource::Anonymous);
        touch(&mut study, BASE, HUGE);
        study.event(&Event::Unmap { range: range(BASE, HUGE) });
    }
    assert_eq!(faults(&study), (5120, 10, 0));
    assert_eq!(study.total().page_faults.huge_again, 9);
}

#[test]
fn a_partly_freed_huge_page_faults_in_small_pages() {
    let mut study = study();
    map(&mut study, BASE, HUGE, MapSource::Anonymous);
    touch(&mut study, BASE, HUGE);
    study.event(&Event::Advise { range: range(BASE, HUGE / 2), advice: MADV_DONTNEED });
    touch(&mut study, BASE, HUGE);
    assert_eq!(faults(&study), (768, 1, 256));
    study.event(&Event::Advise { range: range(BASE, HUGE), advice: MADV_DONTNEED });
    touch(&mut study, BASE, HUGE);
    assert_eq!(faults(&study), (1280, 2, 256), "a page table goes with all of its pages");
}

#[test]
fn memory_that_moves_does_not_fault_again() {
    let mut study = study();
    map(&mut study, BASE, HUGE, MapSource::Anonymous);
    touch(&mut study, BASE, HUGE);
    let to = range(BASE + 8 * HUGE, HUGE);
    study.event(&Event::Remap { from: range(BASE, HUGE), to });
    touch(&mut study, BASE + 8 * HUGE, HUGE);
    assert_eq!(faults(&study), (512, 1, 0));
}

#[test]
fn after_left_out_executions_only_new_memory_faults() {
    let mut study = study();
    map(&mut study, BASE, HUGE, MapSource::Anonymous);
    touch(&mut study, BASE, HUGE / 2);
    StreamConsumer::resumed(&mut study);
    touch(&mut study, BASE, HUGE);
    assert_eq!(faults(&study), (256, 1, 0), "the other half may have been touched meanwhile");
    map(&mut study, BASE + HUGE, HUGE, MapSource::Anonymous);
    touch(&mut study, BASE + HUGE, HUGE);
    study.event(&Event::Advise { range: range(BASE, HUGE), advice: MADV_DONTNEED });
    touch(&mut study, BASE, HUGE);
    assert_eq!(faults(&study), (1280, 3, 0));
    let to = range(BASE + 8 * HUGE, 2 * HUGE);
    study.event(&Event::Remap { from: range(BASE, HUGE), to });
    touch(&mut study, BASE + 8 * HUGE, 2 * HUGE);
    assert_eq!(faults(&study), (1792, 4, 0), "what a mapping grows by is new");
}

#[test]
fn faults_of_the_warm_up_do_not_count() {
    let mut study = study();
    map(&mut study, BASE, 2 * HUGE, MapSource::Anonymous);
    study.set_warming(true);
    touch(&mut study, BASE, HUGE);
    study.set_warming(false);
    touch(&mut study, BASE, 2 * HUGE);
    assert_eq!(faults(&study), (512, 1, 0));
}

#[test]
fn memory_is_unknown_if_executions_are_skipped_after_the_present_pages() {
    let mut study = study();
    map(&mut study, BASE, 2 * HUGE, MapSource::Anonymous);
    study.event(&Event::Present { range: range(BASE, HUGE), known: true, first: true });
    assert!(study.knows_memory());
    StreamConsumer::resumed(&mut study);
    assert!(!study.knows_memory(), "what the skipped executions touched");
    touch(&mut study, BASE + HUGE, 4096);
    assert_eq!(faults(&study), (0, 0, 0));
    assert_eq!(touched_bytes(&study, PageSize::BASE), HUGE + 4096);
}

#[test]
fn memory_present_when_counting_begins_counts_and_does_not_fault() {
    let mut study = study();
    map(&mut study, BASE, 2 * HUGE, MapSource::Anonymous);
    StreamConsumer::resumed(&mut study);
    assert!(!study.knows_memory());
    map(&mut study, BASE + 4 * HUGE, HUGE, MapSource::Anonymous);
    let (mapped_since, unmapped) = (range(BASE + 4 * HUGE, HUGE), range(BASE + 8 * HUGE, HUGE));
    let huge = (range(BASE + HUGE, HUGE), false);
    let known = [range(BASE, HUGE / 2), mapped_since, unmapped].map(|range| (range, true));
    let mut present = |ranges: &[(AddrRange, bool)]| {
        for (place, (range, known)) in ranges.iter().copied().enumerate() {
            study.event(&Event::Present { range, known, first: place == 0 });
        }
        study.knows_memory()
    };
    let [first, others @ ..] = known;
    assert!(!present(&[&[first, huge], &others[..]].concat()), "all of a huge page, or a part");
    assert!(present(&[&known[..], &[(unmapped, false)]].concat()));
    let too_much = (range(BASE, 1 << 46), true);
    assert!(!present(&[too_much]), "so many pages would take too long");
    assert!(present(&known));
    touch(&mut study, BASE, 4096);
    touch(&mut study, BASE + 4 * HUGE, 4096);
    assert_eq!(faults(&study), (1, 1, 0));
    assert_eq!(touched_bytes(&study, PageSize::BASE), HUGE / 2 + 4096);
    assert_eq!(touched_bytes(&study, PageSize::HUGE), 2 * HUGE);
}

/// More than half of the 64 GiB that a stream may name as present, named at each beginning of counting.
#[test]
fn memory_that_is_present_already_is_not_counted_again() {
    let mut study = study();
    let much = range(BASE, 33 << 30);
    let begin = |study: &mut Study| {
        StreamConsumer::resumed(study);
        study.event(&Event::Present { range: much, known: true, first: true });
        study.knows_memory()
    };
    map(&mut study, BASE, HUGE, MapSource::Anonymous);
    assert!(begin(&mut study));
    assert!(begin(&mut study), "all of it again");
    study.event(&Event::Unmap { range: range(BASE + HUGE, HUGE) });
    map(&mut study, BASE + HUGE, HUGE, MapSource::Anonymous);
    assert!(begin(&mut study), "2 MiB of it are new");
    assert_eq!(touched_bytes(&study, PageSize::BASE), 2 * HUGE);
    study.event(&Event::Unmap { range: much });
    map(&mut study, BASE, HUGE, MapSource::Anonymous);
    assert!(!begin(&mut study), "all of it is new, and too much");
}

#[test]
fn untouched_memory_may_be_present_when_counting_begins_again() {
    let mut study = study();
    StreamConsumer::resumed(&mut study);
    map(&mut study, BASE, HUGE, MapSource::Anonymous);
    let present = Event::Present { range: range(BASE, HUGE), known: true, first: true };
    study.event(&present);
    assert_eq!(touched_bytes(&study, PageSize::BASE), 0, "an execution that comes yet touches it");
    StreamConsumer::resumed(&mut study);
    study.event(&present);
    assert_eq!(touched_bytes(&study, PageSize::BASE), HUGE);
}
